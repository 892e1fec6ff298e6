"""The prompts that a run is measured on, and how an output is scored. No torch, because the pages import this."""

from __future__ import annotations

from itertools import chain

from fsd_core.errors import UnknownName
from fsd_core.plugins import Registry, parts
from fsd_core.tasks.base import Example, HubFile, Outcome, Score, Split, Task, as_lines, as_table, judged
from fsd_core.tasks.choices import CommonsenseQA, Gpqa, Mmlu, TruthfulQa
from fsd_core.tasks.open_ended import SPEC_BENCH, Everyday, MtBench, SpecBench, SpeedBench, WholeSpecBench
from fsd_core.tasks.word_problems import Arithmetic, Gsm8k, ShortProblems, WordProblems, aime_examinations

__all__ = [
    "TASKS",
    "Example",
    "HubFile",
    "Outcome",
    "Score",
    "Split",
    "Task",
    "as_lines",
    "as_table",
    "get_task",
    "judged",
]

_BUILT_IN: tuple[Task, ...] = (
    Arithmetic(),
    Everyday(),
    ShortProblems(),
    Gsm8k(),
    WordProblems("addsub", "AddSub"),
    WordProblems("singleeq", "SingleEq"),
    WordProblems("multiarith", "MultiArith"),
    WordProblems("svamp", "SVAMP"),
    *aime_examinations(),
    CommonsenseQA(),
    Mmlu(),
    TruthfulQa(),
    Gpqa(),
    MtBench(),
    MtBench(turns=True),
    WholeSpecBench(),
    WholeSpecBench(turns=True),
    *(SpecBench(category) for category in SPEC_BENCH),
    SpecBench("mt", turns=True),
    SpeedBench(),
    SpeedBench(turns=True),
)


def _task(thing: object) -> Task | None:
    if isinstance(thing, type) and issubclass(thing, Task):
        return thing()
    return thing if isinstance(thing, Task) else None


def _offered() -> list[Task]:
    """Return the built-in tasks and those of the features in use. Published ones without answers come last."""
    return sorted((*_BUILT_IN, *chain(*parts("tasks"))), key=lambda task: bool(task.files) and not task.scored)


class TaskRegistry(Registry[Task]):
    """The tasks that are offered, by name, and those that their kinds make of a name."""

    def __getitem__(self, name: str) -> Task:
        try:
            return super().__getitem__(name)
        except KeyError:
            made = (kind.named(name) for kind in dict.fromkeys(map(type, self._things.values())))
            if (task := next(filter(None, made), None)) is None:
                raise
            return task


TASKS = TaskRegistry(_offered, lambda task: task.name, _task)


def get_task(name: str) -> Task:
    """Return the task of that name. Raises ``UnknownName``, which lists the known ones."""
    try:
        return TASKS[name]
    except KeyError:
        raise UnknownName(f"There is no task '{name}': expected one of {', '.join(TASKS)}.") from None
