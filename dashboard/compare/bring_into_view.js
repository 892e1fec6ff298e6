// Scrolls to the part that the address names once it is drawn, and again when figures above it have changed the layout,
// until the person moves.
let waiting = true;
for (const moved of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
  window.addEventListener(moved, () => { waiting = false; }, { once: true, passive: true });
}
const bring = () => { if (waiting) document.getElementById(window.location.hash.slice(1))?.scrollIntoView(); };
watch('value', () => {
  for (const delay of [0, 500, 1500]) setTimeout(bring, delay);
  setTimeout(() => { waiting = false; }, 2000);
});
