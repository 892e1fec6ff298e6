"""A plain page outside of the application: for signing in, and for addresses that lead nowhere."""

from __future__ import annotations

from pathlib import Path

from dashboard.ui.templates import Html, document, render

_CSS = (Path(__file__).parent / "bare_page.css").read_text(encoding="utf-8")


def bare_page(title: str, body: Html) -> str:
    """Return the page around its body."""
    return document("server/pages.html", "page", _CSS, title=title, body=body)


def sign_in_page(method: Html, problem: str = "") -> str:
    """Return the page with one method of signing in, and the problem of the last attempt."""
    return bare_page("Sign in", render("server/pages.html", "sign_in", problem, method))
