"""Texts in a file that a spreadsheet opens."""

from __future__ import annotations

from typing import Any

# A spreadsheet takes a text that begins like this for a formula and runs it.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def harmless(value: Any) -> Any:
    """The value; a text that would be a formula is marked as a text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
