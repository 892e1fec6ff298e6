"""Tasks by the names that people give: those of the program, and one's own, kept in the database."""

from __future__ import annotations

import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.tasks import TASKS, Task, get_task
from fsd_core.tasks.base import Messages
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import check, read_file

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import TaskView

_LONGEST_NAME = 40
_NAME = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{_LONGEST_NAME - 1}}}")
_SHORTEST_VERSION = 6  # hex digits that are enough


def checked_name(name: str) -> str:
    """A name for a task of one's own. Raises ``InvalidSetting``."""
    if not _NAME.fullmatch(name):
        raise InvalidSetting(
            f"The task name {name[:60]!r} cannot be used: expected 1 to {_LONGEST_NAME} small letters, digits and "
            "hyphens, such as support-questions."
        )
    if name in TASKS:
        raise InvalidSetting(f"The name '{name}' is that of a task of the program: choose another one.")
    return name


def suggested_name(stem: str) -> str:
    """A name made of a file's; may be empty."""
    return re.sub("[^a-z0-9]+", "-", stem.lower()).strip("-")[:_LONGEST_NAME].strip("-")


def keep(repository: Repository, task: CustomTask, who: str) -> TaskView:
    """Keeps a version, once, and makes it the one that its name means."""
    view = task.view
    return repository.add_task(
        view.name, task.content, title=view.title, scorer=view.scorer, prompts=view.prompts, who=who
    )


def find_task(name: str, repository: Repository) -> Task:
    """The task of that name. Of one's own, ``support`` is the latest version and ``support@0123456789abcdef`` that one;
    the first six digits are enough. Raises ``UnknownName``, which lists the known ones."""
    if name in TASKS:
        return get_task(name)
    own, _, version = name.partition("@")
    found = repository.task_versions(own)
    if version:
        found = [view for view in found if len(version) >= _SHORTEST_VERSION and view.version.startswith(version)]
    if found:
        return _of(found[0], repository)
    known = ", ".join([*TASKS, *(task.view.name for task in own_tasks(repository))])
    raise UnknownName(f"There is no task '{name[:80]}': expected one of {known}.")


def own_tasks(repository: Repository) -> list[CustomTask]:
    """The latest version of each task of one's own, the latest first."""
    latest: dict[str, TaskView] = {}
    for view in repository.task_versions():
        latest.setdefault(view.name, view)
    return [_of(view, repository) for view in latest.values()]


def conversations(task: str, repository: Repository) -> dict[int, Messages]:
    """The conversations of a task by position; of one that asks prompts alone, none. Raises as :func:`find_task`."""
    if "@" not in task:
        return {}
    examples = find_task(task, repository).all_examples()
    return {position: example.messages for position, example in enumerate(examples) if example.messages}


def _of(view: TaskView, repository: Repository) -> CustomTask:
    return CustomTask(view, lambda: repository.task_content(view.name, view.version))


_FOLDER = "task folder"
"""who brings what lies in the folder"""
MOST_FILES = 200


class TaskFolder:
    """A folder of files NAME.jsonl. Each new content of a file becomes a version, and its latest one. May be shared by
    threads."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, int]] = {}
        self._refused: dict[str, str] = {}
        self._lock = threading.Lock()

    def take_in(self, repository: Repository) -> tuple[str, ...]:
        """Keeps what is new or has changed since the last call; sentences on the files that cannot be used."""
        with self._lock:
            return self._take_in(repository)

    def _take_in(self, repository: Repository) -> tuple[str, ...]:
        files = self._files()
        for gone in self._seen.keys() - files.keys():
            del self._seen[gone]
            self._refused.pop(gone, None)
        for name, stamp in files.items():
            if self._seen.get(name) == stamp:
                continue
            self._refused.pop(name, None)
            try:
                self._take(repository, self.folder / name)
            except InvalidSetting as error:
                self._refused[name] = str(error)
            self._seen[name] = stamp
        return tuple(self._refused[name] for name in sorted(self._refused))

    def _files(self) -> dict[str, tuple[int, int]]:
        """Time and size of each file, by name."""
        try:
            found = sorted(path for path in self.folder.glob("*.jsonl") if path.is_file())[:MOST_FILES]
            stats = {path.name: path.stat() for path in found}
        except OSError:  # gone meanwhile, or not for us: the next look tells
            return {}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}

    def _take(self, repository: Repository, path: Path) -> None:
        checked = check(read_file(path))
        checked.require(path.name)
        task = CustomTask.of(checked_name(path.stem), checked)
        versions = repository.task_versions(task.view.name)
        here = task.view.version in {view.version for view in versions}
        # What somebody else added since stays the latest; what the folder brought gives way to what it brings now.
        if not here or (versions[0].added_by == _FOLDER and versions[0].version != task.view.version):
            keep(repository, task, _FOLDER)
