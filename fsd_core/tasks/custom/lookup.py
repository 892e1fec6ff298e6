"""Tasks by name: built-in ones, and custom ones from the database."""

from __future__ import annotations

import re
import threading
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from fsd_core.errors import FsdError, InvalidSetting, Malformed, Taken, UnknownName
from fsd_core.formatting import slug
from fsd_core.models.chat_messages import Messages
from fsd_core.tasks import TASKS, Task, get_task
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import check, read_file

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import TaskView

_LONGEST_NAME = 40
_NAME = re.compile(rf"[a-z0-9][a-z0-9-]{{0,{_LONGEST_NAME - 1}}}")
_SHORTEST_VERSION = 6  # hex digits


def checked_name(name: str) -> str:
    """Return a valid name for a custom task. Raises ``InvalidSetting``."""
    if not _NAME.fullmatch(name):
        raise Malformed(
            f"The task name {name[:60]!r} cannot be used: expected 1 to {_LONGEST_NAME} small letters, digits and "
            "hyphens, such as support-questions."
        )
    if name in TASKS:
        raise Taken(f"The name '{name}' is that of a task of the program: choose another one.")
    return name


def suggested_name(file: str) -> str:
    """Return a name made from a file's, without what it ends with. It may be empty."""
    return slug(PurePath(file.removesuffix(".gz")).stem, _LONGEST_NAME)


def keep(repository: Repository, task: CustomTask, who: str) -> TaskView:
    """Store a version once and make it the current one of its name."""
    view = task.view
    return repository.add_task(
        view.name, task.content, title=view.title, scorer=view.scorer, prompts=view.prompts, who=who
    )


def find_task(name: str, repository: Repository) -> Task:
    """Return the task of that name. For a custom task, ``support`` is the latest version and
    ``support@0123456789abcdef`` that one. Six digits are enough.

    Raises ``UnknownName``, which lists the known ones.
    """
    if name in TASKS:
        return get_task(name)
    base_name, _, version = name.partition("@")
    versions = repository.task_versions(base_name)
    if version:
        versions = [view for view in versions if len(version) >= _SHORTEST_VERSION and view.version.startswith(version)]
    if versions:
        return _custom_task(versions[0], repository)
    available = ", ".join([*TASKS, *(task.view.name for task in latest_custom_tasks(repository))])
    raise UnknownName(f"There is no task '{name[:80]}': expected one of {available}.")


def latest_custom_tasks(repository: Repository) -> list[CustomTask]:
    """Return the latest version of each custom task, latest first."""
    latest: dict[str, TaskView] = {}
    for view in repository.task_versions():
        latest.setdefault(view.name, view)
    return [_custom_task(view, repository) for view in latest.values()]


def conversations(task: str, repository: Repository) -> dict[int, Messages]:
    """Return the conversations of a task by position, none for a task of plain prompts. Raises as :func:`find_task`."""
    if "@" not in task:
        return {}
    examples = find_task(task, repository).all_examples()
    return {position: example.messages for position, example in enumerate(examples) if example.messages}


def categories(task: str, repository: Repository) -> dict[int, str]:
    """Return the categories of a task's prompts by position; none if the task has none or its files are not here."""
    try:
        examples = find_task(task, repository).all_examples()
    except FsdError:
        return {}
    return {position: example.category for position, example in enumerate(examples) if example.category}


def _custom_task(view: TaskView, repository: Repository) -> CustomTask:
    return CustomTask(view, lambda: repository.task_content(view.name, view.version))


_FOLDER = "task folder"
"""recorded as the author of tasks from the folder"""
MOST_FILES = 200


class TaskFolder:
    """A folder of files NAME.jsonl. Each new content of a file becomes the latest version of its task. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[str, tuple[int, int]] = {}
        self._refused: dict[str, str] = {}
        self._lock = threading.Lock()

    def take_in(self, repository: Repository) -> tuple[str, ...]:
        """Store what is new or has changed since the last call. Return sentences on the files that cannot be used."""
        with self._lock:
            return self._import_changes(repository)

    def _import_changes(self, repository: Repository) -> tuple[str, ...]:
        files = self._files()
        for removed in self._seen.keys() - files.keys():
            del self._seen[removed]
            self._refused.pop(removed, None)
        for name, stamp in files.items():
            if self._seen.get(name) == stamp:
                continue
            self._refused.pop(name, None)
            try:
                self._import_file(repository, self.folder / name)
            except InvalidSetting as error:
                self._refused[name] = str(error)
            self._seen[name] = stamp
        return tuple(self._refused[name] for name in sorted(self._refused))

    def _files(self) -> dict[str, tuple[int, int]]:
        """Return time and size of each file, by name."""
        try:
            paths = sorted(path for path in self.folder.glob("*.jsonl") if path.is_file())[:MOST_FILES]
            stats = {path.name: path.stat() for path in paths}
        except OSError:  # gone meanwhile, or not readable: the next call tries again
            return {}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}

    def _import_file(self, repository: Repository, path: Path) -> None:
        checked = check(read_file(path))
        checked.require(path.name)
        task = CustomTask.of(checked_name(path.stem), checked)
        versions = repository.task_versions(task.view.name)
        is_stored = task.view.version in {view.version for view in versions}
        # A version that somebody else added since stays the latest. The folder's own earlier version gives way.
        if not is_stored or (versions[0].added_by == _FOLDER and versions[0].version != task.view.version):
            keep(repository, task, _FOLDER)
