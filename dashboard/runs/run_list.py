"""The list of runs as HTML, and the orders that it can be sorted by."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.actions import CLICKS
from dashboard.ui.annotations import tags_html
from dashboard.ui.components import KEEP_PLACE, Column, empty_state, link, mixed_mark, pill, table
from dashboard.ui.quantities import DASH, ago, percent, quantity
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.engines.engine_summary import measured_on
from fsd_core.metrics import METRICS, Metric, compared, listed
from fsd_core.models.model_pairs import pair_title

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView


class Order(NamedTuple):
    """An order of runs by a column of the repository."""

    title: str
    column: str
    descending: bool


_TEXTS = {
    "setting": ("Setting", "label"), "pair": ("Pair", "pair"), "experiment": ("Experiment", "experiment_name"),
    "task": ("Task", "task"), "status": ("Status", "status"),
}  # fmt: skip
_NUMBERS = {"seed": ("Seed", "seed"), "prompts": ("Prompts", "prompts_done")}
_OPPOSITE = "-reversed"


def _opposite(title: str) -> str:
    """Return the title of the opposite order."""
    what, _, first = title.rpartition(", ")
    return f"{what}, {'lowest' if first.startswith('highest') else 'highest'} first"


# By their names in addresses.
ORDERS = {
    "newest": Order("Newest first", "created_at", True),
    "oldest": Order("Oldest first", "created_at", False),
    **{metric.slug: Order(metric.order, metric.key, metric.better >= 0) for metric in compared()},
    **{name: Order(f"{title}, A to Z", column, False) for name, (title, column) in _TEXTS.items()},
    **{name: Order(f"{title}, lowest first", column, False) for name, (title, column) in _NUMBERS.items()},
    **{metric.slug + _OPPOSITE: Order(_opposite(metric.order), metric.key, metric.better < 0) for metric in compared()},
    **{name + _OPPOSITE: Order(f"{title}, Z to A", column, True) for name, (title, column) in _TEXTS.items()},
    **{name + _OPPOSITE: Order(f"{title}, highest first", column, True) for name, (title, column) in _NUMBERS.items()},
}
SORT = "sort"
"""the act of a heading's button"""


def _next_order(column: str, current: str) -> str:
    """Return the name of the order that a click on a column's heading asks for: the column's first one, or its other
    one if the list has the first."""
    names = [name for name, order in ORDERS.items() if order.column == column]
    return names[1] if current == names[0] else names[0]


_NARROW = ("tokens_per_second", "mean_acceptance_length", "seconds_per_solved_task", "mean_tokens", "tokens")
_LISTED_METRICS = tuple(metric for metric in listed() if metric.key not in _NARROW)
"""metrics of the list, which has less room than a terminal"""
_COLUMNS = (
    (Column(""), ""), (Column("Setting", "wide"), "label"), (Column("Pair", "wide"), "pair"),
    (Column("Experiment", "wide"), "experiment_name"), (Column("Task"), "task"), (Column("Seed", "num"), "seed"),
    (Column("Prompts", "num"), "prompts_done"),
    *((Column(metric.listed, "num"), metric.key) for metric in _LISTED_METRICS), (Column("Status"), "status"),
    (Column("Created"), "created_at"),
)  # fmt: skip
"""columns of the list, and what of the repository each is sorted by"""

SELECTION = script("runs/selection.js") + CLICKS + KEEP_PLACE


def runs_html(runs: Sequence[RunView], filtered: bool, order: str = "newest") -> Html:
    """Return a page of runs in the ``order`` of that name, or what to do without any."""
    if not runs and filtered:
        return empty_state("No run matches", "Choose other filters, or clear the search.", ("runs", "Show all runs"))
    if not runs:
        return empty_state(
            "No runs yet",
            "A run is one setting on the prompts of one task.",
            ("experiments", "Start an experiment"),
        )
    return render("runs/list.html", "runs", table(_headings(order), [_row(run) for run in runs], "Runs"))


def _headings(order: str) -> list[Column]:
    """Return the columns, each with a button that sorts by it. That of the present order says so."""
    present, headings = ORDERS[order], list[Column]()
    for heading, column in _COLUMNS:
        if not column:
            headings.append(heading)
            continue
        sorted_ = "" if column != present.column else "descending" if present.descending else "ascending"
        wanted = _next_order(column, order)
        button = render("runs/list.html", "sort", SORT, column, wanted, ORDERS[wanted].title, sorted_)
        headings.append(heading._replace(button=button, sorted=sorted_))
    return headings


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
        render("runs/list.html", "setting", run, tags_html(run), measured_on(run)),
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
