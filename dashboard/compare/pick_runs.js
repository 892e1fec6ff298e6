// The browser keeps the ticks and their order. The page updates a moment after the last tick and does not redraw the
// list. Ticks name the list in which they were made.
let chosen = [], timer = null;
const boxes = () => [...element.querySelectorAll('input[type=checkbox]')];
const read = () => {
  chosen = (element.querySelector('.pick')?.dataset.chosen || '').split(',').filter(Boolean);
  for (const box of boxes()) box.checked = chosen.includes(box.value);  // a box that is drawn again keeps a person's tick
  tell();
};
const tell = () => {
  const said = element.querySelector('.pick-said');
  if (said) said.textContent = `${chosen.length} ${chosen.length === 1 ? 'run' : 'runs'} chosen`;
};
const tick = (box, on) => {
  box.checked = on;
  chosen = chosen.filter((id) => id !== box.value);
  if (on) chosen.push(box.value);
};
const follow = () => {
  tell();
  window.fsd.want({runs: {ids: chosen, list: element.querySelector('.pick').dataset.list}});
  clearTimeout(timer);
  timer = setTimeout(() => trigger('click'), $WAIT$);
};
element.addEventListener('change', (event) => {
  if (event.target.type !== 'checkbox') return;
  tick(event.target, event.target.checked);
  follow();
});
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-pick]');
  if (!button) return;
  const group = [...button.closest('fieldset').querySelectorAll('label:not([hidden]) input')];
  const on = !group.every((box) => box.checked);
  group.forEach((box) => { if (box.checked !== on) tick(box, on); });
  follow();
});
element.addEventListener('input', (event) => {
  if (event.target.type !== 'search') return;
  const words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
  let any = false;
  for (const group of element.querySelectorAll('fieldset')) {
    let some = false;
    for (const label of group.querySelectorAll('label')) {
      const text = `${label.dataset.words} ${group.dataset.words}`.toLowerCase();
      label.hidden = !words.every((word) => text.includes(word));
      some ||= !label.hidden;
    }
    group.hidden = !some;
    any ||= some;
  }
  element.querySelector('.pick-none').hidden = any;
});
watch('value', read);
read();
