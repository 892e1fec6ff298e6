// Hints of words and marks: their title, displayed on hover, focus and touch, because the browser's own needs a mouse.
// It is set as text, never as HTML.
(() => {
  const SELECTOR = ".fsd-term, .fsd-mark";
  let panel = null;
  let shown = null;

  function hide() {
    if (shown) shown.removeAttribute("aria-describedby");
    shown = null;
    if (panel) panel.hidden = true;
  }

  function show(word) {
    if (word === shown) return;
    hide();
    if (word.title) {
      word.dataset.about = word.title; // else the browser shows its own hint beside this one
      word.removeAttribute("title");
    }
    if (!word.dataset.about) return;
    if (!panel) {
      panel = document.createElement("div");
      panel.id = "fsd-about";
      panel.setAttribute("role", "tooltip");
    }
    const frame = document.querySelector(".gradio-container");
    if (!frame) return;
    frame.appendChild(panel);
    panel.textContent = word.dataset.about;
    panel.hidden = false;
    shown = word;
    word.setAttribute("aria-describedby", "fsd-about");
    const parent = panel.offsetParent || document.documentElement;
    const origin = parent.getBoundingClientRect();
    const box = word.getBoundingClientRect();
    const most = parent.clientWidth - panel.offsetWidth - 8;
    panel.style.left = `${Math.max(8, Math.min(box.left - origin.left, most))}px`;
    panel.style.top = `${box.bottom - origin.top + 6}px`;
  }

  const wordOf = (target) => (target instanceof Element ? target.closest(SELECTOR) : null);

  document.addEventListener("pointerover", (event) => {
    const word = event.pointerType === "mouse" ? wordOf(event.target) : null;
    if (word) show(word);
    else if (shown && !shown.isConnected) hide(); // its element was redrawn
  });
  document.addEventListener("pointerout", (event) => {
    const word = event.pointerType === "mouse" ? wordOf(event.target) : null;
    if (word && word === shown && word !== document.activeElement && !word.contains(event.relatedTarget)) hide();
  });
  for (const kind of ["focusin", "click"])
    document.addEventListener(kind, (event) => {
      const word = wordOf(event.target);
      if (word) show(word);
      else hide();
    });
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
  });
})();
