"""What a page does when something is chosen in its fields."""

from __future__ import annotations

from typing import Any

import gradio as gr

from dashboard.ui.components import PRIVATE_EVENT

FOLLOWS: dict[str, Any] = PRIVATE_EVENT | {"trigger_mode": "always_last"}
"""Options of an event that shows what has been chosen: while the answer to one choice is on its way, the last of the
choices after it is kept and asked for next. Gradio's own way would be to drop them."""

# An input event may come before the value that it tells of has reached the other side of the page.
_SETTLE = "() => new Promise((done) => setTimeout(() => done([]), 40))"
# Kept in the page, by the id of the event: what the fields held when one was entered or chosen last, and how many
# choices there have been. An input that is no choice answers with the same number.
_ENTERED = """(...held) => {
  const kept = (window.fsdChoices ??= {})[%(id)d] ??= {count: 0};
  kept.held = JSON.stringify(held);
}"""
_CHOSEN = """(...now) => {
  const kept = (window.fsdChoices ??= {})[%(id)d] ??= {count: 0}, said = JSON.stringify(now);
  if (kept.held !== said) kept.count += 1;
  kept.held = said;
  return String(kept.count);
}"""


def on_choice(*fields: Any) -> Any:
    """The event of something else being chosen in one of ``fields``; to be called as Gradio's own are.

    A dropdown's ``input`` comes twice for one choice, and also where its list is merely left, and an answer to it that
    fills in another field would then overwrite what was typed there meanwhile. So the choices are counted in the
    browser, where a field holds something else than when it was entered, and the event is that the count has changed.
    """
    count = gr.Textbox("0", visible="hidden")
    event = {"id": count._id}
    entered = [field.focus for field in fields if hasattr(field, "focus")]
    if entered:
        gr.on(entered, None, [*fields], None, js=_ENTERED % event, trigger_mode="multiple", **PRIVATE_EVENT)
    settled = gr.on([field.input for field in fields], None, js=_SETTLE, trigger_mode="multiple", **PRIVATE_EVENT)
    settled.then(None, [*fields], count, js=_CHOSEN % event, trigger_mode="multiple", **PRIVATE_EVENT)
    return count.change
