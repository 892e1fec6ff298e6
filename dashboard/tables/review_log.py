"""The review log as a table: who did what, when, and in which words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.components import Column, escape, table
from dashboard.ui.quantities import moment
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


def acts_html(acts: Sequence[tuple[Use, LoggedEvent]]) -> str:
    """Acts, each with its use, in the order given."""
    rows = [
        (
            escape(moment(logged.at)),
            f'{escape(logged.who)} <span class="fsd-faded">{escape(logged.role)}</span>',
            f'<a href="/review?use={escape(use.id)}">{escape(use.name)}</a>',
            _what(logged.act),
            escape(words(logged.act)),
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


def setting_link(setting: str | None) -> str:
    """A link to a setting's page."""
    if setting is None:
        return "nothing"
    return f'<a href="/settings?setting={escape(setting)}"><code>{escape(setting[:8])}</code></a>'


def _what(act: Act) -> str:
    """An act in words, as HTML."""
    if isinstance(act, UseDescribed):
        return escape(f"described the use “{act.name}”")
    if isinstance(act, AliasMoved):
        return f"{escape(act.alias)}: {setting_link(act.former)} → {setting_link(act.setting)}"
    proposal = f'<a href="/review?proposal={escape(act.proposal)}">proposal {escape(act.proposal[:8])}</a>'
    if isinstance(act, Proposed):
        return f"{proposal}: proposed {setting_link(act.setting)}"
    if isinstance(act, Judged):
        return f"{proposal}: {escape(_VERDICTS[act.verdict])}"
    if isinstance(act, Waived):
        return f"{proposal}: answers for {escape(REQUIREMENT_TITLES.get(act.requirement, act.requirement).lower())}"
    if isinstance(act, Remarked):
        where = f" on prompt {act.position + 1}" if act.position is not None else ""
        return f"{proposal}: commented{where}"
    if isinstance(act, Voted):
        return f"{proposal}: voted blind on prompt {act.position + 1}: {escape(act.choice)}"
    assert isinstance(act, Withdrawn)
    return f"{proposal}: withdrew it"
