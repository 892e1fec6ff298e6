"""What stands in place of a rule: a running engine, or figures that were measured elsewhere."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal, NoReturn, Self
from urllib.parse import urlsplit

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from fsd_core.errors import Contradiction, Malformed, NotApplicable, UnfitEngine
from fsd_core.rules.base import Rule
from fsd_core.texts import without_secrets

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


EngineName = Literal["vllm", "sglang", "llama.cpp", "transformers-serve", "openai"]
ENGINE_TITLES: dict[str, str] = {
    "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "transformers-serve": "transformers serve",
    "openai": "OpenAI API",
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
_LONGEST_URL, _LONGEST_MODEL = 400, 300


def _stored_rule(value: Any) -> Any:
    from fsd_core.rules import EVERY_RULE

    kind = str(value.get("kind")) if isinstance(value, dict) else ""
    return EVERY_RULE[kind](**value) if kind in EVERY_RULE else value


class Served(Rule):
    """An engine that runs elsewhere and is asked over HTTP.

    It drafts and judges in its own way, so its texts bring no rounds. The endpoint's name stands for how the engine was
    started: two endpoints of one server's address may be the same engine with other arguments.
    """

    title, baseline, shapes, by_endpoint = "Served", True, (), True
    explanation = "A running engine writes the texts: vLLM, SGLang, llama.cpp, transformers' server or an API."
    symbol, colour = "hexagon", "#0e7490"
    kind: Literal["served"] = "served"
    engine: EngineName
    endpoint: str
    """the name that somebody gave it"""
    url: str
    """of the server, without ``/v1``, user and key"""
    model: str = Field(min_length=1, max_length=_LONGEST_MODEL)
    """as the server calls it"""
    rule: Annotated[SerializeAsAny[Rule] | None, BeforeValidator(_stored_rule)] = Field(
        default=None, exclude_if=lambda rule: rule is None
    )
    """the rule that the engine is told; lossless stands for its own strict test; ``None``: it is told none"""

    @field_validator("endpoint")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise Malformed(
                f"The endpoint's name {value[:60]!r} cannot be used: expected 1 to 40 small letters, digits, dots and "
                "hyphens, such as vllm-draft5."
            )
        return value

    @field_validator("url")
    @classmethod
    def _is_address(cls, value: str) -> str:
        url = value.strip().rstrip("/").removesuffix("/v1").rstrip("/")
        expected = "expected one such as http://127.0.0.1:8000, or https://api.example.org/v1"
        try:
            parts = urlsplit(url)
            has_host, _ = bool(parts.hostname), parts.port
        except ValueError:
            raise Malformed(f"The address {without_secrets(url)[:80]!r} cannot be read: {expected}.") from None
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise Malformed(
                f"The address {without_secrets(url)[:80]!r} says who signs in, or has a query: {expected}, and give "
                "the key by the name of an environment variable."
            )
        if parts.scheme not in ("http", "https") or not has_host or len(url) > _LONGEST_URL or not url.isprintable():
            raise Malformed(f"The address {without_secrets(url)[:80]!r} is none of a server: {expected}.")
        return url

    @field_validator("model")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.strip() or not value.isprintable():
            raise Malformed("The model's name cannot be used: expected the one that the server gives, on one line.")
        return value.strip()

    @model_validator(mode="after")
    def _can_be_told(self) -> Self:
        if self.rule is not None and self.rule.knob is None and self.rule.kind != "speculative":
            raise UnfitEngine(f"An engine is told no rule '{self.rule.kind}': expected one with a knob.")
        return self

    @property
    def engine_alone(self) -> Self:
        """The engine without what it is told."""
        return self.model_copy(update={"rule": None})

    @property
    def is_exact(self) -> bool:
        return self.rule is not None and self.rule.lossless

    @property
    def knob_value(self) -> float | None:
        return None if self.rule is None else self.rule.knob_value

    def refuse(self) -> NoReturn:
        raise UnfitEngine(
            f"The endpoint '{self.endpoint}' is a running engine, which decodes by itself: measure it with "
            "`run --endpoint`."
        )

    def label_parts(self, knob: str) -> list[str]:
        told = [] if self.rule is None else [self.rule.title, *self.rule.label_parts(knob)]
        return [f"{ENGINE_TITLES[self.engine]} {self.endpoint}", *told]
