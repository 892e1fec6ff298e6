() => {
  // What the address names on the page is brought into view once it is drawn, and again when figures above it have
  // taken their room, until the person moves.
  const place = document.getElementById((window.fsdPlace || '').slice(1));
  if (!place) return;
  let waiting = true;
  for (const moved of ['wheel', 'touchmove', 'keydown', 'pointerdown']) {
    window.addEventListener(moved, () => { waiting = false; }, { once: true, passive: true });
  }
  for (const delay of [0, 500, 1500]) setTimeout(() => { if (waiting) place.scrollIntoView(); }, delay);
}
