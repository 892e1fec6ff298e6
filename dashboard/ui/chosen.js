// Stores in the page, by the event's id, the values of the fields at a choice, and the number of choices so far. An
// input that is no choice returns the same number.
(...now) => {
  const kept = window.fsdChoices[$ID$], said = JSON.stringify(now);
  kept.pending -= 1;
  if (kept.held !== said) kept.count += 1;
  kept.held = said;
  return String(kept.count);
}
