"""A plain page, for what stands outside of the application: signing in, and addresses that lead nowhere."""

from __future__ import annotations

from pathlib import Path

from dashboard.ui.components import escape

_CSS = (Path(__file__).parent / "bare_page.css").read_text(encoding="utf-8")


def bare_page(title: str, body: str) -> str:
    """The page; ``body`` is HTML already."""
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)} – FSD Lab</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_CSS}</style></head><body>'
        f'<main class="bare">{body}</main></body></html>'
    )
