"""A custom task, in one of its versions."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from fsd_core.errors import DataDamaged
from fsd_core.frozen import text_hash
from fsd_core.models.chat_messages import TOOLS, Message, Messages, fields_of
from fsd_core.models.thoughts import MARKS
from fsd_core.storage.records import TaskView
from fsd_core.tasks.base import Example, Score, Task, in_turns
from fsd_core.tasks.custom.lines import TaskLine
from fsd_core.tasks.custom.reading import CheckedFile, check
from fsd_core.tasks.custom.scorers import Scorer, get_scorer


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

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return self.scorer.judge(text, example, stop_reason)


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
