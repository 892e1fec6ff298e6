"""Events of a page for choices in its fields."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dashboard.ui.components import PRIVATE_EVENT
from dashboard.ui.templates import script

FOLLOWS: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of an event that displays a choice. While one choice is being answered, the last one after it is queued.
Gradio's default would drop it."""


def on_choice(*fields: Any) -> Any:
    """Return the event that another value is chosen in one of ``fields``. It is called like Gradio's own events.

    A dropdown's ``input`` fires twice for one choice, and also when its list is closed without a choice. An answer to
    it that fills in another field would then overwrite what was typed there meanwhile. So the browser counts choices: a
    field counts if it holds another value than when it was entered. The event is a change of this count.
    """
    count = gr.Textbox("0", visible="hidden")
    entered = [field.focus for field in fields if hasattr(field, "focus")]
    if entered:
        on_entry = script("ui/entered.js", ID=count._id)
        gr.on(entered, None, [*fields], None, js=on_entry, trigger_mode="multiple", **PRIVATE_EVENT)
    texts = [field for field in fields if isinstance(field, gr.Textbox)]
    if texts:  # their input event fires for keys that write a character, and not where text is pasted or deleted
        on_change = script("ui/typed.js", ID=count._id)
        changes = [field.change for field in texts]
        gr.on(changes, None, [*fields], count, js=on_change, trigger_mode="multiple", **PRIVATE_EVENT)
    on_input, on_settled = script("ui/settle.js", ID=count._id), script("ui/chosen.js", ID=count._id)
    inputs = [field.input for field in fields if field not in texts]
    settled = gr.on(inputs, None, js=on_input, trigger_mode="multiple", **PRIVATE_EVENT)
    settled.then(None, [*fields], count, js=on_settled, trigger_mode="multiple", **PRIVATE_EVENT)
    return count.change
