"""A field in which one of the compared runs is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.question import Asked

if TYPE_CHECKING:
    import gradio as gr

    from fsd_core.storage.records import RunView


def chosen_run(
    asked: Asked, field: gr.Dropdown, name: str, runs: Sequence[RunView], default: RunView | None, compared: object
) -> str | None:
    """Return the id of the run that is chosen, or that of ``default`` where the field holds none of ``runs``.

    The field is filled in then. If something else is compared, a new default replaces the last one, but no run that a
    person has chosen. ``name`` is that of the field on the page.
    """
    chosen, memory = asked[field], f"default of {name}"
    anew = asked.differs(name, compared)
    if chosen not in {run.id for run in runs} or (anew and chosen == asked.shown.get(memory)):
        chosen = default.id if default else None
        asked.shown[memory] = chosen or ""
    asked.fill(field, chosen)
    return chosen
