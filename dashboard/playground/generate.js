// Asks for texts, with the fields as they are at the click. The act's key is the job's id, so a page that is loaded
// again before the answer sends the same once more. Until it is answered, the button is disabled.
(...values) => {
  const button = document.querySelector('#generate');
  if (button.ariaDisabled === 'true') return;
  window.fsd.act('generate', values, { set disabled(busy) { button.ariaDisabled = String(busy); } });
}
