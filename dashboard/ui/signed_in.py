"""Whose request an event's handler serves, and the way to say who one is."""

from __future__ import annotations

from urllib.parse import quote

import gradio as gr
from starlette.requests import Request

from dashboard.ui.templates import Html, render
from fsd_core.auth.identify import person_in
from fsd_core.roles import NOBODY, Person
from fsd_core.space import here


def person_of(request: gr.Request) -> Person:
    """Who asks. Somebody of whom nothing is known may look, and no more.

    A tool of the MCP server is given Starlette's request, an event's handler Gradio's around it.
    """
    asked = request if isinstance(request, Request) else getattr(request, "request", None)
    return (person_in(asked.scope) if asked is not None else None) or NOBODY


def sign_in_link(words: str, next: str = "/", style: str = "") -> Html:
    """A link to Hugging Face's own form, and back to the page ``next``; on a Space in a tab of its own, because a frame
    may keep no cookies."""
    space = here()
    address = f"{space.url if space else ''}/login/huggingface?next={quote(next)}"
    return render("ui/links.html", "sign_in", address, words, style, tab=space is not None)
