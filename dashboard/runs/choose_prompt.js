// A click on a row's button tells the server which prompt; the table is HTML that data cannot script.
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-prompt]');
  if (button) trigger('click', {prompt: Number(button.dataset.prompt)});
});
