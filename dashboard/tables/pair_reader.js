// Reading prompts by key, and marking outputs. The server gets the output and the mark. A note is typed into a dialog
// of the browser. After an answer, the output that had the focus gets it back.
let place = null;
let turned = 0;

const sides = () => [...element.querySelectorAll('.side[data-run]')];
const current = () => document.activeElement && element.contains(document.activeElement)
  ? document.activeElement.closest('.side[data-run]') : null;
const at = (side) => ({ run: side.dataset.run, position: Number(side.dataset.position) });

function send(side, act, words) {
  place = at(side);
  trigger('click', { act, ...place, words: words || '' });
}

function turn(step) {
  turned = step;
  trigger('click', { act: step > 0 ? 'next' : 'back', run: '', position: 0, words: '' });
}

function note(side, button) {
  const dialog = document.createElement('dialog');
  dialog.className = 'fsd-dialog';
  dialog.setAttribute('aria-label', 'Note');
  const form = document.createElement('form');
  form.method = 'dialog';
  const label = document.createElement('p');
  label.textContent = 'Note on this output, kept with your name';
  const area = document.createElement('textarea');
  area.value = button.dataset.note;
  area.rows = 4;
  area.maxLength = $LONGEST$;
  area.setAttribute('aria-label', 'Note on this output');
  const row = document.createElement('div');
  for (const [value, words] of [['', 'Cancel'], ['yes', 'Keep the note']]) {
    const choice = document.createElement('button');
    choice.value = value;
    choice.textContent = words;
    row.append(choice);
  }
  form.append(label, area, row);
  dialog.append(form);
  dialog.addEventListener('close', () => {
    if (dialog.returnValue === 'yes') send(side, 'note', area.value);
    dialog.remove();
    side.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
}

function mark(side, kind) {
  const button = side.querySelector(`button[data-mark="${kind}"]`);
  if (kind === 'note') note(side, button);
  else send(side, kind);
}

function go(step, across) {
  const all = sides();
  const here = all.indexOf(current());
  if (here < 0) {
    if (all.length) all[step < 0 ? all.length - 2 : 0].focus();
    return;
  }
  const to = across ? (here - (here % 2)) + (step > 0 ? 1 : 0) : here + 2 * step;
  if (all[to]) { all[to].focus(); all[to].scrollIntoView({ block: 'nearest' }); }
  else if (!across) turn(step);
}

element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-mark]');
  if (button) mark(button.closest('.side'), button.dataset.mark);
});
const keys = (event) => {
  if (!element.isConnected) { document.removeEventListener('keydown', keys); return; }
  const typing = event.target.closest && event.target.closest('input, textarea, select, dialog, [contenteditable]');
  const elsewhere = document.activeElement !== document.body && !element.contains(document.activeElement);
  if (typing || elsewhere || event.ctrlKey || event.metaKey || event.altKey) return;
  const doings = {
    j: () => go(1), k: () => go(-1), h: () => go(-1, true), l: () => go(1, true),
    g: () => current() && mark(current(), 'good'), b: () => current() && mark(current(), 'bad'),
    n: () => current() && mark(current(), 'note'),
  };
  if (!doings[event.key]) return;
  event.preventDefault();
  doings[event.key]();
};
document.addEventListener('keydown', keys);

// Scrolls to the prompt that an address names, and again when figures above it have changed the layout, until the
// person moves.
let waiting = true;
for (const moved of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
  window.addEventListener(moved, () => { waiting = false; }, { once: true, passive: true });
}
const bring = () => { if (waiting) element.querySelector('.pair.linked')?.scrollIntoView({ block: 'center' }); };
watch('value', () => {
  for (const delay of [0, 500, 1500]) setTimeout(bring, delay);
  setTimeout(() => { waiting = false; }, 2000);
  const all = sides();
  const kept = place && all.find((side) => side.dataset.run === place.run && Number(side.dataset.position) === place.position);
  const shown = turned ? all[turned > 0 ? 0 : all.length - 2] : kept;
  place = null;
  turned = 0;
  if (shown) shown.focus({ preventScroll: shown === kept });
});
