"""The review log as a table: who did what, when, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.components import Column, link, table
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render
from fsd_core.review.evidence import REQUIREMENT_TITLES
from fsd_core.storage.review_events import (
    Act,
    AliasMoved,
    Judged,
    Proposed,
    Remarked,
    UseDescribed,
    Voted,
    Waived,
    Withdrawn,
)

if TYPE_CHECKING:
    from fsd_core.review.history import Use
    from fsd_core.storage.records import LoggedEvent

_COLUMNS = (Column("When"), Column("Who"), Column("Use"), Column("What", "wide"), Column("Words", "wide"))
_VERDICTS = {"approve": "approved", "request changes": "asked for changes", "decline": "declined"}


def acts_html(acts: Sequence[tuple[Use, LoggedEvent]]) -> Html:
    """Acts, each with its use, in the order given."""
    rows = [
        (
            moment(logged.at),
            render("tables/logs.html", "who", logged),
            link(f"/review?use={use.id}", use.name),
            _what(logged.act),
            words(logged.act),
        )
        for use, logged in acts
    ]
    return table(_COLUMNS, rows, "What was decided")


def words(act: Act) -> str:
    """What a person wrote with an act; empty where nothing."""
    if isinstance(act, Proposed):
        return act.rationale
    if isinstance(act, UseDescribed):
        return act.description
    if isinstance(act, Waived | Remarked):
        return act.words
    return getattr(act, "comment", "")


def setting_link(setting: str | None) -> Html:
    """A link to a setting's page."""
    return render("tables/logs.html", "setting", setting)


def _what(act: Act) -> str:
    """An act in words, as a text or as HTML."""
    if isinstance(act, UseDescribed):
        return f"described the use “{act.name}”"
    if isinstance(act, AliasMoved):
        return render("tables/logs.html", "moved", act)
    if isinstance(act, Proposed):
        return render("tables/logs.html", "proposed", act)
    return render("tables/logs.html", "of_proposal", act.proposal, _done(act))


def _done(act: Judged | Waived | Remarked | Voted | Withdrawn) -> str:
    """What was done with a proposal."""
    if isinstance(act, Judged):
        return _VERDICTS[act.verdict]
    if isinstance(act, Waived):
        return f"answers for {REQUIREMENT_TITLES.get(act.requirement, act.requirement).lower()}"
    if isinstance(act, Remarked):
        return f"commented on prompt {act.position + 1}" if act.position is not None else "commented"
    if isinstance(act, Voted):
        return f"voted blind on prompt {act.position + 1}: {act.choice}"
    return "withdrew it"
