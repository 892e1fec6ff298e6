(identifier, scorer, title) => {
  const {button, ...file} = window.fsd.file;
  window.fsd.act($NAME$, {...file, identifier, scorer, title}, button);
}
