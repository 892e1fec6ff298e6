"""Which tasks a pair is offered, and in which order. A run of any pair on any task is allowed."""

from __future__ import annotations

from collections.abc import Iterable

from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.models.specs import PairSpec
from fsd_core.tasks import TASKS, Task


def suits(task: str, pair: PairSpec) -> bool:
    """Whether a pair can make sense of a task: one that knows its own tasks alone shares them with no other pair. Who
    brings a task knows what it is for."""
    if task in pair.tasks or "@" in task:
        return True
    return not pair.narrow and not any(other.narrow and task in other.tasks for other in MODEL_PAIRS.values())


def offered(pair: PairSpec, own: Iterable[Task] = ()) -> list[Task]:
    """The tasks that can be run on this machine: those that the pair names, others that suit it, the rest. ``own`` are
    those that people brought."""

    def rank(task: Task) -> int:
        if task.name in pair.tasks:
            return pair.tasks.index(task.name)
        return len(pair.tasks) + (not suits(task.name, pair))

    return sorted((task for task in (*TASKS.values(), *own) if task.available), key=rank)


def kept_or_first(task: str | None, pair: PairSpec, own: Iterable[Task] = ()) -> str:
    """``task`` where it is available and suits the pair, or its latest version; else the first one that the pair is
    offered."""
    tasks = offered(pair, own)
    latest = {one.name.partition("@")[0]: one.name for one in tasks}
    now = latest.get((task or "").partition("@")[0])
    return now if now is not None and suits(now, pair) else tasks[0].name
