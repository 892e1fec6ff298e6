// Stores the id of the job that has started.
//
// Gradio also calls this when the page is left before the answer arrives. Then the job is not the requested one, and
// the server has not taken that id back. The reloaded page asks for it.
(job, asked) => {
  try {
    if (job && job === asked) for (const kept of [sessionStorage, localStorage]) kept.setItem('fsd-lab-job', job);
    if (!asked || job === asked) sessionStorage.removeItem('fsd-lab-asked');
  } catch { /* a browser that keeps nothing */ }
}
