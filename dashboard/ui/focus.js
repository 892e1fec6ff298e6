// The focus stays on a list of choices after a choice. Gradio's list gives it up, so that Tab would begin at the top of the
// page. It comes back without an event, which would open the list again.
(() => {
  const LEAVING = ['Tab', 'Shift'];
  let returning = false;
  let choosing = false;
  const isList = (one) => one instanceof HTMLInputElement && one.getAttribute('role') === 'combobox';

  document.addEventListener('pointerdown', ({target}) => {
    choosing = target instanceof Element && Boolean(target.closest('[role=option]'));
    // A press on a closed list that has the focus opens it, as one on any other list does.
    const list = document.activeElement;
    if (list === target && isList(list) && list.getAttribute('aria-expanded') !== 'true') list.blur();
  }, true);
  document.addEventListener('keydown', (event) => {
    choosing = event.key === 'Enter' && isList(event.target);
    // Gradio opens a list at any key, also at that which leaves it.
    if (LEAVING.includes(event.key) && isList(event.target)) event.stopPropagation();
  }, true);
  for (const kind of ['focus', 'focusin'])
    document.addEventListener(kind, (event) => { if (returning) event.stopImmediatePropagation(); }, true);
  document.addEventListener('focusout', ({target, relatedTarget}) => {
    if (!choosing || relatedTarget || !isList(target)) return;
    choosing = false;
    setTimeout(() => {
      if (document.activeElement !== document.body || !target.isConnected) return;
      returning = true;
      target.focus({preventScroll: true});
      returning = false;
    });
  }, true);
})();
