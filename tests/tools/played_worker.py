"""A test that plays the worker, with models of its own."""

from __future__ import annotations

from collections.abc import Callable

from fsd_core.evaluation.runner import execute_runs
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.database.repository import Repository
from fsd_core.storage.records import ExperimentView
from tests.tools.sizes import PATIENCE


def measured(repository: Repository, load: Callable[..., LoadedPair]) -> ExperimentView:
    """The newest experiment, which waits, when all its runs are measured on what ``load`` returns."""
    experiment = repository.experiments(limit=1)[0].id
    job = repository.claim(("experiment",), lease_seconds=PATIENCE)
    assert job is not None
    assert job.claim_token is not None
    execute_runs(repository, [run.id for run in repository.experiment(experiment).runs], load)
    repository.finish_job(job.id, job.claim_token, "finished")
    return repository.experiment(experiment)
