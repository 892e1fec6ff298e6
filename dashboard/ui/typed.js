// Counts a text field whose value has changed while somebody is in a field; the values of any other change are stored
// alone, for they came from the server.
(...now) => {
  const kept = (window.fsdChoices ??= {})[$ID$] ??= {count: 0, pending: 0}, said = JSON.stringify(now);
  const typing = document.activeElement?.matches('textarea, input');
  if (typing && kept.held !== said) kept.count += 1;
  if (typing || !kept.pending) kept.held = said;
  return String(kept.count);
}
