"""Answers on runs and experiments: what programs are told of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from fsd_core.analysis.cells import estimate
from fsd_core.config.options import effective_options
from fsd_core.errors import OutOfRange
from fsd_core.metrics import compared
from fsd_core.rules import ImportedSeries, MeasuredSeries
from fsd_core.storage.records import other_figures

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView

MOST_LISTED = 100


def checked_limit(limit: int, most: int = MOST_LISTED) -> int:
    """Return how many things a caller wants listed. Raises ``InvalidSetting`` if that is out of range."""
    if not 1 <= limit <= most:
        raise OutOfRange(f"limit is {limit}: expected 1 to {most}.")
    return limit


_COUNTS = ("correct", "wrong", "truncated", "failed", "unscored", "unread", "published_correct")


class MetricAnswer(TypedDict):
    """A metric in its unit, with the ends of its 95 % interval."""

    value: float | None
    low: float | None
    high: float | None
    unit: str


class ElsewhereAnswer(TypedDict):
    """What was logged or imported, and where it comes from."""

    family: str
    name: str
    knobs: dict[str, float]
    figures: dict[str, MetricAnswer]
    """those by names of their own"""
    origin: dict[str, Any]


class _Described(TypedDict):
    note: str
    tags: list[str]
    archived: bool
    version: int
    """number of its edits, which ``annotate`` takes"""


class RunAnswer(_Described):
    """A run, for programs. Newer versions may add fields."""

    run: str
    label: str
    setting: str
    pair: str
    options: dict[str, Any]
    task: str
    task_version: str | None
    seed: int
    experiment: str | None
    experiment_name: str | None
    status: str
    error: str | None
    prompts_done: int
    prompts_total: int
    created_at: str
    metrics: dict[str, MetricAnswer]
    counts: dict[str, int]
    """of prompts: by outcome, unread ones, and those that the benchmark's published filter calls correct"""
    speed_mixed: list[str]
    reading_versions: list[int]
    """by which versions of the reading its answers were scored"""
    measured_elsewhere: ElsewhereAnswer | None
    """for figures that nothing here has verified"""


class ExperimentAnswer(_Described):
    """An experiment, with its runs or with their number."""

    experiment: str
    name: str
    pair: str
    task: str
    status: str
    error: str | None
    prompts_done: int
    prompts_total: int
    created_at: str
    runs: list[RunAnswer] | int


def run_record(run: RunView) -> RunAnswer:
    """Return the run, its setting's options by name, and its metrics."""
    return {
        "run": run.id,
        "label": run.label,
        "setting": run.setting_id,
        "pair": run.pair,
        "options": effective_options(run.config),
        "task": run.task,
        "task_version": run.task.partition("@")[2] or None,
        "seed": run.seed,
        "experiment": run.experiment_id,
        "experiment_name": run.experiment_name,
        "status": run.status,
        "error": run.error,
        "prompts_done": run.prompts_done,
        "prompts_total": run.prompts_total,
        "created_at": run.created_at.isoformat(),
        **_annotations(run),
        "metrics": metrics_record(run),
        "counts": {name: found for name in _COUNTS if (found := (run.metrics or {}).get(name)) is not None},
        "speed_mixed": list(run.speed_mixed),
        "reading_versions": list(run.reading_versions),
        "measured_elsewhere": _elsewhere(run),
    }


def _elsewhere(run: RunView) -> ElsewhereAnswer | None:
    series = run.decoding.acceptance
    if not isinstance(series, MeasuredSeries | ImportedSeries):
        return None
    figures = {
        name: MetricAnswer(value=found.value, low=found.low, high=found.high, unit="")
        for name, found in other_figures(run.metrics).items()
    }
    return {
        "family": series.family, "name": series.name, "knobs": dict(series.values), "figures": figures,
        "origin": run.origin,
    }  # fmt: skip


def metrics_record(run: RunView) -> dict[str, MetricAnswer]:
    """Return each known metric by its key: value and 95 % interval in its unit, with ``None`` for missing ends."""
    estimates = {metric: estimate(run, metric) for metric in compared()} if run.metrics else {}
    return {
        metric.key: MetricAnswer(value=found.value, low=found.low, high=found.high, unit=metric.unit)
        for metric, found in estimates.items()
        if found is not None
    }


def experiment_record(experiment: ExperimentView, *, runs: bool = False) -> ExperimentAnswer:
    """Return the experiment with its progress, and with its runs if requested, else their number."""
    return {
        "experiment": experiment.id,
        "name": experiment.name,
        "pair": experiment.config.pair,
        "task": experiment.config.task,
        "status": experiment.status,
        "error": experiment.error,
        "prompts_done": experiment.prompts_done,
        "prompts_total": experiment.prompts_total,
        "created_at": experiment.created_at.isoformat(),
        **_annotations(experiment),
        "runs": [run_record(run) for run in experiment.runs] if runs else len(experiment.runs),
    }


def _annotations(view: RunView | ExperimentView) -> _Described:
    return {"note": view.note, "tags": list(view.tags), "archived": view.archived, "version": view.edits}
