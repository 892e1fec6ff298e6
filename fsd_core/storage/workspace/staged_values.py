"""Allowed values of a measurement in the rows of an imported file. Pages and tables compute with them.

A column of numbers holds any number, and one of JSON anything. Their readers accept less.
"""

from __future__ import annotations

import zlib
from dataclasses import MISSING, fields
from typing import Annotated, Any, Literal, Union, get_type_hints

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from fsd_core.decoding.trace import RoundRecord
from fsd_core.frozen import Frozen
from fsd_core.storage.database.tables import GenerationRow, MeasurementSessionRow, RunRow

LARGEST_NUMBER = 1e15
"""beside which no figure of a measurement stands, and whose square is still a number"""
LONGEST_TRACE = 32_000_000
"""bytes of JSON; 16 times as many once it is read"""
_LONGEST_PLACE = 60

_Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER, allow_inf_nan=False, strict=True)]
_Amount = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False, strict=True)]
_Count = Annotated[int, Field(ge=0, strict=True)]
_Figures = list[_Number | None]
_Fact = str | _Number | bool | None


class _Bound(Frozen):
    """A rate at a number of drafts."""

    drafts: _Count
    rate: _Number
    low: _Number | None
    high: _Number | None


class _Bounds(Frozen):
    """Results of :mod:`fsd_core.evaluation.bounds` at one temperature."""

    temperature: _Number
    positions: _Count
    seed: int
    optima: dict[str, list[_Bound]]
    verifiers: dict[str, list[_Bound]]


class _Metrics(Frozen):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Number | _Figures | dict[str, _Figures] | None]  # pyrefly: ignore[bad-override]
    bounds: list[_Bounds] = Field(default_factory=list)
    engine: dict[str, _Fact | list[_Number]] | None = None
    """counts of a running engine"""


class _Provenance(Frozen):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Fact | dict[str, _Fact]]  # pyrefly: ignore[bad-override]
    versions: dict[str, _Fact] | None = None
    weights: dict[str, str] | None = None


class _Run(Frozen):
    """Columns of a run beside those that say what was asked for."""

    position: _Count
    prompts_done: _Count
    prompts_total: _Count
    decoding_seconds: _Amount
    losses: dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], _Count] | None
    metrics: _Metrics | None
    predicted: _Metrics | None
    provenance: _Provenance | None


class _Session(Frozen):
    conditions: dict[str, _Fact] | None


class _Prompt(Frozen):
    """The figures of one prompt."""

    position: _Count
    turn: _Count
    outcome: Literal["correct", "wrong", "truncated", "failed", "unscored"]
    stop_reason: Literal["eos", "length", "context", "error"]
    tokens: _Count
    thought_tokens: _Count
    rounds: _Count
    drafted: _Count
    accepted: _Count
    fuzzy: _Count
    negative_log_likelihood: _Number
    seconds: _Amount
    time_to_first_token: _Amount
    cpu_seconds: _Amount | None
    latency: _Amount | None
    energy: _Amount | None
    device_memory: _Count | None


class UnreadableValue(ValueError):
    """A value that no page could show. The message says which, in a few words."""


_ROUND = tuple(get_type_hints(RoundRecord).values())
# The last fields have defaults, and rounds of earlier versions end before some of them.
_DEFAULTED = sum(field.default is not MISSING for field in fields(RoundRecord))
_ROUNDS: TypeAdapter[Any] = TypeAdapter(
    list[Union[*(tuple[_ROUND[: len(_ROUND) - missing]] for missing in range(_DEFAULTED + 1))]]  # pyrefly: ignore
)


def check_measurements(session: Session) -> None:
    """Check all runs, their measurement sessions and their prompts. Raises ``UnreadableValue``."""
    for model, row, who in (
        (_Run, RunRow, (RunRow.id,)),
        (_Session, MeasurementSessionRow, (MeasurementSessionRow.run_id,)),
        (_Prompt, GenerationRow, (GenerationRow.run_id, GenerationRow.position)),
    ):
        named = [getattr(row, name) for name in model.model_fields]
        for values in session.execute(select(*who, *named).execution_options(yield_per=500)):
            try:
                model.model_validate(dict(zip(model.model_fields, values[len(who) :], strict=True)))
            except ValidationError as error:
                place, problem = _first(error)
                raise UnreadableValue(f"{place} of {_subject(values[: len(who)])} ({problem})") from None


def check_trace(data: bytes) -> None:
    """Check that gzipped data holds the rounds of a text. Raises ``UnreadableValue``."""
    inflate = zlib.decompressobj(wbits=31)
    try:
        text = inflate.decompress(data, LONGEST_TRACE)
        if not inflate.eof:
            raise UnreadableValue(f"the rounds of a text (cut off, or more than {LONGEST_TRACE:,} bytes)")
        _ROUNDS.validate_json(text, strict=True)
    except (zlib.error, ValidationError):
        raise UnreadableValue("the rounds of a text") from None


def _subject(values: tuple[Any, ...]) -> str:
    run, *position = values
    return f"prompt {position[0] + 1} of the run {run[:8]}" if position else f"the run {run[:8]}"


def _first(error: ValidationError) -> tuple[str, str]:
    """Return the first place that is wrong, such as ``metrics.accuracy``, and what is wrong there."""
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(str(part) for part in first["loc"] if not _is_of_union(part))[:_LONGEST_PLACE]
    return place, first["msg"].lower()


def _is_of_union(part: str | int) -> bool:
    """Whether a part of a place names a type of a union, which nobody has written."""
    return isinstance(part, str) and (part in ("str", "bool") or any(mark in part for mark in ("[", "constrained")))
