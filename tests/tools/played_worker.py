"""A test that plays the worker, with models of its own."""

from __future__ import annotations

from collections.abc import Callable

from fsd_core.evaluation.runner import execute_runs
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.records import ExperimentView
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import JobRow

_DAY = 86_400.0


def claimed(repository: Repository, experiment: str) -> JobRow:
    """The job of an experiment that waits, taken for longer than any test lasts. What waits before it ends."""
    while (job := repository.claim(("experiment",), lease_seconds=_DAY)) and job.id != experiment:
        repository.finish_job(job.id, str(job.claim_token), "finished")
    assert job is not None
    return job


def measured(repository: Repository, load: Callable[..., LoadedPair]) -> ExperimentView:
    """The newest experiment, which waits, when all its runs are measured on what ``load`` returns."""
    experiment = repository.experiments(limit=1)[0].id
    job = claimed(repository, experiment)
    execute_runs(repository, [run.id for run in repository.experiment(experiment).runs], load)
    repository.finish_job(job.id, str(job.claim_token), "finished")
    return repository.experiment(experiment)
