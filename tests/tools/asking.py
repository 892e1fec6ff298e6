"""What a browser asks of a page (dashboard/ui/view.py), without a browser."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from dashboard.ui.view import Act, Asked, Question


def asked(values: Mapping[Any, Any], address: Mapping[str, str] = {}, **question: Any) -> Asked:
    """A question by somebody unknown, with these values of the page's fields."""
    return Asked(Question(address=dict(address), **question), values, gr.Request())


def act(name: str, data: Any = None) -> Act:
    """Something done on a page."""
    return Act(key="0" * 32, name=name, data=data)
