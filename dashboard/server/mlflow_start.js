// Runs before MLflow's own scripts: its pages open on our experiments, in the mode that lists runs, and neither its assistant
// nor its notice on telemetry, which is off, stands before them. What somebody has chosen since stays.
const OPENED = [
  ['mlflow.workflowType_v1', '"machine_learning"'],
  ['mlflow.assistant.fab.autoOpenedOnFirstLoad_v1', 'true'],
  ['mlflow.assistant.panelOpen_v1', 'false'],
  ['mlflow.telemetry.info.alert.dismissed_v1', 'true'],
];
try {
  for (const [key, value] of OPENED) if (localStorage.getItem(key) === null) localStorage.setItem(key, value);
} catch (error) { /* a browser that keeps nothing shows them */ }
if (window.location.hash.length < 3) window.location.replace('#/experiments');
