// The chosen file: its bytes go to the server as base64 in an event, so nothing is stored on a disk. The server decides
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

async function send(act) {
  const file = input.files[0];
  if (!file) { trigger('click', { act, file: '', size: 0, data: '' }); return; }
  let data = '';
  let size = file.size;
  if (size <= LARGEST) {
    try { data = await bytes(file); } catch (error) { size = -1; }  // gone or changed since it was chosen
  }
  for (const button of buttons) {
    button.disabled = true;
    setTimeout(() => { button.disabled = false; }, 1000);
  }
  trigger('click', { act, file: file.name, size, data });
}

input.addEventListener('change', () => { if (input.files.length) send('check'); });
for (const button of buttons) button.addEventListener('click', () => send(button.dataset.act));
