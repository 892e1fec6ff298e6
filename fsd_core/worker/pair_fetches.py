"""Fetches of the models of pairs, which the worker does one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from fsd_core.errors import DataDamaged, UnknownName, WrongState
from fsd_core.models.local_models import missing_models
from fsd_core.models.model_pairs import get_pair, pair_title
from fsd_core.storage.messages import PairFetchJob
from fsd_core.storage.records import UNENDED

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import JobView

_PRIORITY = 5  # before experiments that have not begun


def pair_fetches(repository: Repository) -> Mapping[str, JobView]:
    """Return the newest fetch of each pair, by the name under which its runs are recorded."""
    newest: dict[str, JobView] = {}
    for job in repository.latest_jobs(PairFetchJob.kind):
        try:
            newest.setdefault(PairFetchJob.read(job.payload).pair, job)
        except DataDamaged:  # of another version
            continue
    return newest


def request_pair_fetch(repository: Repository, pair: str) -> JobView:
    """Let the worker fetch what is missing of a pair, unless a job does so already. Returns the job.

    A fetch that was stopped goes on where it was. Raises ``InvalidSetting`` if nothing is missing, and what
    ``get_pair`` raises.
    """
    if not missing_models(get_pair(pair)):
        raise WrongState(f"Nothing of {pair_title(pair)} is missing: all of its models are here.")
    job = pair_fetches(repository).get(pair)
    if job is None or job.status not in UNENDED:
        job = repository.job(repository.enqueue(PairFetchJob(pair), _PRIORITY))
    return job


def cancel_pair_fetch(repository: Repository, pair: str) -> None:
    """Stop the fetch of a pair. What has arrived is kept. Raises ``UnknownName`` if nothing fetches it."""
    job = pair_fetches(repository).get(pair)
    if job is None or job.status not in UNENDED:
        raise UnknownName(f"Nothing of {pair_title(pair)} is being fetched now.")
    repository.request_cancel(job.id)
