// Chooses the id of the next job.
() => {
  const id = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  try { sessionStorage.setItem('fsd-lab-asked', `${id} ${Date.now()}`); } catch { /* a browser that keeps nothing */ }
  return id;
}
