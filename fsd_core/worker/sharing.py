"""Several workers on one database: their names, and the experiments whose runs they share."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import psutil

from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import Malformed, Misconfigured, WorkerRunning
from fsd_core.rules import Served
from fsd_core.storage.database.connection import parse, sqlite_path

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, WorkerView

HOME_WORKER = "home"
"""recorded as the worker of a shared run that a worker without a name has taken"""
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")


def check_worker_name(name: str, database_url: str) -> None:
    """Raise ``InvalidSetting`` if no worker can have this name, or if the database is one that a single worker uses."""
    if not _NAME.fullmatch(name) or name == HOME_WORKER:
        raise Malformed(
            f"A worker cannot be named {name[:60]!r}: expected 1 to 40 lower-case letters, digits, dots and hyphens, "
            f"such as gpu-1, and not '{HOME_WORKER}'."
        )
    if sqlite_path(parse(database_url)) is not None:
        raise Misconfigured(
            "Several workers need a database that several machines reach, and this one is a SQLite file: set "
            "FSD_DATABASE_URL to a PostgreSQL database, or leave out --on for the one worker of a home."
        )


def check_unique(name: str, workers: Sequence[WorkerView]) -> None:
    """Raise ``WorkerRunning`` while another process has this name. The caller holds the name's lock of its home."""
    other = next((worker for worker in workers if worker.name == name and worker.alive), None)
    if other is None:
        return
    if other.host == socket.gethostname() and (other.pid == os.getpid() or not psutil.pid_exists(other.pid)):
        return
    raise WorkerRunning(
        f"A worker named '{name}' (process {other.pid} on {other.host}) is running: choose another name. If it was "
        "killed, its name is free in ten seconds."
    )


def can_be_shared(experiment: ExperimentView) -> bool:
    """Whether the runs of an experiment may be measured by several workers at once.

    A calibration decides its next runs by the last, and a running engine would be under the load of several runs.
    """
    if isinstance(experiment.config, CalibrationConfig):
        return False
    return not any(isinstance(run.decoding.acceptance, Served) for run in experiment.runs)
