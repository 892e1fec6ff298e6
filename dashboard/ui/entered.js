// Stores in the page, by the event's id, the values of the fields when one was entered; after the input, if there is
// one, that comes in the same moment.
(...held) => {
  const kept = (window.fsdChoices ??= {})[$ID$] ??= {count: 0, pending: 0};
  setTimeout(() => { if (!kept.pending) kept.held = JSON.stringify(held); }, 0);
}
