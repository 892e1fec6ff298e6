"""A measured series in place of a rule: figures that somebody took elsewhere, of whatever method they name."""

from __future__ import annotations

from typing import Annotated, Literal, NoReturn

from pydantic import Field, field_validator

from fsd_core.errors import Contradiction, Malformed, NotApplicable
from fsd_core.rules.base import Rule

LARGEST_FIGURE = 1e15
"""beyond which no figure of a measurement is stored"""
LONGEST_SERIES_NAME, _LONGEST_KNOB = 80, 40
_MOST_KNOBS = 6

_Number = Annotated[float, Field(ge=-LARGEST_FIGURE, le=LARGEST_FIGURE, allow_inf_nan=False)]


class _Elsewhere(Rule):
    """A point of a series. Points of one family differ in their knobs, and make one line of a figure."""

    baseline, shapes, logged = True, (), True
    explanation = "Figures that were measured elsewhere. Nothing here has verified them."
    family: str
    """the line of a figure that it is on"""
    name: str
    """of this point, as people know it"""
    values: tuple[tuple[str, _Number], ...] = Field(default=(), max_length=_MOST_KNOBS)
    """knobs by name; the first is the one that is drawn"""

    @field_validator("family", "name")
    @classmethod
    def _is_name(cls, value: str) -> str:
        return one_line(value, "name of a measured series", LONGEST_SERIES_NAME)

    @field_validator("values")
    @classmethod
    def _are_named_once(cls, values: tuple[tuple[str, float], ...]) -> tuple[tuple[str, float], ...]:
        named = tuple((one_line(name, "name of a knob", _LONGEST_KNOB), value) for name, value in values)
        if len({name for name, _ in named}) < len(named):
            raise Contradiction("A knob is named twice: give each knob once.")
        return named

    @property
    def knob_value(self) -> float | None:
        return self.values[0][1] if self.values else None

    def without_knob(self) -> Rule:
        return self.model_copy(update={"name": "", "values": ()})

    def label_parts(self, knob: str) -> list[str]:
        if not knob or self.name == self.family:
            return [self.family]
        return [self.name] if self.name.startswith(self.family) else [self.family, self.name]

    def refuse(self) -> NoReturn:
        raise NotApplicable(
            f"'{self.name}' was measured elsewhere, so nothing here can run it: measure a setting here beside it."
        )


class MeasuredSeries(_Elsewhere):
    """Figures that a program has logged with ``fsd_core.log_run``."""

    title, symbol, colour = "Measured elsewhere", "diamond-open", None
    kind: Literal["measured"] = "measured"


class ImportedSeries(_Elsewhere):
    """Figures from the result file of another tool."""

    title, symbol, colour = "Imported", "square-open", None
    explanation = "Figures from another tool's result file. Nothing here has verified them."
    kind: Literal["imported"] = "imported"


def one_line(text: str, what: str, longest: int) -> str:
    """Return a text without spaces around it. Raises ``InvalidSetting`` unless it is one readable line."""
    stripped = text.strip()
    if not stripped or len(stripped) > longest or not stripped.isprintable():
        raise Malformed(
            f"The {what} {text[:40]!r} cannot be used: expected 1 to {longest} readable characters on one line."
        )
    return stripped
