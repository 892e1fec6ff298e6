"""MLflow's pages over a real store with runs in it: MLflow as the supervisor starts it, behind the application."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.settings import Settings
from fsd_core.tracking import MlflowMirror, prepare_store
from fsd_core.worker.supervisor import mlflow_service, mlflow_socket
from tests.tools.mirrored import sync_pending
from tests.tools.plausible import add_finished, new_repository
from tests.tools.served import served
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import until

if TYPE_CHECKING:
    from mlflow import MlflowClient


@dataclass(frozen=True)
class Pages:
    """Where MLflow's pages are, the process that serves them, and the store under them."""

    url: str
    """below the application's"""
    socket: str
    """of MLflow's server, which the application asks"""
    pid: int
    settings: Settings
    client: MlflowClient
    experiment: str
    runs: list[str]
    """MLflow's ids of the runs that were mirrored, in the order of their settings"""

    @property
    def site(self) -> str:
        return self.url.removesuffix("/mlflow")

    @property
    def server(self) -> str:
        """MLflow's server itself, for ``send_request``."""
        return f"unix:{self.socket}"

    @property
    def folder(self) -> Path:
        return self.settings.mlflow_folder


@contextmanager
def pages_over(home: Path, **environment: str) -> Iterator[Pages]:
    """MLflow's pages over seven finished runs; ``environment`` is the application's."""
    from mlflow import MlflowClient

    settings = Settings(home=home)
    settings.make_folders()
    repository = new_repository(home)
    found = add_finished(repository, "What leniency costs", limit=4)
    prepare_store(settings)
    sync_pending(MlflowMirror(settings.resolved_mlflow_uri), repository)
    runs = [str(run.mlflow_run_id) for run in repository.experiment(found).runs]
    client = MlflowClient(settings.resolved_mlflow_uri)
    service = mlflow_service(settings, {**os.environ, "FSD_HOME": str(home)})
    service.keep_alive()
    try:
        with served(home, FSD_MLFLOW_UI="true", **environment) as (url, _):
            socket = until(lambda: mlflow_socket(home), "MLflow's server")
            assert service.pid is not None
            experiment = client.get_run(runs[0]).info.experiment_id
            yield Pages(f"{url}/mlflow", socket, service.pid, settings, client, experiment, runs)
    finally:
        service.ask_to_stop()
        assert service.wait(time.monotonic() + PATIENCE)
