"""Whose request an event's handler serves."""

from __future__ import annotations

import gradio as gr

from fsd_core.access.identify import person_in
from fsd_core.people import NOBODY, Person


def person_of(request: gr.Request) -> Person:
    """Who asks. Somebody of whom nothing is known may look, and no more."""
    asked = getattr(request, "request", None)
    return (person_in(asked.scope) if asked is not None else None) or NOBODY
