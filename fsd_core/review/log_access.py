"""The review log as uses and proposals are read from it, and as acts are appended to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from fsd_core.errors import Overtaken, UnknownName, WrongState
from fsd_core.models.model_pairs import pair_title
from fsd_core.review import history
from fsd_core.review.history import Proposal, Use
from fsd_core.review.measured_weights import weights
from fsd_core.review.proposal_review import ProposalReview, review_of
from fsd_core.roles import Person
from fsd_core.storage.review_events import AliasMoved, ReviewEvent
from fsd_core.texts import checked_key

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent

LONGEST_USE_ID = 64


class ReviewLog:
    """The review log of one database."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def uses(self) -> list[Use]:
        """Return every use, in the order of creation."""
        return history.uses(self.repository.review_log())

    def labels(self, uses: Sequence[Use]) -> dict[str, str]:
        """Return the labels of the settings in the uses, each with its pair, by setting id."""
        ids = {proposal.setting for use in uses for proposal in use.proposals.values()}
        names = self.repository.setting_names(ids)
        return {id: f"{label} · {pair_title(pair)}" for id, (label, pair) in names.items()}

    def use(self, id: str) -> Use:
        log = self.repository.review_log(id)
        if not log:
            raise UnknownName(
                f"There is no use '{id[:LONGEST_USE_ID]}': the link is incomplete, or of another database."
            )
        return history.use(id, log)

    def approved(self, use: Use) -> str:
        """Return the id of the approved setting of a use. Raises ``UnknownName`` if none is approved."""
        if (setting := use.named("approved")) is None:
            raise unapproved(use)
        return setting

    def approved_weights(self, use: Use) -> dict[str, str]:
        """Return the measured weights of the approved setting by role; empty if they were not recorded."""
        return self._weights_of(use, use.in_force[-1]) if use.in_force else {}

    def _weights_of(self, use: Use, approval: AliasMoved) -> dict[str, str]:
        """Return the weights in the approval. An approval by an earlier version has none, so those of its runs count
        while they exist."""
        proposal = use.proposals.get(approval.proposal or "")
        if approval.weights or proposal is None:
            return approval.weights
        return weights(self.repository.runs(proposal.runs, limit=None))

    def review(self, proposal_id: str) -> ProposalReview:
        """Return a proposal with its evidence checked again."""
        for use in self.uses():
            if proposal_id in use.proposals:
                return review_of(self.repository, use, use.proposals[proposal_id])
        raise UnknownName(f"There is no proposal '{proposal_id[:32]}': the link is incomplete, or of another database.")

    def _stored(self, key: str | None, use_id: str, person: Person, act: Mapping[str, Any]) -> LoggedEvent | None:
        """Return what an act was stored as, if it was sent before."""
        if key is None:
            return None
        return self.repository.stored_event(checked_key(key), use_id, person.name, act)

    def _append(
        self, use_id: str, person: Person, events: Sequence[ReviewEvent], seen: int, key: str | None = None
    ) -> LoggedEvent:
        try:
            return self.repository.append_events(use_id, person, events, seen, key)
        except Overtaken:  # between reading and writing
            use = self.use(use_id)
            if (proposal := use.proposals.get(events[0].about or "")) and proposal.state != "open":
                raise WrongState(closed_text(proposal)) from None
            raise Overtaken(news_text(use.log[seen:])) from None

    def _append_last(self, use_id: str, person: Person, event: ReviewEvent, key: str | None) -> None:
        """Append an event that conflicts with no other, after whatever the log holds."""
        while True:
            try:
                self.repository.append_events(use_id, person, [event], self.use(use_id).sequence, key)
            except Overtaken:
                continue
            return


def unapproved(use: Use) -> UnknownName:
    """Return the error that nothing is approved for a use: yet, or since somebody took it back."""
    if (moved := use.aliases.get("approved")) is None:
        return UnknownName(f"Nothing is approved for the use '{use.id}' yet.")
    return UnknownName(
        f"Nothing is in force for the use '{use.id}': {moved.moved.who} took back what was approved, on "
        f"{moved.moved.at:%Y-%m-%d}."
    )


def closed_text(proposal: Proposal) -> str:
    """Return why a proposal takes no more acts, and what leads on."""
    more = "its use says what is in force, and the setting's page proposes it anew"
    return f"This proposal is {proposal.state}, so nothing is decided on it any more: {more}."


def news_text(entries: Sequence[LoggedEvent]) -> str:
    names = ", ".join(list(dict.fromkeys(logged.who for logged in entries))[:3])
    return f"Since this page was shown {names} acted here: look at what is new, and say it again."
