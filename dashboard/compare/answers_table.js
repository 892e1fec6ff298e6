// A heading asks for its order: the first click for the best first, the next one for the opposite.
element.addEventListener('click', (event) => {
  const button = event.target.closest('button[data-sort]');
  if (!button) return;
  window.fsd.want({'answers sorted': button.dataset.sort});
  trigger('click');
});
