"""Runs and experiments as plain data, for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsd_core.analysis.cells import estimate
from fsd_core.config.flat import options_read
from fsd_core.metrics import compared

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView


def run_record(run: RunView) -> dict[str, Any]:
    """Return the run, its setting's options by name, and its metrics."""
    return {
        "run": run.id,
        "label": run.label,
        "setting": run.setting_id,
        "pair": run.pair,
        "options": options_read(run.config),
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
        "speed_mixed": list(run.speed_mixed),
    }


def metrics_record(run: RunView) -> dict[str, dict[str, Any]]:
    """Return each known metric by its key: value and 95 % interval in its unit, with ``None`` for missing ends."""
    estimates = {metric: estimate(run, metric) for metric in compared()} if run.metrics else {}
    return {
        metric.key: {**value._asdict(), "unit": metric.unit} for metric, value in estimates.items() if value is not None
    }


def experiment_record(experiment: ExperimentView, *, runs: bool = False) -> dict[str, Any]:
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


def _annotations(view: RunView | ExperimentView) -> dict[str, Any]:
    return {"note": view.note, "tags": list(view.tags), "archived": view.archived}
