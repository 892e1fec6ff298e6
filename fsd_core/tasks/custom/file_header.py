"""The first line of a task file, which may name its scorer and its title."""

from __future__ import annotations

from typing import Any

from fsd_core.tasks.custom.problems import Findings
from fsd_core.tasks.custom.scorers import SCORERS
from fsd_core.tasks.custom.shapes import QUESTION_FIELDS, FieldNames, without_nulls


def header_of(row: dict[str, Any], names: FieldNames) -> dict[str, Any] | None:
    """Return the first line if it describes the task and asks nothing."""
    given = without_nulls(row)
    return given if "scorer" in given and not {*QUESTION_FIELDS, names.prompt} & set(given) else None


def read_header(number: int, row: dict[str, Any], findings: Findings) -> tuple[str, str | None]:
    """Return title and scorer of the first line. What is wrong with it is told."""
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
