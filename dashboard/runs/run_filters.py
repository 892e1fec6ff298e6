"""The values that the filters of the list of runs offer: those that runs have, by their titles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fsd_core.config import RULES
from fsd_core.config.model_names import title_of_models
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.tasks import TASKS

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

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
