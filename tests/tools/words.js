// The words that a person reads on the first screen beside data and controls: not those of tables, figures, tokens, tiles and
// lists to choose from, names of fields and buttons, what is typed, and the bar at the top.
() => {
  const DATA = 'table, svg, .js-plotly-plot, .toks, .lane, .fsd-tile, .pick, .prompt, pre, .run-question, .fsd-bar, .fsd-right, '
    + 'option, [role=listbox], button, [data-testid=block-info], script, style, noscript, footer, .fsd-facts, .exp-name, h1, .rev-words';
  const seen = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const part = walker.currentNode.parentElement;
    if (!part || part.closest(DATA) || !part.checkVisibility({ visibilityProperty: true, opacityProperty: true })) continue;
    const box = part.getBoundingClientRect();
    if (box.width < 2 || box.height < 2 || box.top > innerHeight) continue;
    seen.push(...(walker.currentNode.textContent.match(/\p{L}{2,}/gu) ?? []));
  }
  return seen;
}
