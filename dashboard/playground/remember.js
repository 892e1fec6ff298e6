// Keeps the id of the job that has begun.
//
// Gradio calls this too where the page is left while the answer is on its way: then neither is the job the one that was
// asked for, nor has the server taken that id back, and it is the page that is loaded anew that asks for it.
(job, asked) => {
  try {
    if (job && job === asked) for (const kept of [sessionStorage, localStorage]) kept.setItem('fsd-lab-job', job);
    if (!asked || job === asked) sessionStorage.removeItem('fsd-lab-asked');
  } catch { /* a browser that keeps nothing */ }
}
