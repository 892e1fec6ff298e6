"""The list of runs as HTML, and what a person can filter and sort it by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.annotations import tags_html
from dashboard.ui.components import Column, empty_state, link, mixed_mark, pill, table
from dashboard.ui.quantities import DASH, ago, percent, quantity
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.metrics import METRICS, Metric, compared, listed

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class Order(NamedTuple):
    """What runs can be sorted by: a column of the repository's."""

    title: str
    column: str
    descending: bool


# By the names that addresses know them by.
ORDERS = {
    "newest": Order("Newest first", "created_at", True),
    "oldest": Order("Oldest first", "created_at", False),
    **{metric.slug: Order(metric.order, metric.key, metric.better >= 0) for metric in compared()},
    "setting": Order("Setting, A to Z", "label", False),
}

_NARROW = ("mean_acceptance_length", "seconds_per_solved_task", "mean_tokens", "tokens")
_SHOWN = tuple(metric for metric in listed() if metric.key not in _NARROW)
"""the figures of the list, which has less room than a terminal"""
_COLUMNS = (
    Column(""), Column("Setting", "wide"), Column("Experiment", "wide"), Column("Task"), Column("Seed", "num"),
    Column("Prompts", "num"), *(Column(metric.listed, "num") for metric in _SHOWN), Column("Status"), Column("Created"),
)  # fmt: skip

SELECTION = script("runs/selection.js")


def runs_html(runs: Sequence[RunView], filtered: bool) -> Html:
    """A page of runs; what to do where there are none."""
    if not runs and filtered:
        return empty_state("No run matches", "Choose other filters, or clear the search.", ("/runs", "Show all runs"))
    if not runs:
        return empty_state(
            "No runs yet",
            "A run is one setting on the prompts of one task.",
            ("/experiments", "Start an experiment"),
        )
    return render("runs/list.html", "runs", table(_COLUMNS, [_row(run) for run in runs], "Runs"))


def only_turns_html() -> Html:
    """Where all runs that the filters leave are turns of calibrations, which are not listed by themselves."""
    return empty_state(
        "Only turns of calibrations",
        "A calibration's card on Experiments says what it found.",
        ("/runs?turns=true", "Show its turns"),
    )


def _row(run: RunView) -> tuple[str, ...]:
    m = run.metrics or {}
    return (
        render("runs/list.html", "box", run),
        render("runs/list.html", "setting", run, tags_html(run)),
        DASH if run.experiment_id is None else link(f"/runs?experiment={run.experiment_id}", run.experiment_name or ""),
        run.task,
        str(run.seed),
        f"{run.prompts_done}/{run.prompts_total}",
        *(joined([figure(m, metric), mixed_mark(mixed_of(run, metric.key))]) for metric in _SHOWN),
        pill(run.status),
        ago(run.created_at),
    )


def mixed_of(run: RunView, key: str) -> Sequence[str]:
    """Why a metric of a run is not one figure: the conditions that differ; none for one that the machine does not
    decide, and where there is no value."""
    return run.speed_mixed if METRICS[key].timed and (run.metrics or {}).get(key) is not None else ()


def figure(metrics: dict, metric: Metric, unit: str = "") -> str:
    """A metric as text, with the digits that its interval supports."""
    if metric.is_share:
        return percent(*estimate(metrics, metric.key))
    return quantity(*estimate(metrics, metric.key), unit)


def estimate(metrics: dict, key: str) -> tuple[float | None, float | None, float | None]:
    """A metric and the ends of its interval, each ``None`` where it is not known."""
    return metrics.get(key), metrics.get(f"{key}_low"), metrics.get(f"{key}_high")
