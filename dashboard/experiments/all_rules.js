// Unfolds the rules to all that there are, and folds them to the chosen ones again. Nothing is asked of the server. What a
// person has just unticked stays where it is, so that nothing moves under the pointer.
const button = element.querySelector('button');
const rules = element.closest('#rules');
const all = button.textContent;
rules.addEventListener('change', (event) => { event.target.closest('label').dataset.touched = ''; });
button.addEventListener('click', () => {
  const open = rules.classList.toggle('all');
  for (const label of rules.querySelectorAll('label')) delete label.dataset.touched;
  button.setAttribute('aria-expanded', open);
  button.textContent = open ? 'Only the chosen ones' : all;
});
