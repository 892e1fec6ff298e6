// Keeps in the page, by the id of the event, what the fields held when one was chosen, and how many choices there have
// been. An input that is no choice answers with the same number.
(...now) => {
  const kept = (window.fsdChoices ??= {})[$ID$] ??= {count: 0}, said = JSON.stringify(now);
  if (kept.held !== said) kept.count += 1;
  kept.held = said;
  return String(kept.count);
}
