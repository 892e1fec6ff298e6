"""A running engine in place of a rule: it decodes by itself, and what it decodes with is its own affair."""

from __future__ import annotations

import re
from typing import Literal, NoReturn
from urllib.parse import urlsplit

from pydantic import Field, field_validator

from fsd_core.addresses import without_secrets
from fsd_core.errors import InvalidSetting
from fsd_core.rules.base import Rule

EngineName = Literal["vllm", "sglang", "llama.cpp", "transformers-serve", "openai"]
ENGINE_TITLES: dict[str, str] = {
    "vllm": "vLLM", "sglang": "SGLang", "llama.cpp": "llama.cpp", "transformers-serve": "transformers serve",
    "openai": "OpenAI API",
}  # fmt: skip
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
_LONGEST_URL, _LONGEST_MODEL = 400, 300


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

    @field_validator("endpoint")
    @classmethod
    def _is_name(cls, value: str) -> str:
        if not _NAME.fullmatch(value):
            raise InvalidSetting(
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
            raise InvalidSetting(f"The address {without_secrets(url)[:80]!r} cannot be read: {expected}.") from None
        if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
            raise InvalidSetting(
                f"The address {without_secrets(url)[:80]!r} says who signs in, or has a query: {expected}, and give "
                "the key by the name of an environment variable."
            )
        if parts.scheme not in ("http", "https") or not has_host or len(url) > _LONGEST_URL or not url.isprintable():
            raise InvalidSetting(f"The address {without_secrets(url)[:80]!r} is none of a server: {expected}.")
        return url

    @field_validator("model")
    @classmethod
    def _is_printable(cls, value: str) -> str:
        if not value.strip() or not value.isprintable():
            raise InvalidSetting(
                "The model's name cannot be used: expected the one that the server gives, on one line."
            )
        return value.strip()

    def refuse(self) -> NoReturn:
        raise InvalidSetting(
            f"The endpoint '{self.endpoint}' is a running engine, which decodes by itself: measure it with "
            "`run --endpoint`."
        )

    def label_parts(self, knob: str) -> list[str]:
        return [f"{ENGINE_TITLES[self.engine]} {self.endpoint}"]
