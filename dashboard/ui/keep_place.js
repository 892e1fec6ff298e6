let held = null, left = [];
const boxes = () => [...element.querySelectorAll('.fsd-scroll')];
const focusable = () => [...element.querySelectorAll('a, button')];
const lasting = (one) => one.dataset.keep ?? one.dataset.id;  // of what does something else each time
const named = (one) => [one.dataset.id, one.getAttribute('href'), one.textContent].join(' ');
element.addEventListener('scroll', () => { left = boxes().map((box) => box.scrollLeft); }, true);
document.addEventListener('pointerdown', ({target}) => {
  const focused = document.activeElement;  // pressed once more, it gets no other event
  if (!element.contains(focused) || !focused.contains(target)) held = null;
});
document.addEventListener('focusin', (event) => {
  const one = element.contains(event.target) ? event.target.closest('a, button') : null;
  held = one && {name: named(one), id: lasting(one)};
});
watch('value', () => {
  boxes().forEach((box, i) => { box.scrollLeft = left[i] ?? 0; });
  if (!held || element.contains(document.activeElement)) return;
  const {name, id} = held, all = focusable();
  const again = all.find((one) => named(one) === name) || all.find((one) => id && lasting(one) === id);
  again?.focus({preventScroll: true});
});
