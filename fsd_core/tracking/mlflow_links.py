"""Addresses of MLflow's pages, made without MLflow."""

from __future__ import annotations

from urllib.parse import quote

OUR_RUN = "../runs?run="
"""leads from MLflow's pages, which lie below ours, to our page of a run; its id follows"""


def run_url(base: str, experiment_id: str | None, run_id: str) -> str:
    """The page of a run; without the id of MLflow's experiment, the address that leads to it."""
    base, run = base.rstrip("/"), quote(run_id, safe="")
    if experiment_id is None:
        return f"{base}/#/runs/{run}"
    return f"{base}/#/experiments/{quote(experiment_id, safe='')}/runs/{run}"
