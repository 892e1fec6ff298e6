// The job that the page shows is shown again when the page is opened again.
watch('value', () => {
  const followed = element.querySelector('[data-job]');
  if (followed) window.fsd.remember({ job: followed.dataset.job });
});
