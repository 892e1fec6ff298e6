"""The person behind an event's request, and the link to sign in."""

from __future__ import annotations

from urllib.parse import quote

import gradio as gr
from starlette.requests import Request

from dashboard.ui.templates import Html, render
from fsd_core.auth.identify import person_in
from fsd_core.frozen import text_hash
from fsd_core.roles import NOBODY, Person, folded
from fsd_core.space import here


def person_of(request: gr.Request) -> Person:
    """Return the person behind a request. An unknown person may look, and no more.

    A tool of the MCP server gets Starlette's request, and an event's handler gets Gradio's wrapper of it.
    """
    http_request = request if isinstance(request, Request) else getattr(request, "request", None)
    return (person_in(http_request.scope) if http_request is not None else None) or NOBODY


def person_mark(person: Person | None) -> str:
    """Return what stands for a person in a page and in what the page asks, so that both are known to be theirs."""
    one = person or NOBODY
    return text_hash(f"{folded(one.name)} {one.known} {one.is_program}")


def sign_in_link(text: str, next: str = "/", style: str = "", root: str = "") -> Html:
    """Return a link to Hugging Face's own form, which leads back to the page ``next`` below ``root``.

    On a Space it opens a tab of its own, because a frame may keep no cookies.
    """
    space = here()
    address = f"{space.url if space else root}/login/huggingface?next={quote(next)}"
    return render("ui/links.html", "sign_in", address, text, style, tab=space is not None)
