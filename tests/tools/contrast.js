// Every text on the page whose contrast is below WCAG AA: 4.5, or 3 for large text. Colours are blended over what is
// behind them; controls that are switched off are exempt, as in WCAG.
() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => top.slice(0, 3).map((c, i) => c * top[3] + below[i] * (1 - top[3]));
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (a, b) => {
    const [light, dark] = [luminance(a), luminance(b)].sort((x, y) => y - x);
    return (light + 0.05) / (dark + 0.05);
  };
  const behind = (element) => {
    const layers = [];
    for (let e = element; e; e = e.parentElement) {
      const colour = rgba(getComputedStyle(e).backgroundColor);
      if (colour[3]) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reduceRight((below, top) => over(top, below), [255, 255, 255]);
  };
  const opacity = (element) => {
    let found = 1;
    for (let e = element; e; e = e.parentElement) found *= Number(getComputedStyle(e).opacity);
    return found;
  };
  const seen = new Map();
  const judge = (element, text, style) => {
    const box = element.getBoundingClientRect();
    if (!box.width || !box.height || style.visibility !== "visible" || element.closest(":disabled, [aria-hidden=true]")) return;
    const clear = opacity(element);
    if (clear < 0.05) return;
    const [r, g, b, a] = rgba(element instanceof SVGElement ? style.fill : style.color);
    const below = behind(element);
    const found = ratio(over([r, g, b, a * clear], below), below);
    const size = parseFloat(style.fontSize);
    const least = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
    if (found >= least) return;
    const name = `${element.tagName.toLowerCase()}.${[...element.classList].filter((c) => !c.startsWith("svelte")).join(".")}`;
    if (!seen.has(name)) seen.set(name, `${name} “${text.trim().slice(0, 40)}” ${found.toFixed(2)} of ${least}`);
  };
  let texts = 0;
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    if (!node.data.trim() || ["SCRIPT", "STYLE", "NOSCRIPT", "TITLE", "TEXTAREA"].includes(element.tagName)) continue;
    texts += 1;
    judge(element, node.data, getComputedStyle(element));
  }
  for (const field of document.querySelectorAll("input:not([type=checkbox], [type=radio]), textarea")) {
    if (field.value) judge(field, field.value, getComputedStyle(field));
    else if (field.placeholder) judge(field, field.placeholder, { ...styles(field, "::placeholder") });
  }
  function styles(element, part) {
    const of = getComputedStyle(element, part);
    return { visibility: of.visibility, color: of.color, fontSize: of.fontSize, fontWeight: of.fontWeight };
  }
  return { texts, failing: [...seen.values()] };
}
