"""Texts in a file that a spreadsheet opens."""

from __future__ import annotations

from typing import Any

# A spreadsheet runs a text that begins like this as a formula.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def harmless(value: Any) -> Any:
    """Return the value. A text that would be a formula is marked as a text."""
    return f"'{value}" if isinstance(value, str) and value.startswith(_FORMULA) else value
