"""A run among others: those that were measured with it, on the same prompts, and on which machine."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsd_core.storage.records import same_weights

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView


def company(repository: Repository, run: RunView, acceptance: str | None = None) -> list[RunView]:
    """The measured runs of a run's experiment with its pair and weights, task and seed, of one rule if it is named."""
    if run.experiment_id is None:
        return []
    found = repository.runs(experiment_id=run.experiment_id, task=run.task, acceptance=acceptance, limit=None)
    return alike(run, (other for other in found if other.metrics))


def alike(run: RunView, others: Iterable[RunView]) -> list[RunView]:
    """Those of others that have a run's pair and weights, task and seed."""
    same = run.pair, run.task, run.seed
    found = [other for other in others if (other.pair, other.task, other.seed) == same]
    return [other for other in found if same_weights(other.weights, run.weights)]


def on_same_prompts(run: RunView, others: Iterable[RunView]) -> list[RunView]:
    """Those of others that were asked the same prompts of the task, as a calibration's turns are at one time."""
    asked = run.config.first, run.config.limit
    return [other for other in others if (other.config.first, other.config.limit) == asked]


def machine(run: RunView) -> str:
    """What the run was measured on, such as ``AMD EPYC, cpu``; empty where that is not known."""
    known = run.provenance or {}
    return ", ".join(str(known[key]) for key in ("gpu", "cpu", "device") if known.get(key))
