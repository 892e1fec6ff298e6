// The field has the whole address to copy.
(link) => new URL(link || "?", window.location.href).href
