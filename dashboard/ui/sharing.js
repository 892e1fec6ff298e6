// Links to copy, and figures as files. Listens on the document, because pages redraw their parts.
(() => {
  const address = (query) => {
    const url = new URL(window.location.href);
    url.hash = '';
    // Parameters that a Space's frame adds for itself: its theme, and a personal signature.
    for (const name of [...url.searchParams.keys()]) if (name.startsWith('__')) url.searchParams.delete(name);
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, value);
    return url.href.replaceAll('%2C', ',');
  };

  // Without a clipboard (an address without TLS), the text is displayed and selected, to be copied by hand.
  const offer = (button, text) => {
    const field = document.createElement('input');
    field.readOnly = true;
    field.value = text;
    field.className = 'fsd-copied';
    field.setAttribute('aria-label', 'Link');
    button.after(field);
    field.select();
    field.addEventListener('blur', () => field.remove());
    return document.execCommand('copy');
  };

  const copy = async (button) => {
    const own = button.dataset.address;  // of a file or a figure, and not of the page
    const text = own ? new URL(own, document.baseURI).href : address(JSON.parse(button.dataset.query || '{}'));
    const words = button.textContent;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      if (!offer(button, text)) return;
    }
    button.textContent = 'Copied';
    setTimeout(() => { button.textContent = words; }, 2000);
  };

  document.addEventListener('click', (event) => {
    const button = event.target.closest?.('button[data-copy-link]');
    if (button && button.textContent !== 'Copied') copy(button);
  });

  // The title of a figure, and its run or comparison: accuracy-against-throughput-run-3f9c1a2b.png
  const fileName = (plot) => {
    const title = new DOMParser().parseFromString(plot.layout?.title?.text || 'figure', 'text/html').body.textContent;
    const query = new URLSearchParams(window.location.search);
    const of = query.has('run') ? `run ${query.get('run').slice(0, 8)}` : '';
    return `${title} ${of}`.normalize('NFKD').toLowerCase().replace(/[^a-z0-9]+/g, '-').replace(/^-|-$/g, '').slice(0, 100);
  };

  // A figure for paper: dark text on white, whatever the theme of the page.
  const printed = (plot) => ({
    data: plot.data, frames: [], _context: {...plot._context},
    layout: {...plot.layout, paper_bgcolor: '#ffffff', plot_bgcolor: '#ffffff', width: 900,
      font: {...plot.layout.font, color: '#1b1d21'}},
  });

  // Plotly's own tool bar makes the file in the browser, of figures that no address of the server draws.
  const save = (plot, format) => {
    const paper = printed(plot);
    paper._context.toImageButtonOptions = {format, filename: fileName(plot), scale: format === 'png' ? 2 : 1};
    plot._fullLayout._modeBar.buttons.flat().find((button) => button.name === 'toImage').click(paper);
  };

  const part = (tag, format, label) => {
    const made = document.createElement(tag);
    made.textContent = format.toUpperCase();
    made.setAttribute('aria-label', label);
    return made;
  };

  const fileButton = (plot, format) => {
    const button = part('button', format, `Save this figure as ${format.toUpperCase()}`);
    button.type = 'button';
    button.addEventListener('click', () => save(plot, format));
    return button;
  };

  const fileLink = (query, format) => {
    const link = part('a', format, `Save this figure as ${format.toUpperCase()}`);
    link.href = `export/figure.${format}?${query}`;
    link.download = '';
    return link;
  };

  const embedButton = (query) => {
    const button = part('button', 'embed', 'Copy the address of this figure, to embed it');
    button.type = 'button';
    button.textContent = 'Embed';
    button.dataset.copyLink = '';
    button.dataset.address = `embed/figure?${query}`;
    return button;
  };

  const offerFiles = (plot) => {
    const query = plot.layout?.meta?.address || '';
    const next = plot.nextElementSibling;
    const offered = next?.classList.contains('fsd-figure-files') ? next : null;
    if (offered?.dataset.query === query) return;
    const row = document.createElement('div');
    row.className = 'fsd-figure-files';
    row.dataset.query = query;
    if (query) row.append(...['png', 'svg', 'pdf', 'html'].map((format) => fileLink(query, format)), embedButton(query));
    else row.append(...['png', 'svg'].map((format) => fileButton(plot, format)));
    offered?.remove();
    plot.after(row);
  };

  new MutationObserver(() => {
    for (const plot of document.querySelectorAll('.gradio-container .js-plotly-plot')) if (plot._context) offerFiles(plot);
  }).observe(document, {childList: true, subtree: true});
})();
