// A click on a row's button sends its prompt to the server. The table is HTML that data cannot script.
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-prompt]');
  if (button) trigger('click', {prompt: Number(button.dataset.prompt)});
});
