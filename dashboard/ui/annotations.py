"""What people say of a run or an experiment, as HTML: tags, whether it is archived, and the button that archives."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.ui.actions import button
from dashboard.ui.components import escape

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView


def tags_html(view: RunView | ExperimentView) -> str:
    """Its tags, and a mark where it is archived; nothing where there is neither."""
    archived = ['<span class="fsd-tag archived">archived</span>'] if view.archived else []
    tags = [f'<span class="fsd-tag">{escape(tag)}</span>' for tag in view.tags]
    return f'<span class="fsd-tags">{"".join([*archived, *tags])}</span>' if archived or tags else ""


def archive_button(kind: str, view: RunView | ExperimentView) -> str:
    """Hides it from lists, or shows it there again."""
    return button(
        *(("unarchive", kind, view.id, "Unarchive") if view.archived else ("archive", kind, view.id, "Archive"))
    )
