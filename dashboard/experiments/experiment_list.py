"""The list of experiments as HTML: progress of those under way, results of those that are done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.actions import button, delete_button
from dashboard.ui.components import Column, empty_state, escape, mixed_mark, notice, pill, table
from dashboard.ui.formatting import NONE, ago, percent, quantity
from fsd_core.figures.numbers import count
from fsd_core.jobs.queue import time_left
from fsd_core.tracking.records import Deletion

if TYPE_CHECKING:
    from fsd_core.tracking.records import ExperimentView, RunView

PER_PAGE = 10
OPEN = ("queued", "running")

_COLUMNS = (
    Column("Setting", "wide"), Column("Seed", "num"), Column("Prompts", "num"),
    Column("Accuracy", "num"), Column("Tokens/s", "num"), Column(""),
)  # fmt: skip


def experiments_html(experiments: Sequence[ExperimentView]) -> str:
    """One card per experiment, the latest first."""
    if not experiments:
        return empty_state(
            "No experiment yet",
            "Choose algorithms and thresholds, then start. The settings shown take a few minutes on a laptop.",
        )
    return "".join(_card(experiment) for experiment in experiments)


def _card(e: ExperimentView) -> str:
    under_way = e.status in OPEN
    body = (_bar(e) + _runs_table(e.runs)) if under_way else _failures(e.runs)
    return (
        f'<article class="exp" data-experiment="{escape(e.id)}"><div class="exp-head"><h3>{escape(e.name)}</h3>'
        f"{pill(e.status)}</div>{body}"
        f'<div class="exp-foot"><p>{escape(_line(e))}</p><span class="exp-acts">{_actions(e)}</span></div></article>'
    )


def _actions(e: ExperimentView) -> str:
    if e.status in OPEN:
        words = "Cancelling" if e.cancel_requested else "Cancel"
        return button("cancel", "experiment", e.id, words, disabled=e.cancel_requested) if e.job_id else ""
    left = any(run.has_more_to_do for run in e.runs)
    compare = f'<a href="compare?experiment={escape(e.id)}">Compare these {count(len(e.runs), "run")}</a>'
    gone = Deletion(e.name, len(e.runs), e.prompts_done)
    return (
        compare
        + (button("resume", "experiment", e.id, "Resume") if left else "")
        + delete_button("experiment", e.id, gone)
    )


def _line(e: ExperimentView) -> str:
    prompts = f"{e.prompts_done:,} of {count(e.prompts_total, 'prompt')}"
    if e.status not in OPEN:
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
    share = 100 * e.prompts_done / e.prompts_total if e.prompts_total else 0
    return (
        f'<div class="exp-bar" role="progressbar" aria-valuemin="0" aria-valuemax="100" aria-valuenow="{share:.0f}" '
        f'aria-label="Prompts done"><i style="width: {share:.1f}%"></i></div>'
    )


def _runs_table(runs: Sequence[RunView]) -> str:
    return table(_COLUMNS, [_run(run) for run in runs], "Runs of the experiment")


def _run(run: RunView) -> tuple[str, ...]:
    m = run.metrics or {}
    accuracy = percent(m.get("accuracy"), m.get("accuracy_low"), m.get("accuracy_high"))
    speed = quantity(m.get("tokens_per_second"), m.get("tokens_per_second_low"), m.get("tokens_per_second_high"))
    speed += mixed_mark(run.speed_mixed if m.get("tokens_per_second") else ())
    error = f"<br><small>{escape(run.error)}</small>" if run.error else ""
    return (
        escape(run.label) + error, str(run.seed), f"{run.prompts_done}/{run.prompts_total}",
        accuracy if m else NONE, speed, pill(run.status),
    )  # fmt: skip


def _failures(runs: Sequence[RunView]) -> str:
    """The sentences of the runs that failed, each once."""
    sentences = dict.fromkeys(f"{run.label}: {run.error}" for run in runs if run.status == "failed" and run.error)
    return "".join(notice(text, "bad") for text in sentences)
