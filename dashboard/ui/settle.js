// An input event may fire before its value has reached the other side of the page. Until it has, an entry of a field
// (entered.js) must not store the values: they may hold the choice that is still to be counted.
() => {
  const kept = (window.fsdChoices ??= {})[$ID$] ??= {count: 0, pending: 0};
  kept.pending += 1;
  return new Promise((done) => setTimeout(() => done([]), 40));
}
