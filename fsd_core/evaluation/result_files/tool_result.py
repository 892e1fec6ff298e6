"""A tool's result after reading, and code that readers share."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated, Any

from pydantic import ConfigDict, Field

from fsd_core.frozen import Frozen
from fsd_core.rules.measured_series import LONGEST_SERIES_NAME

Document = dict[str, Any]
Text = Annotated[str, Field(max_length=2000)]
Count = Annotated[int, Field(ge=0, le=2**31 - 1)]
Amount = Annotated[float, Field(ge=0, le=1e15)]
_UNUSABLE = re.compile(r"[^A-Za-z0-9 _./-]+")


class ToolFields(Frozen):
    """The fields of a result that are read. Tools write many more."""

    model_config = ConfigDict(extra="ignore")


@dataclass(frozen=True, kw_only=True)
class ToolResult:
    """One measurement of a tool's result, before it is checked as figures of ours."""

    name: str
    family: str
    prompts: int
    task: str
    model: str = ""
    knobs: Mapping[str, float] = field(default_factory=dict)
    counts: Mapping[str, Any] = field(default_factory=dict)
    """correct, failed, seconds, tokens: as of :class:`fsd_core.evaluation.logged_figures.LoggedFigures`"""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """a number or a number with its interval each, ``None`` for what the tool did not measure"""
    facts: Mapping[str, Any] = field(default_factory=dict)
    """of its origin, ``None`` for what the tool did not write"""


@dataclass(frozen=True)
class ToolReader:
    """How the results of one tool are read."""

    title: str
    claims: Callable[[Document], bool]
    """whether a document looks like one of this tool's"""
    read: Callable[[Document, str], Sequence[ToolResult]]
    """returns the measurements of a document, from a file of that name. Raises ``ValidationError`` for wrong fields and
    ``InvalidSetting``"""


def has(*names: str) -> Callable[[Document], bool]:
    """Return a test whether a document has all of these fields."""
    return lambda document: all(name in document for name in names)


def shortened(text: str, longest: int = LONGEST_SERIES_NAME) -> str:
    """Return a text on one line, cut to a length, its end kept: names of models differ there."""
    line = "".join(c if c.isprintable() else " " for c in text).strip()
    return line if len(line) <= longest else f"…{line[1 - longest :]}"


def figure_name(text: str) -> str:
    """Return a tool's name of a figure as one that can be logged."""
    return _UNUSABLE.sub("_", text).strip(" ._/-")[:60] or "figure"


def moment_text(seconds: float | None) -> str | None:
    """Return a time in seconds since 1970 as a text in UTC, or ``None`` for one that is missing or none of our days."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M}" if seconds and 0 < seconds < 2e10 else None


def finite(value: float | None, scale: float = 1.0) -> float | None:
    """Return a number in another unit, or ``None`` for one that the tool could not measure."""
    return None if value is None or not math.isfinite(value) else value * scale
