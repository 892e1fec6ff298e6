"""A task file, checked line by line: all its prompts, or everything that is wrong with it."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fsd_core.errors import UnfitTask, Unreadable
from fsd_core.formatting import count
from fsd_core.tasks.custom.file_header import Header, header_of, read_header
from fsd_core.tasks.custom.json_rows import json_rows
from fsd_core.tasks.custom.lines import TaskLine, read_line
from fsd_core.tasks.custom.problems import Findings, LineError, LineProblem
from fsd_core.tasks.custom.scorers import SCORERS, Scorer
from fsd_core.tasks.custom.shapes import (
    USUAL_FIELDS,
    FieldMissing,
    FieldNames,
    ShapedRow,
    shape,
    unused_sentence,
)
from fsd_core.tasks.custom.unpacking import LARGEST_FILE, MOST_TASK_PROMPTS, unpacked

Numbered = list[tuple[int, ShapedRow]]


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
    notes: tuple[str, ...] = ()
    """sentences on what the file holds and the task does not"""
    thought_marks: tuple[tuple[str, str], ...] = ()
    """begin and end marks of thoughts; the usual ones if empty"""

    @property
    def content(self) -> str:
        """The task in its canonical form, which is stored, and hashed for its version."""
        header = {"scorer": self.scorer} | ({"thought_marks": self.thought_marks} if self.thought_marks else {})
        rows = [header, *(line.as_json() for line in self.lines)]
        return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)

    @property
    def prompts(self) -> int:
        """Number of prompts: each turn is one."""
        return sum(line.prompts for line in self.lines)

    @property
    def summary(self) -> str:
        """The number of problems, in words."""
        return count(len(self.problems) + self.unlisted, "problem")

    def require(self, what: str) -> None:
        """Raise ``InvalidSetting``, which begins with ``what`` and quotes the first problem, if there is any."""
        if self.problems:
            raise UnfitTask(
                f"{what} has {self.summary}. {self.problems[0].sentence} `fsd-lab task check` lists them all."
            )


def read_file(path: Path) -> bytes:
    """Return the bytes of a task file, at most one more than allowed. Raises ``InvalidSetting``."""
    expected = "expected a file of JSON Lines, JSON or Parquet"
    try:
        if path.is_dir():
            raise Unreadable(f"{path} is a folder: {expected}.")
        if not path.is_file():
            raise Unreadable(f"There is no file {path}: {expected}.")
        with path.open("rb") as file:
            return file.read(LARGEST_FILE + 1)
    except OSError as error:
        raise Unreadable(f"{path} cannot be read ({error.strerror}): check the file and its rights.") from None


def check(
    data: bytes, scorer: str | None = None, names: FieldNames = USUAL_FIELDS, *, all_turns: bool = False
) -> CheckedFile:
    """Check a whole file. ``scorer`` replaces the one that its first line may name. Without either it is ``none``, if
    no line has a reference. ``names`` are the fields that hold prompt, reference and id. With ``all_turns``, or if its
    first line says so, the user turns of conversations are asked one after another."""
    findings = Findings()
    rows = list(json_rows(unpacked(data, findings), findings))
    header = Header()
    if rows and (first := header_of(rows[0][1], names)) is not None:
        number, _ = rows.pop(0)
        header = read_header(number, first, findings)
    shaped = _shaped(rows, names, findings, all_turns or header.all_turns)
    scorer_name = _scorer(scorer or header.scorer, shaped, findings)
    lines = _read_prompts(shaped, SCORERS.get(scorer_name, SCORERS["none"]), findings)
    if not findings.count and not lines:
        findings.wrong(None, 'The file has no prompt: expected a line such as {"prompt": "…"}.')
    if (prompts := sum(line.prompts for line in lines)) > MOST_TASK_PROMPTS:
        findings.wrong(None, f"The file has {prompts:,} prompts: expected at most {MOST_TASK_PROMPTS:,}.")
    listed = findings.listed()
    notes = tuple(_notes([row for _, row in shaped], scorer_name))
    unlisted = findings.count - len(listed)
    return CheckedFile(scorer_name, header.title, tuple(lines), listed, unlisted, notes, header.thought_marks)


def _shaped(rows: list[tuple[int, dict[str, Any]]], names: FieldNames, findings: Findings, all_turns: bool) -> Numbered:
    """Return the questions of the rows. If every row lacks a field, this is one problem."""
    shaped: Numbered = []
    missing: list[tuple[int, str]] = []
    for number, row in rows:
        try:
            shaped.append((number, shape(row, names, all_turns=all_turns)))
        except FieldMissing as wrong:
            missing.append((number, str(wrong)))
        except LineError as wrong:
            findings.wrong(number, str(wrong))
    if len(missing) == len(rows) > 1:
        number, sentence = missing[0]
        missing = [(number, f"{sentence} So it is with every other {findings.unit}.")]
    for number, sentence in missing:
        findings.wrong(number, sentence)
    return shaped


def _scorer(name: str | None, rows: Numbered, findings: Findings) -> str:
    if name is None:
        if any(row.reference is not None for _, row in rows):
            names = ", ".join(SCORERS)
            findings.wrong(None, f"The lines have references, and no scorer is chosen: choose one of {names}.")
        return "none"
    if name not in SCORERS:
        findings.wrong(None, f"The scorer {name[:40]!r} is not known: expected one of {', '.join(SCORERS)}.")
    return name


def _read_prompts(rows: Numbered, scorer: Scorer, findings: Findings) -> list[TaskLine]:
    findings.next_pass()
    lines: list[TaskLine] = []
    prompts: dict[Any, int] = {}
    ids: dict[str, int] = {}
    unit = findings.unit
    for number, row in rows:
        try:
            line = read_line(row, scorer)
            if (first := prompts.setdefault((line.model_input, line.turns), number)) != number:
                raise LineError(
                    f"It asks the same as {unit} {first:,}: a prompt counts once, so leave one of them out."
                )
            if line.id is not None and (first := ids.setdefault(line.id, number)) != number:
                raise LineError(f"Its id {line.id[:40]!r} is that of {unit} {first:,}: give each its own.")
            lines.append(line)
        except LineError as wrong:
            findings.wrong(number, str(wrong))
    return lines


def _notes(rows: list[ShapedRow], scorer: str) -> Iterable[str]:
    """Yield sentences on what is not part of the task."""
    if unused := {name: None for row in rows for name in sorted(row.unused)}:
        absent = [own for own in ("reference", "id") if all(getattr(row, own) is None for row in rows)]
        missing = [own for own in absent if own not in unused]
        yield unused_sentence(unused, missing)
    if left_out := sum(row.answers_left_out for row in rows):
        yield (
            f"{count(left_out, 'given answer')} between user turns {'is' if left_out == 1 else 'are'} left out: "
            "those of the setting that is measured stand there."
        )
    if answers := [row for row in rows if row.answer is not None]:
        are_references = scorer != "none" and any(row.reference is None for row in answers)
        yield (
            f"{count(len(answers), 'conversation')} ended with an answer, which is not asked: "
            + ("it is the reference where there is no other." if are_references else "it is left out.")
        )
