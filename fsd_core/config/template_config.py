"""How a prompt is rendered by a model's chat template."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated, Any

from pydantic import Field, field_validator

from fsd_core.errors import Malformed
from fsd_core.frozen import Frozen, option

GIVEN = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception", "date_string")
"""arguments that the program passes to a template, or that would change its date: a setting cannot give them"""


class TemplateConfig(Frozen):
    """Arguments of the chat template, and the day that it is told as today's.

    Many templates name today's date. With the real one a setting would ask something else every day.
    """

    arguments: str = option(
        "", "Template arguments", 'Arguments of the chat template as JSON, such as {"enable_thinking": false}',
        max_length=2000,
    )  # fmt: skip
    """canonical JSON of an object; empty if there is none"""
    date: str = option(
        "2025-01-01", "Template date", "The day that a chat template is told as today's, as YYYY-MM-DD",
    )  # fmt: skip

    @field_validator("arguments")
    @classmethod
    def _canonical(cls, text: str) -> str:
        if not text.strip():
            return ""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise Malformed(
                f"The template arguments {text[:60]!r} are no JSON object: expected one such as "
                '{"enable_thinking": false}.'
            )
        for name, value in values.items():
            if name in GIVEN or not name.isidentifier():
                raise Malformed(
                    f"The template argument {name[:40]!r} cannot be given: expected a name that the template reads, "
                    f"other than {', '.join(GIVEN)}."
                )
            if not isinstance(value, str | int | float):
                raise Malformed(
                    f"The template argument {name[:40]!r} is {json.dumps(value)[:40]}: expected a text, a number, true "
                    "or false."
                )
        return json.dumps(values, sort_keys=True) if values else ""

    @field_validator("date")
    @classmethod
    def _is_day(cls, text: str) -> str:
        try:
            return date.fromisoformat(text.strip()).isoformat()
        except ValueError:
            raise Malformed(f"The template date {text[:40]!r} is no day: expected one such as 2025-01-01.") from None

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by name."""
        return json.loads(self.arguments) if self.arguments else {}

    def filled(self, arguments: str) -> TemplateConfig:
        """Return these, with the arguments of a pair, which are JSON as here, where there are none of their name."""
        if not arguments:
            return self
        return self.model_copy(update={"arguments": json.dumps(json.loads(arguments) | self.values, sort_keys=True)})

    @property
    def day(self) -> date:  # pyrefly: ignore[not-a-type]  # of datetime, not the field of its name
        return date.fromisoformat(self.date)

    def label_parts(self) -> list[str]:
        """Return the differences from the default, such as ``enable_thinking false``."""
        parts = [
            f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in self.values.items()
        ]
        return parts + [f"dated {self.date}"] * (self.date != TemplateConfig().date)


TemplateField = Annotated[TemplateConfig, Field(exclude_if=lambda template: template == TemplateConfig())]
"""of values older than templates: the default is not stored, so that they keep their hashes"""
