"""The review log as a table: who did what and when, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.components import Column, link, table
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render
from fsd_core.formatting import count
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

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.storage.records import LoggedEvent

_COLUMNS = (Column("When"), Column("Who"), Column("Use"), Column("What", "wide"), Column("Words", "wide"))
_VERDICTS = {"approve": "approved", "request changes": "asked for changes", "decline": "declined"}


def events_html(events: Sequence[tuple[Use, LoggedEvent]]) -> Html:
    """Return events, each with its use, in the order given."""
    rows = [
        (
            moment(logged.at),
            render("tables/logs.html", "who", logged),
            link(f"review?use={use.id}", use.name),
            _event_text(logged.event),
            written_text(logged.event),
        )
        for use, logged in events
    ]
    return table(_COLUMNS, rows, "What was decided")


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
    return render("tables/logs.html", "setting", setting)


def _event_text(event: ReviewEvent) -> str:
    """Return an event in words, as a text or as HTML."""
    if isinstance(event, UseDescribed):
        return f"described the use “{event.name}”, which asks for {requirements_text(event.requirements)}"
    if isinstance(event, AliasMoved):
        return render("tables/logs.html", "moved", event)
    if isinstance(event, Proposed):
        return render("tables/logs.html", "proposed", event)
    return render("tables/logs.html", "of_proposal", event.proposal, deed_text(event))


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
