// Only the browser knows which runs are ticked. The ticks survive filtering and paging and need no round trip.
const chosen = new Set();
const sync = () => {
  for (const box of element.querySelectorAll('input[data-run]')) {
    box.checked = chosen.has(box.dataset.run);
    box.closest('tr').classList.toggle('chosen', box.checked);
  }
  const link = element.querySelector('a[data-compare]');
  if (!link) return;
  link.textContent = chosen.size ? `Compare selected (${chosen.size})` : 'Select runs to compare them';
  if (chosen.size) link.href = 'compare?runs=' + [...chosen].join(',');
  else link.removeAttribute('href');
};
element.addEventListener('change', (event) => {
  const run = event.target.dataset.run;
  if (!run) return;
  if (event.target.checked) chosen.add(run); else chosen.delete(run);
  sync();
});
watch('value', sync);
sync();
