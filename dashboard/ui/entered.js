// Stores in the page, by the event's id, the values of the fields when one was entered.
(...held) => {
  const kept = (window.fsdChoices ??= {})[$ID$] ??= {count: 0, pending: 0};
  if (!kept.pending) kept.held = JSON.stringify(held);
}
