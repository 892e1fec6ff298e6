"""The list of runs as HTML, and the orders that it can be sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.annotations import tags_html
from dashboard.ui.components import Column, empty_state, link, mixed_mark, pill, table
from dashboard.ui.quantities import DASH, ago, percent, quantity
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.metrics import METRICS, Metric, compared, listed
from fsd_core.models.model_pairs import pair_title

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class Order(NamedTuple):
    """An order of runs by a column of the repository."""

    title: str
    column: str
    descending: bool


# By their names in addresses.
ORDERS = {
    "newest": Order("Newest first", "created_at", True),
    "oldest": Order("Oldest first", "created_at", False),
    **{metric.slug: Order(metric.order, metric.key, metric.better >= 0) for metric in compared()},
    "setting": Order("Setting, A to Z", "label", False),
}

_NARROW = ("tokens_per_second", "mean_acceptance_length", "seconds_per_solved_task", "mean_tokens", "tokens")
_LISTED_METRICS = tuple(metric for metric in listed() if metric.key not in _NARROW)
"""metrics of the list, which has less room than a terminal"""
_COLUMNS = (
    Column(""), Column("Setting", "wide"), Column("Pair", "wide"), Column("Experiment", "wide"), Column("Task"),
    Column("Seed", "num"),
    Column("Prompts", "num"), *(Column(metric.listed, "num") for metric in _LISTED_METRICS), Column("Status"),
    Column("Created"),
)  # fmt: skip

SELECTION = script("runs/selection.js")


def runs_html(runs: Sequence[RunView], filtered: bool) -> Html:
    """Return a page of runs, or what to do without any."""
    if not runs and filtered:
        return empty_state("No run matches", "Choose other filters, or clear the search.", ("runs", "Show all runs"))
    if not runs:
        return empty_state(
            "No runs yet",
            "A run is one setting on the prompts of one task.",
            ("experiments", "Start an experiment"),
        )
    return render("runs/list.html", "runs", table(_COLUMNS, [_row(run) for run in runs], "Runs"))


def only_turns_html() -> Html:
    """Return a notice for filters that match only turns of calibrations, which are not listed by themselves."""
    return empty_state(
        "Only turns of calibrations",
        "A calibration's card on Experiments says what it found.",
        ("runs?turns=true", "Show its turns"),
    )


def _row(run: RunView) -> tuple[str, ...]:
    m = run.metrics or {}
    return (
        render("runs/list.html", "box", run),
        render("runs/list.html", "setting", run, tags_html(run)),
        pair_title(run.pair),
        DASH if run.experiment_id is None else link(f"runs?experiment={run.experiment_id}", run.experiment_name or ""),
        run.task,
        str(run.seed),
        f"{run.prompts_done}/{run.prompts_total}",
        *(joined([figure(m, metric), mixed_mark(mixed_of(run, metric.key))]) for metric in _LISTED_METRICS),
        pill(run.status),
        ago(run.created_at),
    )


def mixed_of(run: RunView, key: str) -> Sequence[str]:
    """Return the conditions that differ within a metric of a run.

    There are none for a metric that does not depend on the machine or has no value.
    """
    return run.speed_mixed if METRICS[key].timed and (run.metrics or {}).get(key) is not None else ()


def figure(metrics: dict, metric: Metric, unit: str = "") -> str:
    """Return a metric as text, with the digits that its interval supports."""
    if metric.is_share:
        return percent(*estimate(metrics, metric.key))
    return quantity(*estimate(metrics, metric.key), unit)


def estimate(metrics: dict, key: str) -> tuple[float | None, float | None, float | None]:
    """Return a metric and the ends of its interval, each ``None`` if unknown."""
    return metrics.get(key), metrics.get(f"{key}_low"), metrics.get(f"{key}_high")
