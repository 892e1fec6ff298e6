"""One more prompt for a custom task."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING

from fsd_core.errors import NotApplicable, UnfitTask
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import checked_name, keep
from fsd_core.tasks.custom.reading import check

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import TaskView

_adding = threading.Lock()  # a task is read, and then stored with one line more


def add_prompt(repository: Repository, name: str, prompt: str, reference: str | None, who: str) -> TaskView:
    """Store a version of a custom task with one prompt more, and return it. A name that is new begins a task.

    A task that has the prompt already stays as it is. Raises ``InvalidSetting`` for a name or a line that cannot be
    used: a scored task needs a reference, and a new one is not scored.
    """
    line = {"prompt": prompt} | ({} if reference is None else {"reference": reference})
    with _adding:
        latest = next(iter(repository.task_versions(checked_name(name))), None)
        if latest is None:
            if reference is not None:
                raise NotApplicable(
                    f"There is no task '{name}' yet, and one that begins here is not scored: leave out the expected "
                    "answer, or add a file with its scorer on Experiments."
                )
            checked = check(_as_line(line))
        else:
            content = repository.task_content(name, latest.version)
            if any(one.model_input == prompt for one in check(content.encode()).lines):
                return latest
            checked = check(content.encode() + _as_line(line))
        if checked.problems:
            raise UnfitTask(f"The prompt cannot be added to '{name}'. {checked.problems[0].sentence}")
        return keep(repository, CustomTask.of(name, checked, latest.title if latest else ""), who)


def _as_line(row: dict[str, str]) -> bytes:
    return (json.dumps(row, ensure_ascii=False) + "\n").encode()
