() => {
  // Scrolls to the part that the address names once it is drawn, and again when figures above it have changed the
  // layout, until the person moves.
  const place = document.getElementById((window.fsdPlace || '').slice(1));
  if (!place) return;
  let waiting = true;
  for (const moved of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
    window.addEventListener(moved, () => { waiting = false; }, { once: true, passive: true });
  }
  for (const delay of [0, 500, 1500]) setTimeout(() => { if (waiting) place.scrollIntoView(); }, delay);
}
