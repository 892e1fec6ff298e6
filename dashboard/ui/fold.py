"""A part of a page that stays folded, and is not drawn, until somebody opens it."""

from __future__ import annotations

import gradio as gr

from dashboard.ui.question import Asked
from dashboard.ui.templates import script
from dashboard.ui.view import View


class Fold:
    """An expander, in whose context (``with fold.part:``) its components are made. The page asks when it is opened or
    closed."""

    def __init__(self, name: str, title: str) -> None:
        self._wanted = f"fold {name}"
        self.part = gr.Accordion(title, open=False, elem_id=f"fold-{name}")

    def listen(self, view: View) -> None:
        """Attach the events."""
        for trigger, is_open in ((self.part.expand, True), (self.part.collapse, False)):
            view.by_script(trigger, [], script("ui/fold.js", NAME=self._wanted, OPEN=is_open))

    def is_open(self, asked: Asked, *, at_first: bool = False) -> bool:
        """Return whether the browser shows what is in it: what a person did last, or else whether it was ever open
        ``at_first``."""
        last = asked.wanted(self._wanted)
        if isinstance(last, bool):
            return last
        if at_first:
            asked.shown[self._wanted] = "open"
        return self._wanted in asked.shown
