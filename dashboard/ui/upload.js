// The chosen or dropped file: its bytes go to the server as base64 in an act (view.js), so nothing is stored on a disk. The server decides
// everything. The size is checked here so that no large file is read in vain.
const LARGEST = $LARGEST$;
const input = element.querySelector('input[type=file]');
const buttons = [...element.querySelectorAll('button[data-act]')];

function bytes(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.addEventListener('load', () => resolve(reader.result.slice(reader.result.indexOf(',') + 1)));
    reader.addEventListener('error', () => reject(reader.error));
    reader.readAsDataURL(file);
  });
}

// What a person says that the fields of the file hold, and of its scorer, by selects elsewhere on the page that name this
// element. So do further buttons.
let fields = {}, scorer = '';
const isOwn = (other) => other?.dataset?.file && element.closest(`#${CSS.escape(other.dataset.file)}`);
document.addEventListener('change', ({target}) => {
  if (!isOwn(target)) return;
  const all = [...document.querySelectorAll(`select[data-file="${CSS.escape(target.dataset.file)}"]`)];
  fields = Object.fromEntries(all.filter((one) => one.dataset.field).map((one) => [one.dataset.field, one.value]));
  scorer = all.find((one) => !one.dataset.field)?.value ?? '';
  send('check');
});
document.addEventListener('click', ({target}) => {
  const button = target.closest?.('button[data-file]');
  if (isOwn(button)) send(button.dataset.act, button);
});

async function send(action, button) {
  const file = input.files[0];
  let data = '';
  let size = file ? file.size : 0;
  if (file && size <= LARGEST) {
    try { data = await bytes(file); } catch (error) { size = -1; }  // gone or changed since it was chosen
  }
  const margin = button?.dataset.margin ?? '';
  // The page's own script adds its fields.
  window.fsd.file = { action, file: file ? file.name : '', size, data, fields, scorer, margin, button };
  trigger('click');
}

const anew = () => { fields = {}; scorer = ''; send('check'); };
input.addEventListener('change', () => { if (input.files.length) anew(); });
for (const name of ['dragover', 'dragleave', 'drop']) {
  element.addEventListener(name, (event) => {
    event.preventDefault();
    element.classList.toggle('over', name === 'dragover');
    const {files} = event.dataTransfer;
    if (name !== 'drop' || !files.length || input.matches(':disabled')) return;
    input.files = files;
    anew();
  });
}
for (const button of buttons) button.addEventListener('click', () => send(button.dataset.act, button));
