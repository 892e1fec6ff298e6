"""Texts in a file that a spreadsheet opens."""

from __future__ import annotations

from typing import Any

# A spreadsheet runs a text that begins like this as a formula, and some skip what is blank before it.
_FORMULA = ("=", "+", "-", "@")
_BLANK = ("\t", "\r", "\n")


def harmless(value: Any) -> Any:
    """Return the value. A text that would be a formula is marked as a text."""
    if isinstance(value, str) and (value.startswith(_BLANK) or value.lstrip().startswith(_FORMULA)):
        return f"'{value}"
    return value
