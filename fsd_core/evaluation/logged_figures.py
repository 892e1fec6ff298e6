"""Figures that were measured elsewhere: within bounds, and as metrics of a run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_validator, model_validator

from fsd_core.errors import (
    Contradiction,
    Malformed,
    NotGiven,
    OutOfRange,
)
from fsd_core.evaluation.aggregate import summarise
from fsd_core.frozen import Frozen
from fsd_core.metrics import METRICS, Metric
from fsd_core.rules.measured import LARGEST_FIGURE, one_line
from fsd_core.statistics.intervals import Estimate, Interval, keyed, ratio_interval, wilson
from fsd_core.storage.records import OTHER_FIGURES

_FIGURE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9 _./-]{0,59}")  # what MLflow takes as the name of a metric
_MOST_FIGURES, _MOST_PARTS, _MOST_FACTS, _LONGEST_FACT = 40, 1_000_000, 30, 300
_MOST_PROMPTS = 2**31 - 1  # what a column of whole numbers holds
_COUNTS_OF_LOOP = ("rounds", "drafted", "accepted", "fuzzy_tokens", "lenient_tokens", "draft_seconds")
_COUNTED = ("accuracy", "seconds_per_answer", "tokens_per_second", "mean_tokens", "seconds", "tokens",
            "seconds_per_solved_task")  # fmt: skip


def plain(value: Any) -> Any:
    """Return a number of numpy or torch as one of Python."""
    return value.item() if hasattr(value, "item") and getattr(value, "ndim", 0) == 0 else value


def _parts(value: Any) -> Any:
    """Return one number, several, or none, as a tuple."""
    value = plain(value)
    if value is None:
        return ()
    if isinstance(value, str | bytes | Mapping) or not hasattr(value, "__iter__"):
        return (value,)
    return tuple(plain(part) for part in value)


def _estimate(value: Any) -> Any:
    """Return a figure with the ends of its interval, which a number alone does not have."""
    value = plain(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return tuple(plain(end) for end in value)
    return (value, None, None)


_Count = Annotated[int, BeforeValidator(plain), Field(strict=True, ge=0, le=_MOST_PROMPTS)]
_Amount = Annotated[float, Field(strict=True, ge=0, le=LARGEST_FIGURE, allow_inf_nan=False)]
_Number = Annotated[float, Field(strict=True, ge=-LARGEST_FIGURE, le=LARGEST_FIGURE, allow_inf_nan=False)]
_Estimate = Annotated[tuple[_Number, _Number | None, _Number | None], BeforeValidator(_estimate)]
Origin = dict[str, str | float | bool | None]


class LoggedFigures(Frozen):
    """What was measured elsewhere of one point of a series.

    ``seconds`` and ``tokens`` are sums over all prompts, or several numbers, one for each of as many equal parts of the
    prompts: from three parts on speeds have an interval. Prompts that failed are no answers, so figures of an answer
    divide by the others. ``figures`` are further ones, by the key of a metric
    (:data:`fsd_core.metrics.METRICS`, in the units in which they are stored) or by a name of their own.
    """

    prompts: Annotated[int, BeforeValidator(plain), Field(strict=True, ge=1, le=_MOST_PROMPTS)]
    correct: _Count | None = None
    failed: _Count = 0
    seconds: Annotated[tuple[_Amount, ...], BeforeValidator(_parts), Field(max_length=_MOST_PARTS)] = ()
    tokens: Annotated[tuple[_Amount, ...], BeforeValidator(_parts), Field(max_length=_MOST_PARTS)] = ()
    figures: dict[str, _Estimate] = Field(default_factory=dict, max_length=_MOST_FIGURES)

    @field_validator("figures")
    @classmethod
    def _can_be_read(cls, figures: dict[str, Any]) -> dict[str, Any]:
        for name, ends in figures.items():
            _check_figure(name, Estimate(*ends))
        return figures

    @model_validator(mode="after")
    def _agree(self):
        if (self.correct or 0) + self.failed > self.prompts:
            raise Contradiction(
                f"{self.correct or 0} correct and {self.failed} failed are more than the {self.prompts} prompts: "
                "expected at most as many."
            )
        if self.seconds and not sum(self.seconds):
            raise OutOfRange("Seconds is 0: expected the time that the prompts took, or nothing.")
        if len(self.seconds) > self.prompts or len({len(self.seconds), len(self.tokens)} - {0, 1}) > 1:
            raise Contradiction(
                f"{len(self.seconds)} numbers of seconds and {len(self.tokens)} of tokens do not divide "
                f"{self.prompts} prompts: expected one number of each, or as many as there are equal parts."
            )
        counted = {name for name, value in self._counted().items() if value is not None}
        if twice := sorted(counted & self.figures.keys()):
            raise Contradiction(f"'{twice[0]}' follows from the counts: leave it out of the figures.")
        if not counted and not self.figures and self.completed:
            raise NotGiven("There is nothing to log: give correct, seconds, or further figures.")
        return self

    @property
    def completed(self) -> int:
        """Prompts that brought an answer."""
        return self.prompts - self.failed

    def metrics(self) -> dict[str, Any]:
        """Return the metrics of a run: as ``summarise`` does, with ``None`` for what is unknown."""
        found = summarise([], ()) | dict.fromkeys(_COUNTS_OF_LOOP)
        found |= {"n": self.prompts, "failed": self.failed} | self._counted()
        if self.correct is None:
            found["unscored"] = self.completed
        else:
            found |= {"correct": self.correct, "wrong": self.completed - self.correct}
        for name, ends in self.figures.items():
            if name in METRICS:
                found |= keyed(name, Estimate(*ends))
        other = {name: list(ends) for name, ends in self.figures.items() if name not in METRICS}
        return found | ({OTHER_FIGURES: other} if other else {})

    def _counted(self) -> dict[str, Any]:
        """Return the metrics that follow from the counts, ``None`` for those that do not."""
        found: dict[str, Any] = dict.fromkeys(_COUNTED)
        if self.correct is not None:
            found |= _keyed("accuracy", self.correct / self.prompts, wilson(self.correct, self.prompts))
        seconds, tokens = sum(self.seconds), sum(self.tokens)
        if self.tokens:
            found["tokens"] = tokens
        if self.seconds:
            found["seconds"] = seconds
            found["seconds_per_solved_task"] = seconds / self.correct if self.correct else None
        if self.tokens and self.completed:
            found |= _keyed("mean_tokens", tokens / self.completed, None)
        if self.seconds and self.completed:
            each = self.completed / len(self.seconds)
            answers = ratio_interval([(part, each) for part in self.seconds])
            found |= _keyed("seconds_per_answer", seconds / self.completed, answers)
        if self.tokens and self.seconds and self.completed:
            found |= _keyed("tokens_per_second", tokens / seconds, ratio_interval(list(self._side_by_side())))
        return found

    def _side_by_side(self) -> Iterator[tuple[float, float]]:
        """Yield tokens and seconds of each part. A sum alone is divided equally."""
        parts = max(len(self.tokens), len(self.seconds))
        for i in range(parts):
            yield tuple(part[i] if len(part) == parts else part[0] / parts for part in (self.tokens, self.seconds))  # pyright: ignore[reportReturnType]


def checked_origin(origin: Mapping[str, Any]) -> Origin:
    """Return where figures come from as facts by name. Raises ``InvalidSetting`` for what nobody could read."""
    if len(origin) > _MOST_FACTS:
        raise OutOfRange(f"The origin has {len(origin)} facts: expected at most {_MOST_FACTS}.")
    facts: Origin = {}
    for name, value in origin.items():
        fact = plain(value)
        if isinstance(fact, str):
            fact = one_line(fact, f"origin's {name}"[:60], _LONGEST_FACT)
        elif isinstance(fact, int | float) and not (math.isfinite(fact) and abs(fact) <= LARGEST_FIGURE):
            raise OutOfRange(f"The origin's {str(name)[:40]!r} is {fact}: expected a finite number.")
        elif fact is not None and not isinstance(fact, int | float):
            raise Malformed(f"The origin's {str(name)[:40]!r} is no text and no number: write it as a text.")
        facts[one_line(str(name), "name of a fact", 60)] = fact
    return facts


def _check_figure(name: str, figure: Estimate) -> None:
    if not _FIGURE_NAME.fullmatch(name):
        raise Malformed(
            f"The figure's name {name[:40]!r} cannot be used: expected letters, digits, spaces and _ . / -, at most 60."
        )
    metric, ends = METRICS.get(name), [end for end in figure if end is not None]
    low, high = (figure.value if end is None else end for end in figure[1:])
    if not low <= figure.value <= high:
        raise Contradiction(f"'{name}' is {figure.value:g}, outside of its interval {low:g} to {high:g}.")
    if metric is not None and (wrong := [end for end in ends if not _possible(metric, end)]):
        expected = "a share from 0 to 1" if metric.is_share else "0 or more"
        raise OutOfRange(f"'{name}' is {wrong[0]:g}: expected {expected}.")


def _possible(metric: Metric, value: float) -> bool:
    return 0 <= value <= (1 if metric.is_share else LARGEST_FIGURE)


def _keyed(name: str, value: float, interval: Interval | None) -> dict[str, float | None]:
    return keyed(name, Estimate(value, *(interval or (None, None))))
