// Adds the prompt of the job that the page shows to a task.
(task, reference) => {
  const job = document.querySelector('#followed [data-job]')?.dataset.job ?? '';
  window.fsd.act('keep prompt', {job, task: task ?? '', reference: reference ?? ''});
}
