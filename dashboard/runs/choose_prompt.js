// A click on a row's button opens its prompt. The table is HTML that data cannot script.
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-prompt]');
  if (!button) return;
  window.fsd.want({prompt: Number(button.dataset.prompt)});
  trigger('click');
});
