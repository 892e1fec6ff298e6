"""What a browser keeps of the job that it began last: scripts of the Playground's events.

The browser names the job, so that a page that is loaded anew before the server has answered finds it all the same. It
keeps which it began last: the tab first, since another tab may have begun another one since. One that was refused is
forgotten, and the one before it is the last again.
"""

ASK = """() => {
  const id = [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
  try { sessionStorage.setItem('fsd-lab-asked', `${id} ${Date.now()}`); } catch { /* a browser that keeps nothing */ }
  return id;
}"""
"""names the next job"""

REMEMBER = """(job, asked) => {
  try {
    if (job && job === asked) for (const kept of [sessionStorage, localStorage]) kept.setItem('fsd-lab-job', job);
    if (!asked || job === asked) sessionStorage.removeItem('fsd-lab-asked');
  } catch { /* a browser that keeps nothing */ }
}"""
"""keeps the id of the job that has begun

Gradio calls this too where the page is left while the answer is on its way: then neither is the job the one that was
asked for, nor has the server taken that id back, and it is the page that is loaded anew that asks for it.
"""

RESUMED = """(job) => {
  try {
    if (job) sessionStorage.removeItem('fsd-lab-asked');
    for (const storage of [sessionStorage, localStorage]) if (job) storage.setItem('fsd-lab-job', job);
  } catch { /* a browser that keeps nothing */ }
}"""
"""keeps the id of the job that a page that was loaded anew has found"""

RECALL = """() => {
  try {
    const last = sessionStorage.getItem('fsd-lab-job') || localStorage.getItem('fsd-lab-job') || '';
    const [id, at] = (sessionStorage.getItem('fsd-lab-asked') || '').split(' ');
    return [last, Date.now() - at < 60000 ? id : ''];
  } catch { return ['', '']; }
}"""
"""the last job's id, and that of one that was asked for within the last minute and not yet answered"""
