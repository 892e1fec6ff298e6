"""The list of runs, with its columns, its orders and the values of its filters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dashboard.tables.list_page import Listing, Order, orders_of
from dashboard.ui.components import CLICKS, KEEP_PLACE, Column, figure, mixed_mark, tags_html
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.config import RULES
from fsd_core.config.model_names import title_of_models
from fsd_core.engines.kinds import measured_on
from fsd_core.metrics import METRICS, compared, listed_metrics
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.tasks import TASKS

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


_FIGURES = {metric.slug: metric for metric in listed_metrics() if metric.compared}
_FIGURE_COLUMNS = {name: Column(metric.listed, "num", metric.key) for name, metric in _FIGURES.items()}
_FIRST = ("accuracy", "time-per-answer")
"""figures that stand beside the setting, in sight on the narrowest window"""
_COLUMNS = {
    "setting": Column("Setting", "wide", "label"),
    **{name: _FIGURE_COLUMNS[name] for name in _FIRST},
    "pair": Column("Pair", "wide", "pair"),
    "experiment": Column("Experiment", "wide", "experiment_name"),
    "task": Column("Task", "", "task"),
    "seed": Column("Seed", "num", "seed", "lowest first"),
    "prompts": Column("Prompts", "num", "prompts_done", "lowest first"),
    **{name: column for name, column in _FIGURE_COLUMNS.items() if name not in _FIRST},
    "status": Column("Status", "", "status"),
    "created": Column("Created", "", "created_at"),
}
_ORDERS = {
    "newest": Order("Newest first", "created_at", True),
    "oldest": Order("Oldest first", "created_at", False),
    **{metric.slug: Order(metric.order, metric.key, metric.better >= 0) for metric in compared()},
}


def _cell(column: str, run: RunView) -> Html:
    if column in _FIGURES:
        key = _FIGURES[column].key
        return joined([figure(run.metrics or {}, key), mixed_mark(mixed_of(run, key))])
    return render("runs/list.html", "cell", column, run, tags_html(run), measured_on(run))


RUNS = Listing(
    "Runs", _COLUMNS, _cell, render("runs/list.html", "empty"), orders_of(_COLUMNS, _ORDERS), "newest",
    left_out=("throughput", "mean-acceptance-length", "time-per-solved", "answer-length"),
    ticked=render("runs/list.html", "compare"),
)  # fmt: skip
"""without what it has less room for than a terminal"""
SELECTION = script("runs/selection.js") + CLICKS + KEEP_PLACE


def mixed_of(run: RunView, key: str) -> Sequence[str]:
    """Return the conditions that differ within a metric of a run.

    There are none for a metric that does not depend on the machine or has no value.
    """
    return run.speed_mixed if METRICS[key].timed and (run.metrics or {}).get(key) is not None else ()
