// Selecting a token by click or by keyboard displays why it was written. All of it is set as text, never as HTML.
(() => {
  const within = (rule) => (rule ? ` (${rule})` : "");
  const REASONS = {
    strict: () => "Drafted, and accepted by the strict test.",
    lenient: (rule) => `Drafted, and accepted only because the rule is lenient${within(rule)}: the strict test would have rejected it.`,
    correction: (rule) => `Recovered token: drawn in place of a token that was rejected${within(rule)}.`,
    bonus: () => "The whole draft was accepted, so the round brought one token more.",
    plain: () => "Written by one model alone: nothing was drafted.",
  };
  const number = (text) => (text === undefined ? null : Number(text));
  const probability = (value) => (value >= 0.001 ? value.toFixed(3) : value === 0 ? "0" : value.toExponential(1));
  let panel = null;
  let chosen = null;

  const add = (parent, tag, text) => parent.appendChild(Object.assign(document.createElement(tag), { textContent: text }));

  function hide() {
    if (chosen) chosen.classList.remove("chosen");
    chosen = null;
    if (panel) panel.hidden = true;
  }

  function show(token) {
    hide();
    chosen = token;
    token.classList.add("chosen");
    if (!panel) {
      panel = document.createElement("div");
      panel.id = "tok-detail";
      panel.setAttribute("role", "status");
    }
    document.querySelector(".gradio-container").appendChild(panel);
    panel.replaceChildren();
    const { kind, d, p, q, pr, rejected, likeliest } = token.dataset;
    const { rule, greedy } = token.closest(".toks").dataset;
    add(panel, "b", JSON.stringify(token.textContent));
    add(panel, "p", REASONS[kind](rule) + (rejected === undefined ? "" : ` Rejected: ${JSON.stringify(rejected)}.`));
    const would = greedy === undefined ? "The target's likeliest token here is" : "The target would have written";
    if (likeliest !== undefined) add(panel, "p", `${would} ${JSON.stringify(likeliest)}.`);
    const facts = panel.appendChild(document.createElement("dl"));
    const whose = kind === "correction" ? " of the rejected token" : "";
    const rows = [
      ["divergence", number(d), (x) => (Number.isFinite(x) ? x.toFixed(4) : "∞")],
      [`p, target${whose}`, number(p), probability],
      [`q, draft${whose}`, number(q), probability],
      [kind === "correction" ? "p, target, of this token" : "p, its own model", kind === "correction" || p === undefined ? number(pr) : null, probability],
    ];
    for (const [name, value, told] of rows) {
      if (value === null) continue;
      add(facts, "dt", name);
      add(facts, "dd", told(value));
    }
    panel.hidden = false;
    const frame = panel.offsetParent || document.documentElement;
    const origin = frame.getBoundingClientRect();
    const box = token.getClientRects()[0];
    const most = frame.clientWidth - panel.offsetWidth - 8;
    panel.style.left = `${Math.max(8, Math.min(box.left - origin.left, most))}px`;
    panel.style.top = `${box.bottom - origin.top + 8}px`;
  }

  const tokenOf = (target) => (target instanceof Element ? target.closest(".toks .tok") : null);

  document.addEventListener("focusin", (event) => {
    const token = tokenOf(event.target);
    if (token) show(token);
    else hide();
  });
  document.addEventListener("click", (event) => {
    const token = tokenOf(event.target);
    if (token) show(token);
    else if (!(panel && panel.contains(event.target))) hide();
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const token = tokenOf(event.target);
    if (!token) return;
    const all = [...token.closest(".toks").querySelectorAll(".tok")];
    const at = all.indexOf(token);
    const next = { ArrowRight: at + 1, ArrowLeft: at - 1, Home: 0, End: all.length - 1 }[event.key];
    if (next === undefined || !all[next]) return;
    event.preventDefault();
    all[next].focus();
  });
})();
