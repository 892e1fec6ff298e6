// Keeps in the page, by the id of the event, what the fields held when one was entered.
(...held) => {
  const kept = (window.fsdChoices ??= {})[$ID$] ??= {count: 0};
  kept.held = JSON.stringify(held);
}
