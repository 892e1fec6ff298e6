(identifier, scorer, title, group_similar, task, limit) => {
  const {button, ...file} = window.fsd.file;
  window.fsd.act($NAME$, {...file, identifier, scorer, title, group_similar: group_similar ? 'yes' : '', task, limit}, button);
}
