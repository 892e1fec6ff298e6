"""Numbers that may be left out. Gradio's own field turns an empty value into 0."""

from __future__ import annotations

from typing import Any

import gradio as gr

from fsd_core.errors import Malformed


def optional_number(label: str, info: str, value: str = "") -> gr.Textbox:
    """Return a field for a number or nothing."""
    return gr.Textbox(value, label=label, info=info, max_length=12, min_width=110)


def read(text: str | None, label: str, kind: type[int] | type[float] = float) -> Any:
    """Return the number, or ``None`` for nothing. Raises ``InvalidSetting`` for anything else."""
    stripped = (text or "").strip().lstrip("#")
    if not stripped:
        return None
    try:
        return kind(stripped)
    except ValueError:
        whole = "a whole number" if kind is int else "a number"
        raise Malformed(f"“{label}” is {stripped[:20]!r}: expected {whole}, or nothing.") from None
