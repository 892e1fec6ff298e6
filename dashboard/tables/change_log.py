"""The log of names, notes, tags, archiving and deletions as a table: who did what and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dashboard.ui.components import Column, table
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render
from fsd_core.formatting import count

if TYPE_CHECKING:
    from fsd_core.storage.records import LoggedChange

_COLUMNS = (Column("When"), Column("Who"), Column("Which"), Column("What", "wide"))
_LONGEST = 120  # displayed characters of a note


def changes_html(changes: Sequence[LoggedChange], title: str) -> Html:
    """Return a folded table, the latest change first, or nothing without changes."""
    if not changes:
        return Html()
    rows = [
        (
            moment(change.at),
            render("tables/logs.html", "who", change),
            render("tables/logs.html", "which", change),
            sentence(change),
        )
        for change in changes
    ]
    return render("tables/logs.html", "changes", title, len(rows), table(_COLUMNS, rows, title))


def sentence(change: LoggedChange) -> str:
    """Return the text of a change."""
    if change.action == "deleted":
        deletion = change.change
        runs = f"{count(deletion.get('runs', 0), 'run')} and " if change.kind == "experiment" else ""
        return f"deleted “{deletion.get('name', '')}” with {runs}{count(deletion.get('prompts', 0), 'prompt')}"
    return "; ".join(_part(name, *values) for name, values in change.change.items())


def _part(name: str, old: Any, new: Any) -> str:
    if name == "archived":
        return "archived it" if new else "took it out of the archive"
    if name == "name":
        return f"renamed it from “{old}” to “{new}”"
    if name == "tags":
        return f"tags: {new or 'none'}, before: {old or 'none'}"
    return f"note: {_short(new) or 'none'}, before: {_short(old) or 'none'}"


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"
