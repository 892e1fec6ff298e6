// What the button of a line or a card was answered stands beside it, also when its list is drawn anew. Where that line is
// gone, the sentence stands where the page has its messages.
window.fsdSaid = (() => {
  let said = null;
  const place = () => {
    const buttons = [...document.querySelectorAll('button[data-act][data-id]')]
      .filter((one) => said && one.dataset.id === said.id && one.dataset.kind === said.kind && one.checkVisibility());
    const button = buttons.find((one) => one.dataset.act === said.act) ?? buttons.at(-1);
    const [box] = document.querySelectorAll('.fsd-said');
    if (box && box.parentElement !== button?.parentElement) box.remove();
    if (button && !box?.isConnected) {
      const fresh = document.createElement('div');
      fresh.className = 'fsd-said';
      fresh.innerHTML = said.html;
      button.parentElement.append(fresh);
    }
    const text = document.querySelector('.fsd-said')?.textContent.trim();
    for (const one of document.querySelectorAll('.fsd-notice')) {
      if (!one.closest('.fsd-said')) one.hidden = one.textContent.trim() === text;
    }
  };
  const watch = new MutationObserver(place);
  return {
    say: (id, act, html, kind) => {
      document.querySelector('.fsd-said')?.remove();
      said = {id, act, html, kind};
      watch.observe(document.body, {childList: true, subtree: true});
      place();
    },
    clear: () => { watch.disconnect(); if (said) { said = null; place(); } },
  };
})();
