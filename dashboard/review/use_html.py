"""Uses as HTML: the list of all, and one with its aliases, its proposals and its log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dashboard.review.log_files import links_html
from dashboard.tables.review_log import events_html, requirements_text, setting_link
from dashboard.tables.weights_html import weights_html
from dashboard.ui.components import Column, empty_state, link, pill, section, table
from dashboard.ui.quantities import DASH, ago
from dashboard.ui.templates import Html, joined, render
from fsd_core.formatting import count
from fsd_core.review.log_access import unapproved

if TYPE_CHECKING:
    from fsd_core.review.approvals import Approval
    from fsd_core.review.history import Awaited, Proposal, Use

_USES = (
    Column("Use", "wide"), Column("Asks for", "wide"), Column("Approved", "wide"), Column("Under review", "num"),
    Column("Last act"),
)  # fmt: skip
_WAITING = (Column("Setting", "wide"), Column("Use", "wide"), Column("Waits for"), Column("By"), Column("Proposed"))
_PROPOSALS = (Column("Setting", "wide"), Column("By"), Column("Proposed"), Column("Evidence", "num"), Column("State"))


def uses_html(uses: Sequence[Use], labels: Mapping[str, str]) -> Html:
    """Return all uses. ``labels`` maps ids of settings to their labels."""
    if not uses:
        return empty_state(
            "No use yet",
            "A use says what a setting is wanted for, and what it must keep. Make the first one below; then open a "
            "setting and propose it.",
            ("settings", "See the settings"),
        )
    rows = [
        (
            link(f"review?use={use.id}", use.name),
            requirements_text(use.requirements),
            _named(use.named("approved"), labels),
            str(sum(proposal.state == "open" for proposal in use.proposals.values())),
            ago(use.log[-1].at),
        )
        for use in uses
    ]
    return table(_USES, rows, "Uses")


def waiting_html(waiting: Sequence[tuple[Use, Proposal, Awaited]], labels: Mapping[str, str]) -> Html:
    """Return the proposals that wait for somebody's verdict or changes; nothing if none does."""
    if not waiting:
        return Html()
    rows = [
        (
            link(f"review?proposal={proposal.id}", labels.get(proposal.setting, proposal.setting)),
            link(f"review?use={use.id}", use.name),
            f"your {awaited}",
            proposal.author,
            ago(proposal.at),
        )
        for use, proposal, awaited in waiting
    ]
    return joined([section("Waiting for me"), table(_WAITING, rows, "Waiting for me")])


def _named(setting: str | None, labels: Mapping[str, str]) -> str:
    return DASH if setting is None else joined([labels.get(setting, ""), " ", setting_link(setting)])


def use_html(use: Use, labels: Mapping[str, str], approval: Approval | None) -> Html:
    """Return one use with all that was decided for it. ``approval``: the one in force."""
    measured = use.in_force[-1].weights if use.in_force else {}
    return render(
        "review/use.html",
        "use",
        use,
        requirements_text=requirements_text(use.requirements),
        approved=_named(use.named("approved"), labels) if use.named("approved") else str(unapproved(use)),
        weights=weights_html(measured) if measured else "",
        approval=approval,
        candidate=_named(use.named("candidate"), labels),
        proposals=_proposals(use, labels),
        exports=links_html(use.id),
        events=events_html([(use, logged) for logged in reversed(use.log)]),
    )


def _proposals(use: Use, labels: Mapping[str, str]) -> Html:
    """Return a use's proposals, newest first."""
    if not use.proposals:
        return empty_state("Nothing proposed yet", "Open a setting and propose it.", ("settings", "See the settings"))
    proposals = sorted(use.proposals.values(), key=lambda proposal: proposal.at, reverse=True)
    return table(_PROPOSALS, [_proposal(proposal, labels) for proposal in proposals], "Proposals")


def _proposal(proposal: Proposal, labels: Mapping[str, str]) -> tuple[str, ...]:
    label = labels.get(proposal.setting, proposal.setting)
    return (
        link(f"review?proposal={proposal.id}", label),
        proposal.author,
        ago(proposal.at),
        count(len(proposal.runs), "run"),
        pill(proposal.state),
    )
