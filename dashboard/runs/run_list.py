"""The list of runs as HTML, the orders that it can be sorted by, and the values of its filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from dashboard.ui.components import (
    CLICKS,
    KEEP_PLACE,
    Column,
    empty_state,
    figure,
    link,
    mixed_mark,
    pill,
    table,
    tags_html,
)
from dashboard.ui.templates import Html, ago, joined, render, script
from fsd_core.config import RULES
from fsd_core.config.model_names import title_of_models
from fsd_core.engines.kinds import measured_on
from fsd_core.metrics import METRICS, Metric, compared, listed_metrics
from fsd_core.models.model_pairs import MODEL_PAIRS, pair_title
from fsd_core.tasks import TASKS
from fsd_core.texts import DASH

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository


ALL = "all"
"""the choice that filters nothing"""


@dataclass(frozen=True)
class RunFilterValues:
    """Values that runs can be filtered by. Filters have their names in an address."""

    occurring: Mapping[str, tuple[str, ...]]
    """values that runs have, by filter"""
    titles: Mapping[str, Mapping[str, str]]
    """titles of all values that are known, whether or not a run has them, by filter and in their usual order"""

    @classmethod
    def of(cls, repository: Repository) -> RunFilterValues:
        """Read the values of a database."""
        values = repository.run_values()
        own = {pair: title_of_models(pair) for pair in values.pairs}
        used = Counter(own.values())
        custom_tasks = {view.name: view.title or view.name for view in reversed(repository.task_versions())}
        return cls(
            {"pair": values.pairs, "task": values.tasks, "algorithm": values.rules},
            {
                "pair": {name: pair.title for name, pair in MODEL_PAIRS.items()}
                | {pair: title for pair, title in own.items() if title and used[title] == 1},
                "task": {name: task.title for name, task in TASKS.items()} | custom_tasks,
                "algorithm": {kind: rule.title for kind, rule in RULES.items()},
            },
        )

    def knows(self, filter: str, value: str) -> bool:
        """Return whether a run has the value, or could have it."""
        return value in self.occurring[filter] or value in self.titles[filter]

    def choices(self, filter: str, selected: str) -> list[tuple[str, str]]:
        """Return titles and names of the values that runs have, and of the ``selected`` one. A value without a title
        comes last, by its name."""
        offered, titles = {*self.occurring[filter], selected} - {ALL}, self.titles[filter]
        names = [*(name for name in titles if name in offered), *sorted(offered - titles.keys())]
        return [(titles.get(name, name), name) for name in names]


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


class RunColumn(NamedTuple):
    """A column of the list, what of the repository it is sorted by, and its cell of a run."""

    heading: Column
    sorted_by: str
    cell: Callable[[RunView], str]


def _metric_column(metric: Metric) -> RunColumn:
    def cell(run: RunView) -> str:
        return joined([figure(run.metrics or {}, metric.key), mixed_mark(mixed_of(run, metric.key))])

    return RunColumn(Column(metric.listed, "num"), metric.key, cell)


def _setting_cell(run: RunView) -> str:
    return render("runs/list.html", "setting", run, tags_html(run), measured_on(run))


def _experiment_cell(run: RunView) -> str:
    if run.experiment_id is None:
        return DASH
    return link(f"runs?experiment={run.experiment_id}", run.experiment_name or "")


SETTING = "setting"
"""the column that is always there, for it leads to the run"""
_FIRST = ("accuracy", "seconds_per_answer")
"""figures that stand beside the setting, in sight on the narrowest window"""
_FIGURES = {metric.slug: _metric_column(metric) for metric in listed_metrics() if metric.compared}
COLUMNS = MappingProxyType(
    {
        SETTING: RunColumn(Column("Setting", "wide"), "label", _setting_cell),
        **{name: column for name, column in _FIGURES.items() if column.sorted_by in _FIRST},
        "pair": RunColumn(Column("Pair", "wide"), "pair", lambda run: pair_title(run.pair)),
        "experiment": RunColumn(Column("Experiment", "wide"), "experiment_name", _experiment_cell),
        "task": RunColumn(Column("Task"), "task", lambda run: run.task),
        "seed": RunColumn(Column("Seed", "num"), "seed", lambda run: str(run.seed)),
        "prompts": RunColumn(
            Column("Prompts", "num"), "prompts_done", lambda run: f"{run.prompts_done}/{run.prompts_total}"
        ),
        **{name: column for name, column in _FIGURES.items() if column.sorted_by not in _FIRST},
        "status": RunColumn(Column("Status"), "status", lambda run: pill(run.status)),
        "created": RunColumn(Column("Created"), "created_at", lambda run: ago(run.created_at)),
    }
)
"""columns that the list can have, by their names in an address"""
_LEFT_OUT = ("tokens_per_second", "mean_acceptance_length", "seconds_per_solved_task", "mean_tokens")
USUAL_COLUMNS = tuple(name for name, column in COLUMNS.items() if column.sorted_by not in _LEFT_OUT)
"""those that it has unless others are chosen, for it has less room than a terminal"""

SELECTION = script("runs/selection.js") + CLICKS + KEEP_PLACE


def columns_of(names: str) -> tuple[str, ...]:
    """Return the columns that a text such as ``setting,accuracy`` names, as they stand in the list: the usual ones if
    it names none."""
    named = names.split(",")
    found = tuple(name for name in COLUMNS if name == SETTING or name in named)
    return found if any(name in COLUMNS for name in named) else USUAL_COLUMNS


def names_of(columns: Sequence[str]) -> str:
    """Return the text that names these columns, which is empty for the usual ones."""
    names = ",".join(name for name in COLUMNS if name == SETTING or name in columns)
    return "" if names == ",".join(USUAL_COLUMNS) else names


def runs_html(
    runs: Sequence[RunView], filtered: bool, order: str = "newest", columns: Sequence[str] = USUAL_COLUMNS
) -> Html:
    """Return a page of runs in the ``order`` of that name with the ``columns`` of these names, or what to do without
    any."""
    if not runs and filtered:
        return empty_state("No run matches", "Choose other filters, or clear the search.", ("runs", "Show all runs"))
    if not runs:
        return empty_state(
            "No runs yet",
            "A run is one setting on the prompts of one task.",
            ("experiments", "Start an experiment"),
        )
    shown = [COLUMNS[name] for name in columns]
    rows = [(render("runs/list.html", "box", run), *(column.cell(run) for column in shown)) for run in runs]
    return render("runs/list.html", "runs", table([Column(""), *_headings(shown, order)], rows, "Runs"))


def _headings(columns: Sequence[RunColumn], order: str) -> list[Column]:
    """Return the headings, each with a button that sorts by its column. That of the present order says so."""
    present, headings = ORDERS[order], list[Column]()
    for heading, column, _ in columns:
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


def mixed_of(run: RunView, key: str) -> Sequence[str]:
    """Return the conditions that differ within a metric of a run.

    There are none for a metric that does not depend on the machine or has no value.
    """
    return run.speed_mixed if METRICS[key].timed and (run.metrics or {}).get(key) is not None else ()
