"""A plain page, for what stands outside of the application: signing in, and addresses that lead nowhere."""

from __future__ import annotations

from pathlib import Path

from dashboard.ui.templates import Html, document, render

_CSS = (Path(__file__).parent / "bare_page.css").read_text(encoding="utf-8")


def bare_page(title: str, body: Html) -> str:
    """The page around its body."""
    return document("server/pages.html", "page", _CSS, title=title, body=body)


def sign_in_page(way: Html, problem: str = "") -> str:
    """The page with one way to sign in, and what was wrong with the last try."""
    return bare_page("Sign in", render("server/pages.html", "sign_in", problem, way))
