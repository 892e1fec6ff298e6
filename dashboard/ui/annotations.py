"""Annotations of a run or an experiment as HTML: its tags, whether it is archived, and the archive button."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.ui.actions import button
from dashboard.ui.templates import Html, render

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView


def tags_html(view: RunView | ExperimentView) -> Html:
    """Return the tags and a mark if it is archived, or nothing without either."""
    return render("ui/links.html", "tags", view.tags, view.archived) if view.archived or view.tags else Html()


def archive_button(kind: str, view: RunView | ExperimentView) -> Html:
    """Return a button that hides it from lists or lists it again."""
    return button(
        *(("unarchive", kind, view.id, "Unarchive") if view.archived else ("archive", kind, view.id, "Archive"))
    )
