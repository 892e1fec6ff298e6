(...values) => {
  const {button, ...file} = window.fsd.file;
  window.fsd.act($NAME$, {...file, values}, button);
}
