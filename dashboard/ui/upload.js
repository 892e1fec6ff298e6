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

// What a person says that the fields of the file hold, by selects elsewhere on the page that name this element.
let fields = {};
document.addEventListener('change', ({target}) => {
  if (!target.dataset?.file || !element.closest(`#${CSS.escape(target.dataset.file)}`)) return;
  const all = document.querySelectorAll(`select[data-file="${CSS.escape(target.dataset.file)}"]`);
  fields = Object.fromEntries([...all].map((one) => [one.dataset.field, one.value]));
  send('check');
});

async function send(action, button) {
  const file = input.files[0];
  let data = '';
  let size = file ? file.size : 0;
  if (file && size <= LARGEST) {
    try { data = await bytes(file); } catch (error) { size = -1; }  // gone or changed since it was chosen
  }
  window.fsd.file = { action, file: file ? file.name : '', size, data, fields, button };  // the page's own script adds its fields
  trigger('click');
}

input.addEventListener('change', () => { fields = {}; if (input.files.length) send('check'); });
for (const name of ['dragover', 'dragleave', 'drop']) {
  element.addEventListener(name, (event) => {
    event.preventDefault();
    element.classList.toggle('over', name === 'dragover');
    const {files} = event.dataTransfer;
    if (name !== 'drop' || !files.length) return;
    input.files = files;
    fields = {};
    send('check');
  });
}
for (const button of buttons) button.addEventListener('click', () => send(button.dataset.act, button));
