"""The fields that choose a setting's evidence: its runs, and the baselines on the same prompts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.tables.siblings import sibling_runs
from fsd_core.config.baselines import USUAL_BASELINES
from fsd_core.review.pooling import fresh_rounds, grouped, is_calibration_round, on_fresh_prompts

if TYPE_CHECKING:
    from dashboard.ui.question import Asked
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

Measurement = tuple["RunView", ...]
"""a run, or the rounds of a calibration, pooled as one"""
Choices = list[tuple[str, str]]
"""labels and values of a field"""
_MOST = 60
"""newest runs of a setting that can be chosen"""


class EvidenceFields:
    """The two fields. A value is the ids of the runs of one measurement, with commas between them."""

    def __init__(self) -> None:
        self.runs = gr.Dropdown(
            [], label="Evidence", info="Runs of the setting", multiselect=True, scale=2, min_width=280
        )
        self.baselines = gr.Dropdown(
            [], label="Baselines", info="On the same prompts", multiselect=True, scale=2, min_width=280
        )
        self.both = [self.runs, self.baselines]

    def fill(self, asked: Asked, runs: Iterable[Measurement], baselines: Iterable[Measurement]) -> None:
        """Fill in both fields when the page opens, unless somebody has chosen."""
        if asked.opening and not asked[self.runs]:
            asked.fill(self.runs, [_value(measurement) for measurement in runs])
            asked.fill(self.baselines, [_value(measurement) for measurement in baselines])


def measurements_of(repository: Repository, setting_id: str, *calibrations: str) -> list[Measurement]:
    """Return the newest measured runs of a setting.

    For calibrations among them, and for the named ones, these are all rounds that can be evidence.
    """
    newest = repository.runs(setting_id=setting_id, limit=_MOST, archived=False)
    named = [*calibrations, *(run.experiment_id for run in newest if is_calibration_round(run))]
    ids = dict.fromkeys(id for id in named if id)
    rounds = [run for id in ids for run in fresh_rounds(repository, id, setting_id)]
    return grouped([*rounds, *(run for run in newest if run.metrics and not is_calibration_round(run))])


def baselines_of(repository: Repository, runs: Measurement) -> list[Measurement]:
    """Return the baselines measured in the same experiment, task and seed, the target alone first."""
    siblings = [run for run in sibling_runs(repository, runs[0]) if run.setting_id != runs[0].setting_id]
    baselines = [run for run in siblings if run.decoding.acceptance.kind in USUAL_BASELINES]
    fresh = on_fresh_prompts(repository, baselines)
    return grouped(sorted(fresh, key=lambda run: (USUAL_BASELINES.index(run.decoding.acceptance.kind), run.position)))


def strongest(measurements: Iterable[Measurement]) -> list[Measurement]:
    """Return the measurement of most prompts for each task and seed.

    A smaller one on the same prompts would count as a second, weaker witness.
    """
    best: dict[tuple[str, int], Measurement] = {}
    for runs in measurements:
        key = runs[0].task, runs[0].seed
        best[key] = max(best.get(key, runs), runs, key=_prompts)
    return list(best.values())


def first_of_each(baselines: Iterable[Measurement]) -> list[Measurement]:
    """Return one baseline for each task and seed, and for each calibration."""
    first: dict[tuple[object, ...], Measurement] = {}
    for runs in baselines:
        run = runs[0]
        first.setdefault((run.task, run.seed, run.experiment_id if is_calibration_round(run) else None), runs)
    return list(first.values())


def choices_of(measurements: Iterable[Measurement]) -> Choices:
    """Return the choices of a field."""
    return list(dict.fromkeys((_name(runs), _value(runs)) for runs in measurements))


def ids_in(values: Sequence[str] | None) -> list[str]:
    """Return the ids of the runs in the values of a field."""
    return [id for value in values or () for id in value.split(",")]


def _prompts(runs: Measurement) -> int:
    return sum(run.prompts_done for run in runs)


def _value(runs: Measurement) -> str:
    return ",".join(run.id for run in runs)


def _name(runs: Measurement) -> str:
    run, prompts = runs[0], _prompts(runs)
    if is_calibration_round(run):
        source = f"{run.experiment_name}, seed {run.seed} · {(run.experiment_id or '')[:6]}"
        return f"{run.label} · {run.task}, {prompts} fresh prompts of {source}"
    return f"{run.label} · {run.task}, {prompts} prompts, seed {run.seed} · {run.id[:6]}"
