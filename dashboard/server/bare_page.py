"""A plain page outside of the application: for signing in, and for addresses that lead nowhere."""

from __future__ import annotations

from pathlib import Path

from fastapi import Request

from dashboard.server.link_preview import preview
from dashboard.server.root_path import root_of
from dashboard.ui.templates import Html, document, render

_CSS = (Path(__file__).parent / "bare_page.css").read_text(encoding="utf-8")


def bare_page(root: str, title: str, body: Html, shared: Html | None = None) -> str:
    """Return the page around its body. ``root`` is the path of the application, ``shared`` what a link to it shows."""
    return document("server/pages.html", "page", _CSS, root=root, title=title, body=body, preview=shared or Html())


def sign_in_page(request: Request, method: Html, problem: str = "") -> str:
    """Return the page with one method of signing in, and the problem of the last attempt.

    A link to any page leads here without a session, so here is what a link shows.
    """
    body = render("server/pages.html", "sign_in", problem, method)
    return bare_page(root_of(request), "Sign in", body, preview(request))
