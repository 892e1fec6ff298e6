(link) => {
  // The address bar follows the choice without a reload. The field has the whole address to copy.
  window.fsdPlace ??= window.location.hash;
  const url = new URL(link || "?", window.location.href);
  window.history.replaceState(window.history.state, "", url);
  return url.href;
}
