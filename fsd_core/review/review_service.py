"""Actions of people in a review, and the errors for actions that are refused."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4
from weakref import WeakKeyDictionary

from fsd_core.errors import (
    DataDamaged,
    Malformed,
    NotGiven,
    Overtaken,
    Refused,
    Taken,
    UnderReview,
    UnfitEvidence,
    UnknownChoice,
    WrongState,
)
from fsd_core.review import history
from fsd_core.review.approvals import LONGEST_USE_ID, ReviewLog, closed_text, news_text, setting_of
from fsd_core.review.blinding import checked_passage
from fsd_core.review.evidence import REQUIREMENT_TITLES, certain_weights
from fsd_core.review.history import ProposalReview, Use, checked_reviewers, requirement_names, uses_of
from fsd_core.roles import Person, require, require_person, same_name
from fsd_core.storage.review_events import (
    AliasMoved,
    Choice,
    Commented,
    EvidenceChosen,
    Judged,
    Proposed,
    Requirements,
    ReviewersAsked,
    ReviewEvent,
    UseDescribed,
    Verdict,
    Voted,
    VotingStopped,
    Waived,
    Withdrawn,
)
from fsd_core.texts import slug

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


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


_APPROVED, _PROPOSED = "an approval in force", "a proposal"
_tables: WeakKeyDictionary[Repository, tuple[int, dict[str, dict[str, str]]]] = WeakKeyDictionary()
"""by repository: the last event that was read, and by run the names of uses, each with what rests on it"""


def resting_on(repository: Repository, runs: Iterable[str]) -> str:
    """Return a sentence that names the uses whose evidence some runs are; empty if there are none.

    Evidence is what an approval in force rests on, or a proposal that is open or was approved before.
    """
    named: dict[str, str] = {}
    try:
        table = _table(repository)
    except DataDamaged as error:
        return f"Nobody can tell what rests on it. {error}"
    for run in runs:
        for use, what in table.get(run, {}).items():
            if named.get(use) != _APPROVED:
                named[use] = what
    if not named:
        return ""
    listed = ", ".join(f"{what} for “{use}”" for use, what in sorted(named.items()))
    return f"Evidence of it is lost, on which these rest: {listed}."


def _table(repository: Repository) -> dict[str, dict[str, str]]:
    """Return the uses by run. The log only grows, so it is read again when it has a new event."""
    last = repository.last_review_event()
    known = _tables.get(repository)
    if known is None or known[0] != last:
        known = last, _read(repository)
        _tables[repository] = known
    return known[1]


def _read(repository: Repository) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for use in uses_of(repository.review_log()):
        for proposal in use.proposals.values():
            if proposal.state not in ("declined", "withdrawn"):
                what = _APPROVED if proposal.state == "approved" else _PROPOSED
                for run in (*proposal.runs, *proposal.baselines):
                    if table.setdefault(run, {}).get(use.name) != _APPROVED:
                        table[run][use.name] = what
    return table


class UseService(ReviewLog):
    """Acts on uses. For the errors and ``key``, see :class:`ReviewService`."""

    def describe(
        self,
        person: Person,
        name: str,
        description: str = "",
        requirements: Requirements | None = None,
        approvals: int = 1,
        days: int | None = None,
        key: str | None = None,
    ) -> Use:
        """Make a use."""
        require(person, "author", "Making a use")
        event = UseDescribed.checked(
            name=name.strip(),
            description=description.strip(),
            requirements=requirements or Requirements(),
            approvals=approvals,
            days=days,
        )
        id = id_of(event.name)
        if not self._stored(key, id, person, event.as_json()):
            if log := self.repository.review_log(id):
                raise Taken(f"There is a use of the name “{history.use(id, log).name}” already: choose another name.")
            self._append(id, person, [event], 0, key)
        return self.use(id)

    def change_use(
        self, person: Person, use_id: str, changes: Mapping[str, Any], seen: int, key: str | None = None
    ) -> Use:
        """Change parts of a use: fields of ``UseDescribed``, with some of the ``requirements`` by name.

        Open proposals are held against the new requirements, so verdicts on them become stale, as does the approval
        in force. Raises ``Overtaken`` if somebody changed the use after the log entry ``seen``.
        """
        require_person(person, "admin", "Changing a use")
        use = self.use(use_id)
        former = use.described
        asked = {**former.requirements.model_dump(), **(changes.get("requirements") or {})}
        fields = {name: getattr(former, name) for name in UseDescribed.model_fields if name != "kind"}
        fields |= {**changes, "requirements": Requirements.named(asked)}
        event = UseDescribed.checked(**{n: v.strip() if isinstance(v, str) else v for n, v in fields.items()})
        if self._stored(key, use_id, person, event.as_json()):
            return use
        if use.described_at > seen:
            raise Overtaken(news_text([logged for logged in use.log if logged.sequence == use.described_at]))
        if event == former:
            raise WrongState("The use asks for this already: change something first.")
        self._append(use_id, person, [event], use.sequence, key)
        return self.use(use_id)

    def roll_back(self, person: Person, use_id: str, comment: str, seen: int, key: str | None = None) -> str | None:
        """Move the alias ``approved`` back to its previous setting and return that setting."""
        require_person(person, "admin", "Rolling back")
        use = self.use(use_id)
        if stored := self._stored(key, use_id, person, {"kind": "alias-moved", "comment": comment.strip()}):
            return getattr(stored.event, "setting", None)
        if seen != use.sequence:
            taken_back = "Nothing is approved here since this page was shown: the log below says who took it back."
            raise Overtaken(news_text(use.log[seen:]) if use.named("approved") else taken_back)
        if not comment.strip():
            raise NotGiven("Say why it is rolled back: a comment is needed.")
        if use.named("approved") is None:
            raise WrongState("Nothing is approved for this use, so nothing can be rolled back.")
        earlier = use.in_force[:-1]  # rolling back twice goes back two steps
        event = AliasMoved.checked(
            alias="approved",
            setting=earlier[-1].setting if earlier else None,
            former=use.named("approved"),
            comment=comment.strip(),
            weights=self._weights_of(use, earlier[-1]) if earlier else {},
        )
        self._append(use_id, person, [event], use.sequence, key)
        return event.setting


def id_of(name: str) -> str:
    """Return the id of a use for URLs: its name in lower-case letters, digits and hyphens."""
    id = slug(unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode(), LONGEST_USE_ID)
    if not id:
        raise Malformed(f"The name “{name[:40]}” has no letter or digit of its own for an address: add one.")
    return id


class ReviewService(UseService):
    """Uses, proposals and verdicts of one database. Each act reads the log, checks, and appends to it.

    All raise ``Refused`` for missing permission, ``InvalidSetting`` for impossible input, ``UnknownName`` for missing
    entries, and ``Overtaken`` if what the page showed has changed (``seen``: the sequence number of the last log entry
    on the page; ``evidence``: the hash of its evidence). An act with a ``key`` of 32 hexadecimal digits is done once,
    however often it is sent.
    """

    def propose(
        self,
        person: Person,
        use_id: str,
        runs: Sequence[str],
        baselines: Sequence[str],
        rationale: str = "",
        requirements: Requirements | None = None,
        key: str | None = None,
        reviewers: Sequence[str] = (),
    ) -> str:
        """Propose the setting of ``runs`` as a use's candidate, and return the proposal's id. ``reviewers`` are asked
        for a verdict."""
        require(person, "author", "Proposing a setting")
        use = self.use(use_id)
        asked = {"kind": "proposed", "runs": runs, "baselines": baselines, "rationale": rationale.strip()}
        if stored := self._stored(key, use_id, person, asked):
            return stored.event.about or ""
        setting = setting_of(self.repository, runs, baselines)
        asked_of = checked_reviewers(self.repository, reviewers, [person.owner or person.name])
        effective = requirements or use.requirements
        for proposal in use.proposals.values():
            if proposal.setting == setting and proposal.state == "open":
                raise UnderReview(proposal.id)
        id = uuid4().hex
        proposed = Proposed.checked(
            proposal=id,
            setting=setting,
            requirements=effective,
            runs=tuple(runs),
            baselines=tuple(baselines),
            rationale=rationale.strip(),
            reviewers=asked_of,
        )
        moved = AliasMoved(alias="candidate", setting=setting, former=use.named("candidate"), proposal=id)
        return self._append(use_id, person, [proposed, moved], use.sequence, key).event.about or ""

    def choose_evidence(
        self,
        person: Person,
        review: ProposalReview,
        runs: Sequence[str],
        baselines: Sequence[str],
        comment: str = "",
        evidence: str | None = None,
        key: str | None = None,
    ) -> None:
        """Rest an open proposal on other runs of its setting. Verdicts and waivers on the former ones become stale."""
        require(person, "author", "Choosing other evidence")
        proposal, shown = review.proposal, review.hash if evidence is None else evidence
        event = EvidenceChosen.checked(
            proposal=proposal.id, runs=tuple(runs), baselines=tuple(baselines), comment=comment.strip()
        )
        if self._stored(key, review.use.id, person, event.as_json()):
            return
        check_open(review)
        check_author(person, review, "Choosing other evidence")
        check_evidence(review, shown)
        if setting_of(self.repository, event.runs, event.baselines) != proposal.setting:
            raise UnfitEvidence("These runs are of another setting than the proposal's: propose that one instead.")
        if (event.runs, event.baselines) == (proposal.runs, proposal.baselines):
            raise UnfitEvidence("The proposal rests on these runs already: choose others.")
        self._append(review.use.id, person, [event], review.use.sequence, key)

    def ask_reviewers(
        self, person: Person, review: ProposalReview, reviewers: Sequence[str], key: str | None = None
    ) -> None:
        """Ask these people for a verdict, in place of those who were asked before."""
        require(person, "author", "Asking for a review")
        by = [review.proposal.author, review.proposal.owner or ""]
        asked = checked_reviewers(self.repository, reviewers, by)
        event = ReviewersAsked.checked(proposal=review.proposal.id, reviewers=asked)
        if self._stored(key, review.use.id, person, event.as_json()):
            return
        check_open(review)
        if asked != tuple(review.proposal.reviewers):
            self._append_last(review.use.id, person, event, key)

    def waive(
        self,
        person: Person,
        review: ProposalReview,
        requirement: str,
        reason: str,
        evidence: str | None = None,
        key: str | None = None,
    ) -> None:
        """Waive a requirement that the evidence does not meet, with the name of the person and a reason."""
        require_person(person, "author", "Answering for a requirement")
        shown = review.hash if evidence is None else evidence
        event = Waived.checked(
            proposal=review.proposal.id, requirement=requirement, words=reason.strip(), evidence=shown
        )
        if self._stored(key, review.use.id, person, event.as_json()):
            return
        check_open(review)
        if review.proposal.is_by(person.name):
            raise Refused("Nobody answers for a requirement of their own proposal: ask somebody else.")
        check_evidence(review, shown)
        if requirement not in requirement_names(review.proposal.requirements):
            raise UnknownChoice(f"The proposal has no requirement '{requirement[:40]}': choose one that it has.")
        self._append(review.use.id, person, [event], review.use.sequence, key)

    def comment(
        self,
        person: Person,
        review: ProposalReview,
        text: str,
        reply_to: int | None = None,
        run: str | None = None,
        position: int | None = None,
        key: str | None = None,
        quote: tuple[int, str] | None = None,
    ) -> None:
        """Add a comment. It is stored whatever else happened in the meantime.

        ``run`` and ``position`` name an answer that it is on, and ``quote`` a passage of it: about where it begins, and
        its text.
        """
        require(person, "author", "Commenting")
        if reply_to is not None and all(logged.sequence != reply_to for logged in review.proposal.said):
            raise UnknownChoice(f"Nothing was said with the id {reply_to}: read the proposal again, and answer that.")
        passage = None
        if run is not None and position is not None:
            passage = checked_passage(self.repository, person, review, run, position, quote)
        event = Commented.checked(
            proposal=review.proposal.id, words=text.strip(), reply_to=reply_to, run=run, position=position,
            passage=passage,
        )  # fmt: skip
        if not self._stored(key, review.use.id, person, event.as_json()):
            self._append_last(review.use.id, person, event, key)

    def vote(
        self,
        person: Person,
        review: ProposalReview,
        position: int,
        choice: Choice,
        left: Literal["setting", "baseline"],
        key: str | None = None,
    ) -> None:
        """Vote on one prompt of the first evidence, without having seen the names of the settings."""
        require_person(person, "author", "Voting")
        act = {"kind": "voted", "proposal": review.proposal.id, "position": position, "choice": choice}
        if self._stored(key, review.use.id, person, act):
            return
        check_open(review)
        if not review.evidence:
            raise UnfitEvidence("Runs of its evidence were deleted: there is nothing to vote on.")
        setting_pool, baseline_pool, _ = review.evidence[0]
        if position not in setting_pool.writers or position not in baseline_pool.writers:
            raise UnfitEvidence("The evidence does not have this prompt any more.")
        if review.proposal.votes_no_more(person.name):
            raise Refused("You stopped voting on this proposal, and its answers are shown to you with their names.")
        event = Voted.checked(
            proposal=review.proposal.id,
            run=setting_pool.writers[position],
            baseline=baseline_pool.writers[position],
            position=position,
            choice=choice,
            left=left,
        )
        self._append_last(review.use.id, person, event, key)

    def stop_voting(self, person: Person, review: ProposalReview, key: str | None = None) -> None:
        """End a person's vote on a proposal: its answers are shown to them with their names from then on."""
        require_person(person, "author", "Voting")
        event = VotingStopped(proposal=review.proposal.id)
        if self._stored(key, review.use.id, person, event.as_json()):
            return
        check_open(review)
        if not review.proposal.votes_no_more(person.name):
            self._append_last(review.use.id, person, event, key)

    def submit_review(
        self,
        person: Person,
        review: ProposalReview,
        verdict: Verdict,
        comment: str,
        seen: int,
        evidence: str | None = None,
        key: str | None = None,
    ) -> None:
        """Approve, request changes or decline. The last required approval moves the alias ``approved``."""
        require_person(person, "reviewer", "A verdict")
        proposal = review.proposal
        shown = review.hash if evidence is None else evidence
        event = Judged.checked(proposal=proposal.id, verdict=verdict, comment=comment.strip(), evidence=shown)
        if self._stored(key, review.use.id, person, event.as_json()):
            return
        check_open(review)
        if proposal.is_by(person.name):
            raise Refused("Nobody judges their own proposal: ask somebody else.")
        check_seen(review, person, seen)
        check_evidence(review, shown)
        events: list[ReviewEvent] = [event]
        if verdict != "approve":
            if not event.comment:
                raise NotGiven("Say what is missing: a comment is needed with this verdict.")
        else:
            check_gate(review)
            measured = certain_weights(self.repository.runs([*proposal.runs, *proposal.baselines], limit=None))
            now = datetime.now(UTC)
            proposal.judgements.append(history.Judgement(person.name, verdict, event.comment, review.hash, now))
            if review.use.proposal_status(proposal, review.hash, now).enough:
                events += [*_next_candidate(review), _approval(review, event.comment, measured)]
        if verdict == "decline":
            events += _next_candidate(review)
        self._append(review.use.id, person, events, review.use.sequence, key)

    def withdraw(self, person: Person, review: ProposalReview, comment: str = "", key: str | None = None) -> None:
        event = Withdrawn.checked(proposal=review.proposal.id, comment=comment.strip())
        if self._stored(key, review.use.id, person, event.as_json()):
            return
        check_open(review)
        check_author(person, review, "Withdrawing it")
        self._append(review.use.id, person, [event, *_next_candidate(review)], review.use.sequence, key)


def _approval(review: ProposalReview, comment: str, measured: dict[str, str]) -> AliasMoved:
    return AliasMoved(
        alias="approved",
        setting=review.proposal.setting,
        former=review.use.named("approved"),
        proposal=review.proposal.id,
        evidence=review.hash,
        comment=comment,
        weights=measured,
    )


def _next_candidate(review: ProposalReview) -> list[ReviewEvent]:
    """Return how ``candidate`` moves on as a proposal closes: to the latest that is open, or to nothing."""
    use, closed = review.use, review.proposal
    if use.named("candidate") != closed.setting:
        return []
    waiting = [proposal for proposal in use.proposals.values() if proposal.state == "open" and proposal is not closed]
    setting, id = (waiting[-1].setting, waiting[-1].id) if waiting else (None, None)
    return [AliasMoved(alias="candidate", setting=setting, former=closed.setting, proposal=id)]
