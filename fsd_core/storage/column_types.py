"""What the columns of a run and of its prompts may hold, for whoever records, imports and reads them.

A column of numbers holds any number, and one of JSON anything. Pages and tables, which compute with them, accept less.
"""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from pydantic import ConfigDict, Field, GetCoreSchemaHandler, create_model
from pydantic_core import CoreSchema

from fsd_core.frozen import Frozen

LARGEST_NUMBER = 1e15
"""beside which no figure of a measurement stands, and whose square is still a number"""
Number = Annotated[float, Field(ge=-LARGEST_NUMBER, le=LARGEST_NUMBER, allow_inf_nan=False, strict=True)]
Amount = Annotated[float, Field(ge=0, le=LARGEST_NUMBER, allow_inf_nan=False, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
_Figures = list[Number | None]
_Fact = str | Number | bool | None


class _Bound(Frozen):
    """A rate at a number of drafts."""

    drafts: Count
    rate: Number
    low: Number | None
    high: Number | None


class _Bounds(Frozen):
    """Results of :mod:`fsd_core.evaluation.bounds` at one temperature."""

    temperature: Number
    positions: Count
    seed: int
    optima: dict[str, list[_Bound]]
    verifiers: dict[str, list[_Bound]]


class _Metrics(Frozen):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number | _Figures | dict[str, _Figures] | None]  # pyrefly: ignore[bad-override]
    bounds: list[_Bounds] = Field(default_factory=list)
    engine: dict[str, _Fact | list[Number]] | None = None
    """counts of a running engine"""


class _Provenance(Frozen):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Fact | dict[str, _Fact]]  # pyrefly: ignore[bad-override]
    versions: dict[str, _Fact] | None = None
    weights: dict[str, str] | None = None


class _Json(NamedTuple):
    """What the value of a JSON column is, which is a ``dict`` for Python."""

    type: Any

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(self.type)


StopReason = Literal["eos", "length", "context", "error"]
Losses = Annotated[dict[str, Any], _Json(dict[Annotated[str, Field(pattern=r"^\d{1,9}$")], Count])]
Metrics = Annotated[dict[str, Any], _Json(_Metrics)]
Provenance = Annotated[dict[str, Any], _Json(_Provenance)]
Facts = Annotated[dict[str, Any], _Json(dict[str, _Fact])]


@cache
def bounded(row: type) -> type[Frozen]:
    """Return the model of those columns of a mapped class whose types say more than the database's."""
    hints = {
        name: get_args(hint)[0] for name, hint in get_type_hints(row, include_extras=True).items() if get_args(hint)
    }
    fields: dict[str, Any] = {
        name: hint
        for name, hint in hints.items()
        if any(get_origin(part) in (Annotated, Literal) for part in (hint, *get_args(hint)))
    }
    return create_model(row.__name__, __base__=Frozen, **fields)
