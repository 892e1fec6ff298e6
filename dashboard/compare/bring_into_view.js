// Scrolls to the part that the address names once it is drawn, and again when what is drawn above it has changed the
// layout, until the person moves.
const SETTLED_MS = 10000;
let waiting = true;
for (const moved of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
  window.addEventListener(moved, () => { waiting = false; }, { once: true, passive: true });
}
const bring = () => { if (waiting) document.getElementById(window.location.hash.slice(1))?.scrollIntoView(); };
const begin = () => {
  bring();
  const layout = new ResizeObserver(bring);
  layout.observe(document.querySelector('gradio-app'));
  setTimeout(() => { waiting = false; layout.disconnect(); }, SETTLED_MS);
};
// A part that was hidden is there with what it shows.
if (element.textContent.trim()) begin(); else watch('value', begin);
