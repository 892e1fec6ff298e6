// A click does an action with an object (view.js), and with the text that its line has a field for. The HTML comes from
// data and cannot script. A question opens in a dialog of the browser and is set as text.
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-act]');
  if (!button) return;
  const field = button.closest('[data-line]')?.querySelector('input[data-text]');
  const send = () => {
    const {act, kind, id} = button.dataset;
    window.fsd.act(act, field ? {kind, id, text: field.value} : {kind, id}, button);
    trigger('click');
  };
  if (!button.dataset.question) { send(); return; }
  const dialog = document.createElement('dialog');
  dialog.className = 'fsd-dialog';
  dialog.setAttribute('aria-label', 'Please confirm');
  const question = document.createElement('p');
  question.textContent = button.dataset.question;
  const row = document.createElement('form');
  row.method = 'dialog';
  for (const [value, words] of [['', 'Keep'], ['yes', button.textContent]]) {
    const choice = document.createElement('button');
    choice.value = value;
    choice.textContent = words;
    row.append(choice);
  }
  dialog.append(question, row);
  dialog.addEventListener('close', () => { if (dialog.returnValue === 'yes') send(); dialog.remove(); });
  document.body.append(dialog);
  dialog.showModal();
});
