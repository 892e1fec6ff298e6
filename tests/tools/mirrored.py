"""Copies in MLflow of what ended, without a worker that makes them."""

from __future__ import annotations

from fsd_core.storage.repository import Repository
from fsd_core.tracking import MlflowMirror


def sync_pending(mirror: MlflowMirror, repository: Repository) -> int:
    """Copy all ended runs that MLflow lacks and return their number. Raises ``TrackingUnavailable``."""
    return len([mirror.sync(repository, run.id) for run in repository.unsynced_runs()])
