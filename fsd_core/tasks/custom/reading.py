"""A file of JSON Lines, checked line by line: every prompt in it, or everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from fsd_core.errors import InvalidSetting
from fsd_core.tasks.custom.lines import LineError, TaskLine, read_line
from fsd_core.tasks.custom.scorers import SCORERS, Scorer

LARGEST_FILE = 8_000_000
"""bytes"""
LONGEST_TASK_LINE = 1_000_000
"""bytes"""
MOST_TASK_PROMPTS = 20_000
MOST_LINES = 100_000
"""with empty ones"""
MOST_PROBLEMS_LISTED = 50
"""so many problems are listed; the others are counted"""


class LineProblem(NamedTuple):
    """What is wrong, as a sentence that names the line where there is one."""

    line: int | None
    """from 1"""
    sentence: str


@dataclass(frozen=True)
class CheckedFile:
    """What a file holds. It is a task only where there is no problem."""

    scorer: str
    title: str
    """that its first line gives; may be empty"""
    lines: tuple[TaskLine, ...]
    problems: tuple[LineProblem, ...]
    """the first ones"""
    unlisted: int = 0
    """how many more problems there are"""

    @property
    def content(self) -> str:
        """The same task in its one canonical form: what is stored, and what its version is the hash of."""
        rows = [{"scorer": self.scorer}, *(line.as_json() for line in self.lines)]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    @property
    def summary(self) -> str:
        """How many problems there are, in words."""
        count = len(self.problems) + self.unlisted
        return f"{count:,} {'problem' if count == 1 else 'problems'}"

    def require(self, what: str) -> None:
        """Raises ``InvalidSetting``, which begins with ``what`` and quotes the first problem."""
        if self.problems:
            raise InvalidSetting(
                f"{what} has {self.summary}. {self.problems[0].sentence} `fsd-lab task check` lists them all."
            )


@dataclass
class _Found:
    lines: list[TaskLine] = field(default_factory=list)
    problems: list[LineProblem] = field(default_factory=list)
    count: int = 0
    room: int = MOST_PROBLEMS_LISTED
    """how many more problems are kept until the file is looked through from its beginning again"""

    def wrong(self, line: int | None, sentence: str) -> None:
        self.count, self.room = self.count + 1, self.room - 1
        if self.room >= 0:
            self.problems.append(LineProblem(line, sentence if line is None else f"Line {line:,}: {sentence}"))


def read_file(path: Path) -> bytes:
    """The bytes of a task file, at most one more than may be. Raises ``InvalidSetting``."""
    try:
        if path.is_dir():
            raise InvalidSetting(f"{path} is a folder: expected a file of JSON Lines.")
        if not path.is_file():
            raise InvalidSetting(f"There is no file {path}: expected one of JSON Lines.")
        with path.open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise InvalidSetting(f"{path} cannot be read ({error.strerror}): check the file and its rights.") from None


def check(data: bytes, scorer: str | None = None) -> CheckedFile:
    """Looks at a whole file. ``scorer`` takes the place of the one that its first line may name; without either it is
    ``none``, if no line has a reference."""
    found = _Found()
    if len(data) > LARGEST_FILE:
        found.wrong(None, f"The file is larger than {LARGEST_FILE:,} bytes: split it into several tasks.")
        return _checked("none", "", found)
    if (count := data.count(b"\n")) > MOST_LINES:
        found.wrong(None, f"The file has {count:,} lines: expected at most {MOST_TASK_PROMPTS:,} prompts, one a line.")
        return _checked("none", "", found)
    rows = list(_rows(data.removeprefix(b"\xef\xbb\xbf"), found))
    title, named = "", None
    if rows and (header := _header(rows[0][1])) is not None:
        number, _ = rows.pop(0)
        title, named = _read_header(number, header, found)
    chosen = _scorer(scorer or named, rows, found)
    _read_prompts(rows, SCORERS.get(chosen, SCORERS["none"]), found)
    if not found.count and not found.lines:
        found.wrong(None, 'The file has no prompt: expected a line such as {"prompt": "…"}.')
    if len(found.lines) > MOST_TASK_PROMPTS:
        found.wrong(None, f"The file has {len(found.lines):,} prompts: expected at most {MOST_TASK_PROMPTS:,}.")
    return _checked(chosen, title, found)


def _checked(scorer: str, title: str, found: _Found) -> CheckedFile:
    listed = sorted(found.problems, key=lambda problem: problem.line or 0)[:MOST_PROBLEMS_LISTED]
    return CheckedFile(scorer, title, tuple(found.lines), tuple(listed), found.count - len(listed))


def _rows(data: bytes, found: _Found) -> Iterator[tuple[int, dict[str, Any]]]:
    """The lines that hold an object, with their numbers; empty lines are none."""
    for number, raw in enumerate(data.split(b"\n"), 1):
        if len(raw) > LONGEST_TASK_LINE:
            found.wrong(number, f"It has {len(raw):,} bytes: expected at most {LONGEST_TASK_LINE:,}.")
            continue
        try:
            if text := raw.decode().strip():
                yield number, _parsed(text)
        except UnicodeDecodeError as error:
            found.wrong(number, f"It is not UTF-8 from byte {error.start + 1} on: save the file in that encoding.")
        except LineError as wrong:
            found.wrong(number, str(wrong))


def _parsed(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            twice = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
            raise LineError(f"The field {twice[:40]!r} is there twice: leave one of them out.")
        return row

    def never(constant: str) -> Any:
        raise LineError(f"{constant} is no value of JSON: write a number or a text.")

    try:
        row = json.loads(text, object_pairs_hook=once, parse_constant=never)
    except LineError:
        raise
    except json.JSONDecodeError as error:
        raise LineError(
            f"It is not JSON ({error.msg} at character {error.pos + 1}): expected one object a line."
        ) from None
    except (ValueError, RecursionError):
        raise LineError("It cannot be read as JSON: a number in it is too long, or it is nested too deep.") from None
    if not isinstance(row, dict):
        raise LineError('It is no object: expected one such as {"prompt": "…"}.')
    return row


def _header(row: dict[str, Any]) -> dict[str, Any] | None:
    """The first line, where it says what the task is and asks nothing."""
    return row if "scorer" in row and not {"prompt", "messages"} & set(row) else None


def _read_header(number: int, row: dict[str, Any], found: _Found) -> tuple[str, str | None]:
    """Title and scorer of the first line."""
    if unknown := sorted(set(row) - {"scorer", "title"}):
        found.wrong(number, f"The field {unknown[0][:40]!r} is not known beside scorer: expected title at most.")
    title, scorer = row.get("title", ""), row["scorer"]
    if not isinstance(title, str) or len(title) > 120 or not title.isprintable():
        found.wrong(number, "The title cannot be used: expected at most 120 printable characters.")
        title = ""
    if not isinstance(scorer, str):
        found.wrong(number, f"The scorer is no text: expected one of {', '.join(SCORERS)}.")
        return title, None
    return title.strip(), scorer


def _scorer(name: str | None, rows: list[tuple[int, dict[str, Any]]], found: _Found) -> str:
    if name is None:
        if any(row.get("reference") is not None for _, row in rows):
            known = ", ".join(SCORERS)
            found.wrong(None, f"The lines have references, and no scorer is chosen: choose one of {known}.")
        return "none"
    if name not in SCORERS:
        found.wrong(None, f"The scorer {name[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    return name


def _read_prompts(rows: list[tuple[int, dict[str, Any]]], scorer: Scorer, found: _Found) -> None:
    found.room = MOST_PROBLEMS_LISTED
    asked: dict[Any, int] = {}
    ids: dict[str, int] = {}
    for number, row in rows:
        try:
            line = read_line(row, scorer)
            if (first := asked.setdefault(line.asked, number)) != number:
                raise LineError(f"It asks the same as line {first:,}: a prompt counts once, so leave one of them out.")
            if line.id is not None and (first := ids.setdefault(line.id, number)) != number:
                raise LineError(f"Its id {line.id[:40]!r} is that of line {first:,}: give each its own.")
            found.lines.append(line)
        except LineError as wrong:
            found.wrong(number, str(wrong))
