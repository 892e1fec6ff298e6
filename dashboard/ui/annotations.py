"""What people say of a run or an experiment, as HTML: tags, whether it is archived, and the button that archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.ui.actions import button
from dashboard.ui.templates import Html, render

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView


def tags_html(view: RunView | ExperimentView) -> Html:
    """Its tags, and a mark where it is archived; nothing where there is neither."""
    return render("ui/links.html", "tags", view.tags, view.archived) if view.archived or view.tags else Html()


def archive_button(kind: str, view: RunView | ExperimentView) -> Html:
    """Hides it from lists, or shows it there again."""
    return button(
        *(("unarchive", kind, view.id, "Unarchive") if view.archived else ("archive", kind, view.id, "Archive"))
    )
