"""Custom tasks in their versions, by name, and those that a pair is offered."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from fsd_core.errors import (
    DataDamaged,
    FsdError,
    InvalidSetting,
    Malformed,
    NotApplicable,
    Taken,
    UnfitTask,
    UnknownName,
)
from fsd_core.frozen import text_hash
from fsd_core.models.conversation import MARKS, TOOLS, Message, Messages, fields_of
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.models.sources import PairSpec
from fsd_core.storage.records import TaskView
from fsd_core.tasks import TASKS, get_task
from fsd_core.tasks.base import Example, Score, Task, in_turns
from fsd_core.tasks.custom.reading import CheckedFile, check, read_file
from fsd_core.tasks.custom.rows import TaskLine
from fsd_core.tasks.custom.scorers import Scorer, found_by, get_scorer, usable_pattern
from fsd_core.texts import count, slug

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


class CustomTask(Task):
    """Its ``name`` is that of a version, such as ``support@0123456789abcdef``, so a run names what it was asked."""

    def __init__(self, view: TaskView, content: Callable[[], str]) -> None:
        """Create it unread: ``content`` returns the lines and is called when the first of them is needed."""
        self.view, self._content = view, content
        self.name, self.title = view.full_name, f"{view.title or view.name} · {view.version[:8]}"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle it with its content, for a process that has no database."""
        return _with_content, (self.view, self.content)

    @classmethod
    def of(cls, name: str, checked: CheckedFile, title: str = "") -> CustomTask:
        """Return a task that is not stored yet, from a file without problems."""
        content, moment = checked.content, datetime.now(UTC)
        view = TaskView(
            name, text_hash(content), title or checked.title, checked.scorer, checked.prompts, "", moment
        )  # fmt: skip
        return cls(view, lambda: content)

    @property
    def size(self) -> int:
        return self.view.prompts

    @property
    def repeats(self) -> frozenset[int]:
        """None: a file with any is refused."""
        return frozenset()

    @property
    def content(self) -> str:
        """The file in its canonical form. Its SHA-256 begins with the version."""
        return self._content()

    @property
    def scorer(self) -> Scorer:
        return get_scorer(self.view.scorer)

    @property
    def scored(self) -> bool:  # pyrefly: ignore[bad-override]
        return self.scorer.needs_reference

    def all_examples(self) -> tuple[Example, ...]:
        return self._examples

    @cached_property
    def thought_marks(self) -> Sequence[tuple[str, str]]:  # pyrefly: ignore[bad-override]
        """The marks that its file names, or else the usual ones."""
        return self._file.thought_marks or MARKS

    @cached_property
    def _examples(self) -> tuple[Example, ...]:
        asked = ((self._example(number, line), line.turns) for number, line in enumerate(self._file.lines))
        return tuple(example for first, later in asked for example in in_turns(first, later))

    @cached_property
    def _file(self) -> CheckedFile:
        checked = check(self.content.encode())
        if checked.problems or (checked.scorer, checked.prompts) != (self.view.scorer, self.view.prompts):
            raise DataDamaged(f"The prompts of the task '{self.name}' cannot be read: restore the database.")
        return checked

    def _example(self, number: int, line: TaskLine) -> Example:
        reference = None
        if line.reference is not None and self.scorer.needs_reference:
            reference = self.scorer.read(line.reference)
        example = Example(
            line.id or f"{self.view.name}-{number:04d}", "", reference, category=line.category, group=line.group
        )
        if isinstance(line.model_input, str):
            return replace(example, prompt=line.model_input)
        return replace(example, prompt=transcript(line.model_input), messages=line.model_input)

    def with_pattern(self, pattern: str) -> CustomTask:
        """Return the task with a regular expression that finds the answer where its scorer finds none, as another
        version. Raises ``InvalidSetting`` for one that cannot be used."""
        try:
            usable_pattern(pattern)
        except ValueError as error:
            raise Malformed(f"The regular expression {pattern[:60]!r} {error}.") from None
        return CustomTask.of(self.view.name, replace(self._file, answer_pattern=pattern), self.view.title)

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        score, pattern = self.scorer.judge(text, example, stop_reason), self._file.answer_pattern
        if pattern and score == Score("wrong", None) and (found := found_by(pattern, text)) is not None:
            return self.scorer.judge(found, example, "eos")
        return score


def _with_content(view: TaskView, content: str) -> CustomTask:
    return CustomTask(view, lambda: content)


def transcript(messages: Messages) -> str:
    """Return a conversation as text for people. Models are given the messages."""
    return "\n\n".join(f"{message[0].capitalize()}: {_for_people(message)}" for message in messages)


def _for_people(message: Message) -> str:
    fields = fields_of(message)
    if message[0] == TOOLS:
        return ", ".join(tool["function"]["name"] for tool in fields["tools"])
    calls = [call["function"] for call in fields.get("tool_calls", ())]
    written = [f"{call['name']}({json.dumps(call['arguments'], ensure_ascii=False)})" for call in calls]
    return "\n".join(part for part in [message[1], *written] if part)


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
    return slug(PurePath(file.removesuffix(".gz").removesuffix(".zip")).stem, _LONGEST_NAME)


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


SUFFIXES = (".jsonl", ".ndjson", ".json", ".csv", ".tsv", ".xlsx", ".parquet", ".gz", ".zip")
"""what the names of files of prompts end with"""


class TaskFolder:
    """A folder of files such as NAME.jsonl and NAME.csv. Each new content of a file becomes the latest version of its
    task. Thread-safe."""

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
        first: dict[str, str] = {}  # files by the names of their tasks
        for name, stamp in files.items():
            if (same := first.setdefault(suggested_name(name), name)) != name:
                self._refused[name] = f"{name} would be the same task as {same}: rename one of them."
                continue
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
            named = (path for path in self.folder.iterdir() if path.suffix.lower() in SUFFIXES)
            paths = sorted(path for path in named if path.is_file() and path.name[0] != ".")[:MOST_FILES]
            stats = {path.name: path.stat() for path in paths}
        except OSError:  # gone meanwhile, or not readable: the next call tries again
            return {}
        return {name: (stat.st_mtime_ns, stat.st_size) for name, stat in stats.items()}

    def _import_file(self, repository: Repository, path: Path) -> None:
        checked = check(read_file(path))
        checked.require(path.name)
        usual = path.suffix == ".jsonl"  # whose name is that of the task, and is refused where it cannot be one
        task = CustomTask.of(checked_name(path.stem if usual else suggested_name(path.name)), checked)
        versions = repository.task_versions(task.view.name)
        is_stored = task.view.version in {view.version for view in versions}
        # A version that somebody else added since stays the latest. The folder's own earlier version gives way.
        if not is_stored or (versions[0].added_by == _FOLDER and versions[0].version != task.view.version):
            keep(repository, task, _FOLDER)


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
