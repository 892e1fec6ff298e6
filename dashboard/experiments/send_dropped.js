(task, limit) => {
  const {button, ...file} = window.fsd.file;
  window.fsd.act($NAME$, {...file, task, limit}, button);
}
