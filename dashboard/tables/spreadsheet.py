"""Texts in a file that a spreadsheet opens, and files as they are downloaded."""

from __future__ import annotations

from typing import Any

from fastapi import Response

# A spreadsheet runs a text that begins like this as a formula, and some skip what is blank before it.
_FORMULA = ("=", "+", "-", "@")
_BLANK = ("\t", "\r", "\n")


def harmless(value: Any) -> Any:
    """Return the value. A text that would be a formula is marked as a text."""
    if isinstance(value, str) and (value.startswith(_BLANK) or value.lstrip().startswith(_FORMULA)):
        return f"'{value}"
    return value


def download(text: str, media_type: str, name: str) -> Response:
    """Return a file to be saved. CSV begins with a mark by which Excel knows UTF-8."""
    mark, disposition = "\ufeff" if media_type == "text/csv" else "", f'attachment; filename="{name}"'
    return Response(mark + text, media_type=media_type, headers={"Content-Disposition": disposition})
