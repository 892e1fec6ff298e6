"""A candidate beside what is approved, as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.tables.review_log import setting_link
from dashboard.ui.components import Column, pill, section, table
from dashboard.ui.templates import Html, joined, render
from fsd_core.formatting import count
from fsd_core.review.evidence import REQUIREMENT_TITLES

if TYPE_CHECKING:
    from dashboard.tables.prompt_pairs import Pairing
    from fsd_core.review.beside_approved import BesideApproved

_COLUMNS = (
    Column("Requirement"), Column("Candidate", "wide"), Column("Outcome"), Column("Approved", "wide"),
    Column("Its outcome"),
)  # fmt: skip


def beside_html(beside: BesideApproved | None) -> Html:
    """Return each requirement for both settings; nothing without something else that is approved."""
    if beside is None:
        return Html()
    rows = [
        (
            REQUIREMENT_TITLES[pair.candidate.requirement],
            pair.candidate.text,
            pill(pair.candidate.outcome),
            pair.approved.text,
            pill(pair.approved.outcome),
        )
        for pair in beside.requirements
    ]
    lead = render("review/proposal.html", "beside", setting_link(beside.proposal.setting), bool(beside.candidate_runs))
    return joined([section("Beside what is approved"), lead, table(_COLUMNS, rows, "Beside what is approved")])


def wins_html(pairing: Pairing) -> Html:
    """Return on how many prompts the candidate is better or worse than what is approved."""
    won, lost = pairing.count(True, False), pairing.count(False, True)
    text = "Both were never measured on the same prompts: measure the candidate on those of the approved setting."
    if pairing.pairs:
        text = (
            f"Of {count(len(pairing.pairs), 'prompt')} the candidate alone solves {won:,}, what is approved alone "
            f"{lost:,}, both {pairing.count(True, True):,}. First those that what is approved solves and the candidate "
            "does not."
        )
    return render("review/discussion.html", "faded", text)
