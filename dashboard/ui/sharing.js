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
    const text = address(JSON.parse(button.dataset.query || '{}'));
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

  // Plotly's own tool bar makes the file in the browser.
  const save = (plot, format) => {
    plot._context.toImageButtonOptions = {format, filename: fileName(plot), scale: format === 'png' ? 2 : 1};
    plot.querySelector('.modebar-btn[data-title^="Download plot"]')?.click();
  };

  const offerFiles = (plot) => {
    if (plot.nextElementSibling?.classList.contains('fsd-figure-files')) return;
    const row = document.createElement('div');
    row.className = 'fsd-figure-files';
    for (const format of ['png', 'svg']) {
      const button = document.createElement('button');
      button.type = 'button';
      button.textContent = format.toUpperCase();
      button.setAttribute('aria-label', `Save this figure as ${format.toUpperCase()}`);
      button.addEventListener('click', () => save(plot, format));
      row.append(button);
    }
    plot.after(row);
  };

  new MutationObserver(() => {
    for (const plot of document.querySelectorAll('.gradio-container .js-plotly-plot')) if (plot._context) offerFiles(plot);
  }).observe(document, {childList: true, subtree: true});
})();
