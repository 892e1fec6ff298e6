"""The prompts that a run is measured on, and how an output is scored. No torch, because the pages import this."""

from __future__ import annotations

from fsd_core.errors import UnknownName
from fsd_core.plugins import Registry
from fsd_core.tasks.base import Example, HubFile, Outcome, Score, Split, Task, as_lines, as_table, judged
from fsd_core.tasks.choices import CommonsenseQA, Gpqa, Mmlu, TruthfulQa
from fsd_core.tasks.code import HumanEval, Mbpp
from fsd_core.tasks.livecodebench import find_live_task, live_code_bench
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
    HumanEval(),
    Mbpp(),
    *live_code_bench(),
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


class TaskRegistry(Registry[Task]):
    """The tasks that are offered, by name, and those of LiveCodeBench that are made by their names."""

    def __getitem__(self, name: str) -> Task:
        try:
            return super().__getitem__(name)
        except KeyError:
            task = find_live_task(name)
            if task is None:
                raise
            return task


TASKS = TaskRegistry(lambda: _BUILT_IN, lambda task: task.name, _task)


def get_task(name: str) -> Task:
    """Return the task of that name. Raises ``UnknownName``, which lists the known ones."""
    try:
        return TASKS[name]
    except KeyError:
        raise UnknownName(f"There is no task '{name}': expected one of {', '.join(TASKS)}.") from None
