"""Checks before an act of a person in a review is appended to its log."""

from __future__ import annotations

from fsd_core.errors import Overtaken, Refused, UnfitEvidence, WrongState
from fsd_core.review.evidence import REQUIREMENT_TITLES
from fsd_core.review.log_access import closed_text, news_text
from fsd_core.review.proposal_review import ProposalReview
from fsd_core.roles import Person, same_name
from fsd_core.storage.review_events import ReviewersAsked, Voted, VotingStopped

_ASIDE = Voted | VotingStopped | ReviewersAsked
"""events that are no news to a reviewer"""


def check_open(review: ProposalReview) -> None:
    """Raise ``InvalidSetting`` if the proposal takes no more acts."""
    if review.proposal.state != "open":
        raise WrongState(closed_text(review.proposal))


def check_evidence(review: ProposalReview, shown: str) -> None:
    """Raise ``Overtaken`` unless the evidence is what the person was ``shown``."""
    if shown != review.hash:
        raise Overtaken("The evidence has changed since this page showed it: look at its figures, and say it again.")


def check_author(person: Person, review: ProposalReview, what: str) -> None:
    """Raise ``Refused``, with ``what`` such as "Withdrawing it", for others than the proposal's author and admins."""
    if not review.proposal.is_by(person.name) and (person.is_program or not person.may("admin")):
        raise Refused(f"{what} is for its author, {review.proposal.author}, and for admins.")


def check_seen(review: ProposalReview, person: Person, seen: int) -> None:
    """Raise ``Overtaken`` if others have acted on the proposal after the log entry ``seen``."""
    later = [logged for logged in review.use.about(review.proposal.id) if logged.sequence > seen]
    others = [logged for logged in later if not same_name(logged.who, person.name)]
    if news := [entry for entry in others if not isinstance(entry.event, _ASIDE)]:
        raise Overtaken(news_text(news))


def check_gate(review: ProposalReview) -> None:
    """Raise ``InvalidSetting`` unless the evidence allows an approval."""
    if review.missing:
        raise UnfitEvidence("Runs of its evidence were deleted: the author must choose others first.")
    if review.open_requirements:
        unsettled = ", ".join(REQUIREMENT_TITLES[name].lower() for name in review.open_requirements)
        raise UnfitEvidence(
            f"The evidence does not settle {unsettled}: measure more prompts, or have somebody answer for it in words."
        )
