"""Measurements of a setting, each with the baselines on the same prompts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashboard.tables.siblings import alike
from fsd_core.analysis.cells import speedup
from fsd_core.config.baselines import USUAL_BASELINES
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.review.pooling import Pool, is_calibration_round, pooled

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Prompts, RunView

_MOST_RUNS = 100
"""newest runs on a setting's page; a calibration among them contributes every round"""


class MeasuredBaselines(NamedTuple):
    """A measurement and the baselines of its experiment: the target alone, and the fastest SD."""

    measured: Pool
    target: Pool | None
    speculative: Pool | None


def runs_of(repository: Repository, setting_id: str) -> list[RunView]:
    """Return the runs on a setting's page, newest first."""
    newest = repository.runs(setting_id=setting_id, limit=_MOST_RUNS)
    if len(newest) < _MOST_RUNS:
        return newest
    by_id = {run.id: run for run in newest}
    for id in dict.fromkeys(run.experiment_id for run in newest if is_calibration_round(run)):
        rounds = repository.runs(experiment_id=id, setting_id=setting_id, limit=None)
        by_id |= {run.id: run for run in rounds}
    return list(by_id.values())


def measurements(repository: Repository, runs: Sequence[RunView]) -> list[MeasuredBaselines]:
    """Return the measurements of a setting with the same weights. A calibration's rounds are one measurement."""
    baselines: dict[str, list[RunView]] = {}
    for id in dict.fromkeys(run.experiment_id for run in runs):
        if id is not None:
            baselines[id] = [run for kind in USUAL_BASELINES for run in _measured(repository, id, kind)]
    run_ids = {run.id for run in (*runs, *(run for group in baselines.values() for run in group)) if run.metrics}
    prompts = repository.prompts(run_ids)
    return [
        _with_baselines(repository, pool, baselines.get(pool.run.experiment_id or "", ()), prompts)
        for pool in _pools(repository, runs, prompts)
    ]


def _measured(repository: Repository, experiment: str, kind: str) -> list[RunView]:
    runs = repository.runs(experiment_id=experiment, acceptance=kind, order_by="position", descending=False, limit=None)
    return [run for run in runs if run.metrics]


def _pools(repository: Repository, runs: Iterable[RunView], prompts: Prompts) -> list[Pool]:
    """Return the measurements with their metrics recomputed. Those of several runs are recomputed already."""
    return [
        pool if len(pool.runs) > 1 else pool._replace(run=refreshed(pool.run, pool.prompts))
        for pool in pooled(repository, list(runs), prompts)
    ]


def _with_baselines(
    repository: Repository, measured: Pool, baselines: Sequence[RunView], prompts: Prompts
) -> MeasuredBaselines:
    same_load = [run for run in baselines if run.config.load == measured.run.config.load]
    pools = _pools(repository, alike(measured.run, same_load), prompts)
    target, exact = ([pool for pool in pools if pool.run.decoding.acceptance.kind == kind] for kind in USUAL_BASELINES)
    return MeasuredBaselines(
        measured,
        max(target, key=lambda baseline: _shared(measured, baseline), default=None),
        max(exact, key=lambda baseline: (_shared(measured, baseline), _speed(measured, baseline)), default=None),
    )


def _shared(measured: Pool, baseline: Pool) -> int:
    return len(measured.prompts.keys() & baseline.prompts.keys())


def _speed(measured: Pool, baseline: Pool) -> float:
    """Return how many times as fast the baseline is, on the prompts that both have done."""
    ratio = speedup(measured.run, baseline.run, {measured.run.id: measured.prompts, baseline.run.id: baseline.prompts})
    return 1 / ratio.value if ratio and ratio.value else -math.inf
