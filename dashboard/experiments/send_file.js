(identifier, scorer, title, prompt_field, reference_field, group_similar, task, limit) => {
  const {button, ...file} = window.fsd.file;
  const names = {prompt_field: prompt_field ?? '', reference_field: reference_field ?? '',
                 group_similar: group_similar ? 'yes' : ''};  // null until they are drawn
  window.fsd.act($NAME$, {...file, identifier, scorer, title, ...names, task, limit}, button);
}
