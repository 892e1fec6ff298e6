// Stores the id of the job that a reloaded page has found.
(job) => {
  try {
    if (job) sessionStorage.removeItem('fsd-lab-asked');
    for (const storage of [sessionStorage, localStorage]) if (job) storage.setItem('fsd-lab-job', job);
  } catch { /* a browser that keeps nothing */ }
}
