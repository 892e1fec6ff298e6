// Stops the job that the page shows.
() => window.fsd.act('stop', {job: document.querySelector('#followed [data-job]')?.dataset.job ?? ''})
