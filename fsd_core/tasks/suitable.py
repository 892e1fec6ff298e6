"""The tasks that a pair is offered, and their order. A run of any pair on any task is allowed."""

from __future__ import annotations

import re
from collections.abc import Iterable

from fsd_core.formatting import count
from fsd_core.models.chat_messages import Messages
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.models.specs import PairSpec
from fsd_core.tasks import TASKS, Task

NARROW_HINT = "This pair knows only problems of the form “Question: … Answer:”."
_NARROW_FORM = re.compile(r"\s*Question: .*\n\s*Answer:\s*", re.DOTALL)


def formless(prompts: Iterable[str | Messages]) -> int:
    """Return how many prompts lack the form that a narrow pair knows."""
    return sum(not (isinstance(one, str) and _NARROW_FORM.fullmatch(one)) for one in prompts)


def form_hint(pair: str, lacking: int) -> str:
    """Return that so many prompts lack the form that a pair knows; empty if none does, or it knows others."""
    if not lacking or pair not in MODEL_PAIRS or not MODEL_PAIRS[pair].narrow:
        return ""
    return f"{NARROW_HINT} {count(lacking, 'prompt')} of this file {'has' if lacking == 1 else 'have'} another."


def suits(task: str, pair: PairSpec) -> bool:
    """Return whether a pair can make sense of a task. A narrow pair, which knows only its own tasks, shares them with
    no other pair. Custom tasks suit every pair, because their authors know what they are for."""
    if task in pair.tasks or "@" in task:
        return True
    return not pair.narrow and not any(other.narrow and task in other.tasks for other in MODEL_PAIRS.values())


def offered(pair: PairSpec, custom: Iterable[Task] = ()) -> list[Task]:
    """Return the tasks that can be run on this machine: first those that the pair names, then others that suit it, then
    all others. ``custom`` are custom tasks."""

    def rank(task: Task) -> int:
        if task.name in pair.tasks:
            return pair.tasks.index(task.name)
        return len(pair.tasks) + (not suits(task.name, pair))

    return sorted((task for task in (*TASKS.values(), *custom) if task.available), key=rank)


def kept_or_first(task: str | None, pair: PairSpec, custom: Iterable[Task] = ()) -> str:
    """Return ``task``, or its latest version, if it is available and suits the pair. Otherwise return the first task
    that the pair is offered."""
    tasks = offered(pair, custom)
    latest = {candidate.name.partition("@")[0]: candidate.name for candidate in tasks}
    current = latest.get((task or "").partition("@")[0])
    return current if current is not None and suits(current, pair) else tasks[0].name
