"""The list of experiments as HTML: progress of those under way, results of those that are done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.ui.actions import delete_button, work_button
from dashboard.ui.annotations import archive_button, tags_html
from dashboard.ui.components import Column, empty_state, escape, mixed_mark, notice, pill, table
from dashboard.ui.quantities import DASH, ago, interval, percent, quantity
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.formatting import count
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import Deletion

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView

PER_PAGE = 10
OPEN_STATUSES = ("queued", "running")

_COLUMNS = (
    Column("Setting", "wide"), Column("Seed", "num"), Column("Prompts", "num"),
    Column("Accuracy", "num"), Column("Tokens/s", "num"), Column(""),
)  # fmt: skip


def experiments_html(
    experiments: Sequence[ExperimentView],
    scores: Mapping[str, tuple[int, int]],
    calibrated: Callable[[ExperimentView], str | None] = lambda experiment: None,
) -> str:
    """One card per experiment, the latest first. ``scores``: prompts solved, and done, of runs under way, by id.
    ``calibrated``: what a calibration shows in place of its runs; ``None`` for another experiment."""
    if not experiments:
        return empty_state(
            "No experiment yet",
            "Choose algorithms and thresholds, then start. The settings shown take a few minutes on a laptop.",
            ("/", "Or try one prompt first"),
        )
    return "".join(_card(experiment, scores, calibrated(experiment)) for experiment in experiments)


def _card(e: ExperimentView, scores: Mapping[str, tuple[int, int]], calibrated: str | None) -> str:
    under_way = e.status in OPEN_STATUSES
    body = _bar(e) if under_way else _failures(e.runs)
    body += calibrated if calibrated is not None else _runs_table(e.runs, scores) * under_way
    name = f'<a href="runs?experiment={escape(e.id)}">{escape(e.name)}</a>{tags_html(e)}'
    return (
        f'<article class="exp" data-experiment="{escape(e.id)}"><div class="exp-head"><h3>{name}</h3>'
        f"{pill(e.status)}</div>{body}"
        f'<div class="exp-foot"><p>{escape(_line(e, calibrated is not None))}</p>'
        f'<span class="exp-acts">{_actions(e, calibrated is not None)}</span></div></article>'
    )


def _actions(e: ExperimentView, is_calibration: bool) -> str:
    """A calibration's runs are parts of settings, which say little side by side."""
    if e.under_way:
        return work_button(e)
    compare = f'<a href="compare?experiment={escape(e.id)}">Compare these {count(len(e.runs), "run")}</a>'
    compare *= not is_calibration
    gone = Deletion(e.name, len(e.runs), e.prompts_done)
    return compare + work_button(e) + archive_button("experiment", e) + delete_button("experiment", e.id, gone)


def _line(e: ExperimentView, is_calibration: bool) -> str:
    prompts = f"{e.prompts_done:,} of {count(e.prompts_total, 'prompt')}"
    if is_calibration:  # nobody knows how many it will take
        return f"{count(e.prompts_done, 'text')} written, " + (
            "waiting" if e.status == "queued" else f"begun {ago(e.created_at)}"
        )
    if e.status not in OPEN_STATUSES:
        return f"{prompts}, {ago(e.created_at)}"
    return f"{prompts}, {_remaining(time_left(e))}" if e.status == "running" else f"{prompts}, waiting"


def _remaining(seconds: float | None) -> str:
    """The time left, as coarse as an estimate is, so that the page does not change every second."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 10:
        return "a few seconds left"
    if seconds < 90:
        return f"about {5 * round(seconds / 5)} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _bar(e: ExperimentView) -> str:
    """Of prompts, or of a calibration's time: nobody knows how many prompts that will take."""
    done, whole, what = e.prompts_done, e.prompts_total, "Prompts done"
    if isinstance(e.config, CalibrationConfig):
        done, whole, what = e.decoding_seconds, 60 * e.config.all_minutes, "Minutes spent"
    share = min(100, 100 * done / whole) if whole else 0
    return (
        f'<div class="exp-bar" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{share:.0f}" '
        f'aria-label="{what}"><i style="width: {share:.1f}%"></i></div>'
    )


def _runs_table(runs: Sequence[RunView], scores: Mapping[str, tuple[int, int]]) -> str:
    return table(_COLUMNS, [_run(run, scores.get(run.id)) for run in runs], "Runs of the experiment")


def _run(run: RunView, score: tuple[int, int] | None) -> tuple[str, ...]:
    m = run.metrics or {}
    speed = quantity(m.get("tokens_per_second"), m.get("tokens_per_second_low"), m.get("tokens_per_second_high"))
    speed += mixed_mark(run.speed_mixed if m.get("tokens_per_second") else ())
    error = f"<br><small>{escape(run.error)}</small>" if run.error else ""
    return (
        escape(run.label) + error, str(run.seed), f"{run.prompts_done}/{run.prompts_total}",
        _accuracy(m, score), speed, pill(run.status),
    )  # fmt: skip


def _accuracy(metrics: Mapping[str, Any], score: tuple[int, int] | None) -> str:
    """The run's accuracy, or that of the prompts that it has done so far; with its interval."""
    if metrics:
        value, low, high = (metrics.get(f"accuracy{end}") for end in ("", "_low", "_high"))
    elif score is not None:
        solved, done = score
        value, (low, high) = solved / done, wilson(solved, done)
    else:
        return DASH
    ends = interval(low, high, 100)
    return escape(percent(value, low, high)) + (f'<span class="range">{escape(ends)}</span>' if ends else "")


def _failures(runs: Sequence[RunView]) -> str:
    """The sentences of the runs that failed, each once."""
    sentences = dict.fromkeys(f"{run.label}: {run.error}" for run in runs if run.status == "failed" and run.error)
    return "".join(notice(text, "bad") for text in sentences)


def time_left(experiment: ExperimentView) -> float | None:
    """Seconds of work that an experiment still has; ``None`` until one prompt is done.

    Its runs take turns prompt by prompt, so the prompts done are a fair sample of those to come.
    """
    left = sum(run.prompts_total - run.prompts_done for run in experiment.runs if not run.ended)
    if not left:
        return 0.0
    return left * experiment.decoding_seconds / experiment.prompts_done if experiment.prompts_done else None
