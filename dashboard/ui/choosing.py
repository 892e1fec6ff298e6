"""What a page does when something is chosen in its fields."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dashboard.ui.components import PRIVATE_EVENT
from dashboard.ui.templates import script

FOLLOWS: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of an event that shows what has been chosen: while the answer to one choice is on its way, the last of the
choices after it is kept and asked for next. Gradio's own way would be to drop them."""


def on_choice(*fields: Any) -> Any:
    """The event of something else being chosen in one of ``fields``; to be called as Gradio's own are.

    A dropdown's ``input`` comes twice for one choice, and also where its list is merely left, and an answer to it that
    fills in another field would then overwrite what was typed there meanwhile. So the choices are counted in the
    browser, where a field holds something else than when it was entered, and the event is that the count has changed.
    """
    count = gr.Textbox("0", visible="hidden")
    entered = [field.focus for field in fields if hasattr(field, "focus")]
    if entered:
        hold = script("ui/entered.js", ID=count._id)
        gr.on(entered, None, [*fields], None, js=hold, trigger_mode="multiple", **PRIVATE_EVENT)
    settle, tell = script("ui/settle.js"), script("ui/chosen.js", ID=count._id)
    settled = gr.on([field.input for field in fields], None, js=settle, trigger_mode="multiple", **PRIVATE_EVENT)
    settled.then(None, [*fields], count, js=tell, trigger_mode="multiple", **PRIVATE_EVENT)
    return count.change
