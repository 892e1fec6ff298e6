(task, model, family) => {
  const {button, ...file} = window.fsd.file;
  // The fields are null until they are drawn.
  window.fsd.act($NAME$, {...file, task: task ?? '', model: model ?? '', family: family ?? ''}, button);
}
