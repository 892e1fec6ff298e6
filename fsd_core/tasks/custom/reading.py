"""A file of JSON Lines, checked line by line: all its prompts, or everything that is wrong with it."""

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
"""including empty ones"""
MOST_PROBLEMS_LISTED = 50
"""problems listed; the others are only counted"""


class LineProblem(NamedTuple):
    """A problem, as a sentence that names the line if there is one."""

    line: int | None
    """from 1"""
    sentence: str


@dataclass(frozen=True)
class CheckedFile:
    """The content of a file. It is a task only if there is no problem."""

    scorer: str
    title: str
    """from its first line; may be empty"""
    lines: tuple[TaskLine, ...]
    problems: tuple[LineProblem, ...]
    """the first ones"""
    unlisted: int = 0
    """number of further problems"""

    @property
    def content(self) -> str:
        """The task in its canonical form, which is stored, and hashed for its version."""
        rows = [{"scorer": self.scorer}, *(line.as_json() for line in self.lines)]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    @property
    def summary(self) -> str:
        """The number of problems, in words."""
        count = len(self.problems) + self.unlisted
        return f"{count:,} {'problem' if count == 1 else 'problems'}"

    def require(self, what: str) -> None:
        """Raise ``InvalidSetting``, which begins with ``what`` and quotes the first problem, if there is any."""
        if self.problems:
            raise InvalidSetting(
                f"{what} has {self.summary}. {self.problems[0].sentence} `fsd-lab task check` lists them all."
            )


@dataclass
class _Findings:
    lines: list[TaskLine] = field(default_factory=list)
    problems: list[LineProblem] = field(default_factory=list)
    count: int = 0
    room: int = MOST_PROBLEMS_LISTED
    """how many more problems are stored until the second pass over the file begins"""

    def wrong(self, line: int | None, sentence: str) -> None:
        self.count, self.room = self.count + 1, self.room - 1
        if self.room >= 0:
            self.problems.append(LineProblem(line, sentence if line is None else f"Line {line:,}: {sentence}"))


def read_file(path: Path) -> bytes:
    """Return the bytes of a task file, at most one more than allowed. Raises ``InvalidSetting``."""
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
    """Check a whole file. ``scorer`` replaces the one that its first line may name. Without either it is ``none``, if
    no line has a reference."""
    findings = _Findings()
    if len(data) > LARGEST_FILE:
        findings.wrong(None, f"The file is larger than {LARGEST_FILE:,} bytes: split it into several tasks.")
        return _checked("none", "", findings)
    if (count := data.count(b"\n")) > MOST_LINES:
        findings.wrong(
            None, f"The file has {count:,} lines: expected at most {MOST_TASK_PROMPTS:,} prompts, one a line."
        )
        return _checked("none", "", findings)
    rows = list(_rows(data.removeprefix(b"\xef\xbb\xbf"), findings))
    title, named = "", None
    if rows and (header := _header(rows[0][1])) is not None:
        number, _ = rows.pop(0)
        title, named = _read_header(number, header, findings)
    scorer_name = _scorer(scorer or named, rows, findings)
    _read_prompts(rows, SCORERS.get(scorer_name, SCORERS["none"]), findings)
    if not findings.count and not findings.lines:
        findings.wrong(None, 'The file has no prompt: expected a line such as {"prompt": "…"}.')
    if len(findings.lines) > MOST_TASK_PROMPTS:
        findings.wrong(None, f"The file has {len(findings.lines):,} prompts: expected at most {MOST_TASK_PROMPTS:,}.")
    return _checked(scorer_name, title, findings)


def _checked(scorer: str, title: str, findings: _Findings) -> CheckedFile:
    listed = sorted(findings.problems, key=lambda problem: problem.line or 0)[:MOST_PROBLEMS_LISTED]
    return CheckedFile(scorer, title, tuple(findings.lines), tuple(listed), findings.count - len(listed))


def _rows(data: bytes, findings: _Findings) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the lines that hold an object, with their numbers. Empty lines are skipped."""
    for number, raw in enumerate(data.split(b"\n"), 1):
        if len(raw) > LONGEST_TASK_LINE:
            findings.wrong(number, f"It has {len(raw):,} bytes: expected at most {LONGEST_TASK_LINE:,}.")
            continue
        try:
            if text := raw.decode().strip():
                yield number, _parsed(text)
        except UnicodeDecodeError as error:
            findings.wrong(number, f"It is not UTF-8 from byte {error.start + 1} on: save the file in that encoding.")
        except LineError as wrong:
            findings.wrong(number, str(wrong))


def _parsed(text: str) -> dict[str, Any]:
    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        row = dict(pairs)
        if len(row) < len(pairs):
            duplicate = next(key for i, (key, _) in enumerate(pairs) if key in dict(pairs[:i]))
            raise LineError(f"The field {duplicate[:40]!r} is there twice: leave one of them out.")
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
    """Return the first line if it describes the task and asks nothing."""
    return row if "scorer" in row and not {"prompt", "messages"} & set(row) else None


def _read_header(number: int, row: dict[str, Any], findings: _Findings) -> tuple[str, str | None]:
    """Return title and scorer of the first line."""
    if unknown := sorted(set(row) - {"scorer", "title"}):
        findings.wrong(number, f"The field {unknown[0][:40]!r} is not known beside scorer: expected title at most.")
    title, scorer = row.get("title", ""), row["scorer"]
    if not isinstance(title, str) or len(title) > 120 or not title.isprintable():
        findings.wrong(number, "The title cannot be used: expected at most 120 printable characters.")
        title = ""
    if not isinstance(scorer, str):
        findings.wrong(number, f"The scorer is no text: expected one of {', '.join(SCORERS)}.")
        return title, None
    return title.strip(), scorer


def _scorer(name: str | None, rows: list[tuple[int, dict[str, Any]]], findings: _Findings) -> str:
    if name is None:
        if any(row.get("reference") is not None for _, row in rows):
            names = ", ".join(SCORERS)
            findings.wrong(None, f"The lines have references, and no scorer is chosen: choose one of {names}.")
        return "none"
    if name not in SCORERS:
        findings.wrong(None, f"The scorer {name[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    return name


def _read_prompts(rows: list[tuple[int, dict[str, Any]]], scorer: Scorer, findings: _Findings) -> None:
    findings.room = MOST_PROBLEMS_LISTED
    prompts: dict[Any, int] = {}
    ids: dict[str, int] = {}
    for number, row in rows:
        try:
            line = read_line(row, scorer)
            if (first := prompts.setdefault(line.model_input, number)) != number:
                raise LineError(f"It asks the same as line {first:,}: a prompt counts once, so leave one of them out.")
            if line.id is not None and (first := ids.setdefault(line.id, number)) != number:
                raise LineError(f"Its id {line.id[:40]!r} is that of line {first:,}: give each its own.")
            findings.lines.append(line)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
