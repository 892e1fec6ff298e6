"""MLflow's pages over a real store with runs in it, served as the supervisor serves them."""

from __future__ import annotations

import os
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.jobs.mlflow_service import free_port, mlflow_service
from fsd_core.settings import Settings
from fsd_core.tracking.mlflow_mirror import MlflowMirror, prepare_store
from tests.integration.worker_process import until
from tests.ui.plausible import add_finished, new_repository

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class Pages:
    """Where MLflow's pages are, the process that serves them, and the store under them."""

    url: str
    pid: int
    settings: Settings
    client: MlflowClient
    experiment: str
    runs: list[str]
    """MLflow's ids of the runs that were mirrored, in the order of their settings"""

    @property
    def folder(self) -> Path:
        return self.settings.mlflow_folder


@contextmanager
def pages_over(home: Path) -> Iterator[Pages]:
    """MLflow's pages over seven finished runs."""
    from mlflow import MlflowClient

    settings = Settings(home=home, mlflow_port=free_port(5300))
    settings.make_folders()
    repository = new_repository(home)
    found = add_finished(repository, "What leniency costs")
    prepare_store(settings)
    MlflowMirror(settings.resolved_mlflow_uri).sync_pending(repository)
    runs = [str(run.mlflow_run_id) for run in repository.experiment(found).runs]
    client = MlflowClient(settings.resolved_mlflow_uri)
    service = mlflow_service(settings, dict(os.environ))
    service.keep_alive()
    url = f"http://127.0.0.1:{service.port}"
    try:
        until(lambda: _answers(url), "MLflow's server", timeout=120)
        assert service.pid is not None
        yield Pages(url, service.pid, settings, client, client.get_run(runs[0]).info.experiment_id, runs)
    finally:
        service.ask_to_stop()
        assert service.wait(time.monotonic() + 20)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False
