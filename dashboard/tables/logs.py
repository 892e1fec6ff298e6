"""Logs as tables: who did what and when, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from fastapi import Response

from dashboard.tables.list_page import Listing, orders_of
from dashboard.ui.components import Column
from dashboard.ui.templates import Html, render
from fsd_core.review.evidence import REQUIREMENT_TITLES
from fsd_core.storage.review_events import (
    AliasMoved,
    Commented,
    EvidenceChosen,
    Judged,
    Proposed,
    Requirements,
    ReviewersAsked,
    ReviewEvent,
    UseDescribed,
    Voted,
    VotingStopped,
    Waived,
    written_text,
)
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.storage.records import LoggedEvent
    from fsd_core.storage.tables import ChangeRow


# A spreadsheet runs a text that begins like this as a formula, and some skip what is blank before it.
_FORMULA = ("=", "+", "-", "@")
_BLANK = ("\t", "\r", "\n")


def harmless(value: Any) -> Any:
    """Return the value. A text that would be a formula is marked as a text."""
    if isinstance(value, str) and (value.startswith(_BLANK) or value.lstrip().startswith(_FORMULA)):
        return f"'{value}"
    return value


def download(text: str, media_type: str, name: str) -> Response:
    """Return a file to be saved. CSV begins with a mark by which Excel knows UTF-8."""
    mark, disposition = "\ufeff" if media_type == "text/csv" else "", f'attachment; filename="{name}"'
    return Response(mark + text, media_type=media_type, headers={"Content-Disposition": disposition})


_FILE = "tables/logs.html"
_CHANGES = {"when": Column("When"), "who": Column("Who"), "which": Column("Which"), "what": Column("What", "wide")}
_LONGEST = 120  # displayed characters of a note


def changes_html(changes: Sequence[ChangeRow], title: str) -> Html:
    """Return a folded table, the latest change first, or nothing without changes."""
    listing = Listing(title, _CHANGES, lambda column, one: render(_FILE, "change", column, one, sentence(one)), Html())
    return render(_FILE, "changes", title, len(changes), listing.html(changes)) if changes else Html()


def sentence(change: ChangeRow) -> str:
    """Return the text of a change."""
    if change.act == "deleted":
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


_DECISIONS = {
    "when": Column("When", "", "id", "newest first"), "who": Column("Who", "", "who"), "use": Column("Use"),
    "what": Column("What", "wide"), "words": Column("Words", "wide"),
}  # fmt: skip
_VERDICTS = {"approve": "approved", "request changes": "asked for changes", "decline": "declined"}


class Decision(NamedTuple):
    """An event of the review log with its use."""

    use: Use
    logged: LoggedEvent


def _cell(column: str, decision: Decision) -> Html:
    event = decision.logged.event
    return render(_FILE, "decision", column, *decision, _event_text(event), written_text(event))


DECISIONS = Listing("What was decided", _DECISIONS, _cell, Html(), orders_of(_DECISIONS), "when")


def requirements_text(requirements: Requirements) -> str:
    """Return requirements in words."""
    parts = []
    if requirements.margin is not None:
        parts.append(f"accuracy within {count(requirements.margin, 'point')}")
    if requirements.least_speedup is not None:
        parts.append(f"at least {requirements.least_speedup:g} × as fast by time per answer")
    if requirements.longest_answers is not None:
        parts.append(f"answers at most {requirements.longest_answers:g} × as long")
    if requirements.highest_cost is not None:
        parts.append(f"a cost of at most {requirements.highest_cost:g} per solved task")
    return ", ".join(parts) or "nothing"


def setting_link(setting: str | None) -> Html:
    """Return a link to a setting's page."""
    return render(_FILE, "setting", setting)


def _event_text(event: ReviewEvent) -> str:
    """Return an event in words, as a text or as HTML."""
    if isinstance(event, UseDescribed):
        return f"described the use “{event.name}”, which asks for {requirements_text(event.requirements)}"
    if isinstance(event, AliasMoved):
        return render(_FILE, "moved", event)
    if isinstance(event, Proposed):
        return render(_FILE, "proposed", event)
    return render(_FILE, "of_proposal", event.proposal, deed_text(event))


def deed_text(event: ReviewEvent) -> str:
    """Return the text of an event on a proposal, to follow the name of who did it."""
    if isinstance(event, EvidenceChosen):
        return f"chose other evidence: {count(len(event.runs), 'run')}, {count(len(event.baselines), 'baseline')}"
    if isinstance(event, Judged):
        return _VERDICTS[event.verdict]
    if isinstance(event, Waived):
        return f"answers for {REQUIREMENT_TITLES.get(event.requirement, event.requirement).lower()}"
    if isinstance(event, Commented):
        return f"commented on prompt {event.position + 1}" if event.position is not None else "commented"
    if isinstance(event, Voted):
        return f"voted blind on prompt {event.position + 1}: {event.choice}"
    if isinstance(event, ReviewersAsked):
        return f"asked {', '.join(event.reviewers) or 'nobody'} to review it"
    if isinstance(event, VotingStopped):
        return "votes no more, and reads the names"
    if isinstance(event, AliasMoved):
        return "took the approval back"
    return "withdrew it"
