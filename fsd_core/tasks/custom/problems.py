"""Problems of a task file, as sentences. The first ones are listed, the others counted."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

MOST_PROBLEMS_LISTED = 50
"""problems listed; the others are only counted"""


class LineError(Exception):
    """A sentence on what is wrong with a line."""


class LineProblem(NamedTuple):
    """A problem, as a sentence that names the line if there is one."""

    line: int | None
    """from 1"""
    sentence: str


@dataclass
class Findings:
    """The problems of a file so far."""

    unit: str = "line"
    """unit of a number: a line, or a row of a file that is not read line by line"""
    problems: list[LineProblem] = field(default_factory=list)
    count: int = 0
    room: int = MOST_PROBLEMS_LISTED
    """how many more problems are stored until the next pass over the file begins"""

    def wrong(self, line: int | None, sentence: str) -> None:
        """Add a problem of that line, or of the whole file."""
        self.count, self.room = self.count + 1, self.room - 1
        if self.room >= 0:
            where = "" if line is None else f"{self.unit.capitalize()} {line:,}: "
            self.problems.append(LineProblem(line, where + sentence))

    def next_pass(self) -> None:
        """Make room for the problems of another pass over the file."""
        self.room = MOST_PROBLEMS_LISTED

    def listed(self) -> tuple[LineProblem, ...]:
        """Return the first problems in the order of the file."""
        return tuple(sorted(self.problems, key=lambda problem: problem.line or 0)[:MOST_PROBLEMS_LISTED])
