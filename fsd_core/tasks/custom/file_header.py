"""The first line of a task file, which may name its scorer and its title."""

from __future__ import annotations

from typing import Any, NamedTuple

from fsd_core.tasks.custom.problems import Findings
from fsd_core.tasks.custom.scorers import SCORERS
from fsd_core.tasks.custom.shapes import QUESTION_FIELDS, FieldNames, without_nulls
from fsd_core.texts import whole

_MOST_MARKS, _LONGEST_MARK = 10, 60


def header_of(row: dict[str, Any], names: FieldNames) -> dict[str, Any] | None:
    """Return the first line if it describes the task and asks nothing."""
    given = without_nulls(row)
    return given if "scorer" in given and not {*QUESTION_FIELDS, names.prompt} & set(given) else None


class Header(NamedTuple):
    """Description of a task on the first line of its file."""

    title: str = ""
    scorer: str | None = None
    thought_marks: tuple[tuple[str, str], ...] = ()
    """begin and end marks of thoughts, in place of the usual ones"""
    all_turns: bool = False
    """whether the user turns of conversations are asked one after another"""


def read_header(number: int, row: dict[str, Any], findings: Findings) -> Header:
    """Return the description on the first line. Its problems are added to ``findings``."""
    if unknown := sorted(set(row) - {"scorer", "title", "thought_marks", "all_turns"}):
        findings.wrong(
            number,
            f"The field {unknown[0][:40]!r} is not known beside scorer: expected title, thought_marks or all_turns.",
        )
    all_turns = row.get("all_turns", False)
    if not isinstance(all_turns, bool):
        findings.wrong(number, "The field all_turns is neither true nor false: expected one of them.")
        all_turns = False
    marks = _thought_marks(number, row.get("thought_marks", []), findings)
    title, scorer = row.get("title", ""), row["scorer"]
    if not isinstance(title, str) or len(title) > 120 or not title.isprintable():
        findings.wrong(number, "The title cannot be used: expected at most 120 printable characters.")
        title = ""
    if not isinstance(scorer, str):
        findings.wrong(number, f"The scorer is no text: expected one of {', '.join(SCORERS)}.")
        return Header(title, None, marks, all_turns)
    return Header(title.strip(), scorer, marks, all_turns)


def _thought_marks(number: int, value: Any, findings: Findings) -> tuple[tuple[str, str], ...]:
    pairs = value if isinstance(value, list) and len(value) <= _MOST_MARKS else [None]
    marks = [(pair[0], pair[1]) for pair in pairs if isinstance(pair, list) and len(pair) == 2]
    texts = [mark for pair in marks for mark in pair]
    usable = (isinstance(t, str) and 1 <= len(t.strip()) <= _LONGEST_MARK and whole(t) == t for t in texts)
    if len(marks) == len(pairs) and all(usable):
        return tuple(marks)
    findings.wrong(
        number,
        f"The thought_marks cannot be used: expected at most {_MOST_MARKS} pairs of texts of 1 to {_LONGEST_MARK} "
        'characters, such as [["<plan>", "</plan>"]].',
    )
    return ()
