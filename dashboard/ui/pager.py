"""Previous and next, with the position between them, for lists that are longer than a page."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dashboard.ui.components import show
from dashboard.ui.templates import render
from fsd_core.formatting import count


def turned(name: str, of: str, page: int) -> dict[str, object]:
    """Return the attributes by which ``view.js`` knows the displayed page of the list ``of``."""
    return {"data-pager": name, "data-of": of, "data-page": page}


class Pager:
    """Two buttons and a line between them. A script turns the page (``turn`` in ``view.js``)."""

    def __init__(self, size: int, noun: str) -> None:
        self.size = size
        self.noun = noun
        self.name = f"page of {noun}s"
        with gr.Row(elem_classes=["fsd-pager"], visible=False) as self.row:
            self.back = gr.Button("Previous", size="sm", min_width=80, scale=0)
            self.position = show()
            self.forward = gr.Button("Next", size="sm", min_width=80, scale=0)

    @property
    def parts(self) -> list[Any]:
        """Components that :meth:`updates` may change."""
        return [self.row, self.back, self.position, self.forward]

    @property
    def steps(self) -> tuple[tuple[gr.Button, int], ...]:
        """The buttons with the step of each."""
        return (self.back, -1), (self.forward, 1)

    def clamp(self, page: int, total: int) -> int:
        """Return the nearest existing page for ``total`` items."""
        return max(0, min(page, (total - 1) // self.size))

    def updates(self, page: int, total: int, of: str) -> dict[Any, Any]:
        """Return the components for ``page`` (clamped) of ``total`` items. ``of`` identifies the list."""
        first, last = page * self.size + 1, min(total, (page + 1) * self.size)
        texts = f"{first:,}", f"{last:,}", count(total, self.noun)
        return {
            self.row: gr.Row(visible=total > self.size),
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=last < total),
            self.position: render("ui/page.html", "position", *texts, turned(self.name, of, page)),
        }
