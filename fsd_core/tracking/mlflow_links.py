"""URLs of MLflow's pages, built without MLflow."""

from __future__ import annotations

from urllib.parse import quote

OUR_RUN = "../runs?run="
"""link from MLflow's pages, which lie below ours, to our page of a run; its id is appended"""


def run_url(base: str, experiment_id: str | None, run_id: str) -> str:
    """Return the URL of a run's page. Without the id of MLflow's experiment, MLflow redirects to the page."""
    base, run = base.rstrip("/"), quote(run_id, safe="")
    if experiment_id is None:
        return f"{base}/#/runs/{run}"
    return f"{base}/#/experiments/{quote(experiment_id, safe='')}/runs/{run}"
