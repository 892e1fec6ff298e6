// Reading prompts by key, and marking outputs. The server gets the output and the mark that is wanted. A note is typed
// into a dialog of the browser. After an answer, the output that had the focus gets it back.
let place = null;   // the output that has the focus
let turned = null;  // while a page is turned by key: how far, the first output before, and how many prompts to go on by

const sides = () => [...element.querySelectorAll('.side[data-run]')];
const current = () => document.activeElement && element.contains(document.activeElement)
  ? document.activeElement.closest('.side[data-run]') : null;
const at = (side) => ({ run: side.dataset.run, position: Number(side.dataset.position) });
const find = ({ run, position }) => sides().find((side) => side.dataset.run === run && Number(side.dataset.position) === position);

function send(side, change) {
  window.fsd.act('mark', { ...at(side), ...change });
  trigger('click');
}

function turn(step) {
  if (turned) { if (turned.step === step) turned.more += 1; return; }
  const { page, pages } = document.querySelector('[data-pager=' + $PAGER$ + ']').dataset;
  if (Number(page) + step < 0 || Number(page) + step >= Number(pages)) return;
  turned = { step, from: at(sides()[0]), more: 0 };
  window.fsd.turn($PAGER$, step);
  trigger('click');
}

// Asks for words on an output, below what is quoted of it, and hands them on. They are a draft until they are stored.
function ask(side, { name, label: told, quote, value: before, yes }, done) {
  const dialog = document.createElement('dialog'), draft = `${name} on prompt ${at(side).position + 1}#${side.dataset.run}`;
  dialog.className = 'fsd-dialog';
  dialog.setAttribute('aria-label', name);
  const form = document.createElement('form');
  form.method = 'dialog';
  const label = document.createElement('p');
  label.textContent = `${told}, kept with your name`;
  const area = document.createElement('textarea');
  area.value = window.fsdDrafts.draft(draft)?.text ?? before;
  area.dataset.draft = draft;
  area.rows = 4;
  area.maxLength = $LONGEST$;
  area.setAttribute('aria-label', told);
  const row = document.createElement('div');
  for (const [value, words] of [['', 'Cancel'], ['yes', yes]]) {
    const choice = document.createElement('button');
    choice.value = value;
    choice.textContent = words;
    row.append(choice);
  }
  form.append(label);
  if (quote) {
    const quoted = document.createElement('blockquote');
    quoted.textContent = quote;
    form.append(quoted);
  }
  form.append(area, row);
  dialog.append(form);
  dialog.addEventListener('close', () => {
    if (dialog.returnValue === 'yes') done(area.value);
    else window.fsdDrafts.discard(draft);
    dialog.remove();
    find(at(side))?.focus({ preventScroll: true });
  });
  document.body.append(dialog);
  dialog.showModal();
  // It opens at the answer, as far as the window has room for it.
  const from = side.getBoundingClientRect(), box = dialog.getBoundingClientRect();
  const within = (wanted, size, room) => Math.max(12, Math.min(wanted, room - size - 12));
  dialog.style.margin = '0';
  dialog.style.left = `${within(from.left, box.width, innerWidth)}px`;
  dialog.style.top = `${within(from.bottom - box.height, box.height, innerHeight)}px`;
}

function note(side, button) {
  ask(side, { name: 'Note', label: 'Note on this output', value: button.dataset.note, yes: 'Keep the note' },
    (words) => send(side, { note: words }));
}

// What is selected of an output: where it begins, in characters, and its text.
function passage(side) {
  const text = side.querySelector('pre'), selection = getSelection();
  if (!selection.rangeCount || selection.isCollapsed) return { start: 0, quote: '' };
  const range = selection.getRangeAt(0);
  if (!text.contains(range.startContainer) || !text.contains(range.endContainer)) return { start: 0, quote: '' };
  const before = document.createRange();
  before.selectNodeContents(text);
  before.setEnd(range.startContainer, range.startOffset);
  return { start: [...before.toString()].length, quote: [...range.toString()].slice(0, $QUOTE$).join('') };
}

function comment(side) {
  const { start, quote } = passage(side);
  const label = quote ? 'Comment on this passage' : 'Comment on this answer';
  ask(side, { name: 'Comment', label, quote, value: '', yes: 'Say it' }, (words) => {
    window.fsd.act('comment on', { ...at(side), start, quote, words });
    trigger('click');
  });
}

function mark(side, kind) {
  const button = side.querySelector(`button[data-mark="${kind}"]`);
  if (!button || button.disabled) return;
  if (kind === 'note') note(side, button);
  else if (kind === 'comment') comment(side);
  else send(side, { verdict: button.getAttribute('aria-pressed') === 'true' ? 'none' : kind });
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

// A press of the button leaves the selection as it is.
element.addEventListener('mousedown', (event) => { if (event.target.closest('button[data-mark="comment"]')) event.preventDefault(); });
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
    n: () => current() && mark(current(), 'note'), c: () => current() && mark(current(), 'comment'),
  };
  if (!doings[event.key]) return;
  event.preventDefault();
  doings[event.key]();
};
document.addEventListener('keydown', keys);
document.addEventListener('pointerdown', () => { place = null; });
document.addEventListener('focusin', () => { place = current() && at(current()); });

// Scrolls to the prompt that an address names, and again when figures above it have changed the layout, until the
// person moves.
let waiting = true;
for (const moved of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
  window.addEventListener(moved, () => { waiting = false; }, { once: true, passive: true });
}
const bring = () => { if (waiting) (element.querySelector('mark.quoted') || element.querySelector('.pair.linked'))?.scrollIntoView({ block: 'center' }); };
watch('value', () => {
  for (const delay of [0, 500, 1500]) setTimeout(bring, delay);
  setTimeout(() => { waiting = false; }, 2000);
  const all = sides(), elsewhere = document.activeElement !== document.body && !element.contains(document.activeElement);
  const again = place && find(place);
  if (turned && all.length && !find(turned.from)) {
    const { step, more } = turned;
    turned = null;
    if (!elsewhere) all[step > 0 ? Math.min(2 * more, all.length - 2) : Math.max(all.length - 2 - 2 * more, 0)].focus();
  } else if (again && !elsewhere) again.focus({ preventScroll: true });
});
