"""Siblings of a run: those measured with it and on the same prompts. Also the machine of a run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from fsd_core.engines.engine_summary import measured_on
from fsd_core.storage.records import same_weights

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView


def sibling_runs(repository: Repository, run: RunView, acceptance: str | None = None) -> list[RunView]:
    """Return the measured runs with the same experiment, pair, weights, task and seed, and the rule if it is named."""
    if run.experiment_id is None:
        return []
    runs = repository.runs(experiment_id=run.experiment_id, task=run.task, acceptance=acceptance, limit=None)
    return alike(run, (candidate for candidate in runs if candidate.metrics))


def alike(run: RunView, candidates: Iterable[RunView]) -> list[RunView]:
    """Return the ``candidates`` with the same pair, weights, task and seed."""
    same = run.pair, run.task, run.seed
    matches = [candidate for candidate in candidates if (candidate.pair, candidate.task, candidate.seed) == same]
    return [candidate for candidate in matches if same_weights(candidate.weights, run.weights)]


def on_same_prompts(run: RunView, candidates: Iterable[RunView]) -> list[RunView]:
    """Return the ``candidates`` on the same prompts of the task, such as rounds of a calibration at one time."""
    prompt_range = run.config.first, run.config.limit
    return [candidate for candidate in candidates if (candidate.config.first, candidate.config.limit) == prompt_range]


def machine(run: RunView) -> str:
    """Return the machine that measured the run, such as ``AMD EPYC, cpu``, or an empty string if it is unknown.

    Of a running engine it is the engine, where it is, and the load.
    """
    if engine := measured_on(run):
        return engine
    provenance = run.provenance or {}
    return ", ".join(str(provenance[key]) for key in ("gpu", "cpu", "device") if provenance.get(key))
