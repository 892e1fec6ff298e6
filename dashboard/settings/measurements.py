"""What a setting was measured in, each measurement beside the baselines on the same prompts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashboard.tables.company import alike
from fsd_core.analysis.cells import speedup
from fsd_core.config.baselines import USUAL_BASELINES
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.review.pooling import Pool, is_turn, pooled

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Prompts, RunView

_MOST_RUNS = 100
"""of a setting, the newest, that its page shows; of a calibration that is among them, every turn"""


class MeasuredBaselines(NamedTuple):
    """A measurement, and those of its experiment that it is held against: the target alone, and SD at its fastest."""

    ours: Pool
    target: Pool | None
    speculative: Pool | None


def runs_of(repository: Repository, setting_id: str) -> list[RunView]:
    """The runs of a setting that its page shows, the newest first."""
    newest = repository.runs(setting_id=setting_id, limit=_MOST_RUNS)
    if len(newest) < _MOST_RUNS:
        return newest
    found = {run.id: run for run in newest}
    for id in dict.fromkeys(run.experiment_id for run in newest if is_turn(run)):
        turns = repository.runs(experiment_id=id, setting_id=setting_id, limit=None)
        found |= {run.id: run for run in turns}
    return list(found.values())


def measurements(repository: Repository, runs: Sequence[RunView]) -> list[MeasuredBaselines]:
    """What runs of a setting measured, of the same weights. The turns of a calibration are one measurement."""
    held: dict[str, list[RunView]] = {}
    for id in dict.fromkeys(run.experiment_id for run in runs):
        if id is not None:
            held[id] = [run for kind in USUAL_BASELINES for run in _measured(repository, id, kind)]
    everything = {run.id for run in (*runs, *(run for found in held.values() for run in found)) if run.metrics}
    prompts = repository.prompts(everything)
    return [_beside(ours, held.get(ours.run.experiment_id or "", ()), prompts) for ours in _pools(runs, prompts)]


def _measured(repository: Repository, experiment: str, kind: str) -> list[RunView]:
    found = repository.runs(
        experiment_id=experiment, acceptance=kind, order_by="position", descending=False, limit=None
    )
    return [run for run in found if run.metrics]


def _pools(runs: Iterable[RunView], prompts: Prompts) -> list[Pool]:
    """The measurements with figures as they are computed now, which those of several runs are already."""
    return [
        pool if len(pool.runs) > 1 else pool._replace(run=refreshed(pool.run, pool.prompts))
        for pool in pooled(list(runs), prompts)
    ]


def _beside(ours: Pool, baselines: Sequence[RunView], prompts: Prompts) -> MeasuredBaselines:
    pools = _pools(alike(ours.run, baselines), prompts)
    target, exact = ([pool for pool in pools if pool.run.decoding.acceptance.kind == kind] for kind in USUAL_BASELINES)
    return MeasuredBaselines(
        ours,
        max(target, key=lambda other: _shared(ours, other), default=None),
        max(exact, key=lambda other: (_shared(ours, other), _speed(ours, other)), default=None),
    )


def _shared(ours: Pool, other: Pool) -> int:
    return len(ours.prompts.keys() & other.prompts.keys())


def _speed(ours: Pool, other: Pool) -> float:
    """How much faster another one is on the prompts that both did."""
    found = speedup(ours.run, other.run, {ours.run.id: ours.prompts, other.run.id: other.prompts})
    return 1 / found.value if found and found.value else -math.inf
