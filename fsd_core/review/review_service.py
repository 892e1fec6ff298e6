"""What people may do in a review, and what they are told where they may not."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal
from uuid import uuid4

from fsd_core.errors import InvalidSetting, Overtaken, Refused, UnknownName
from fsd_core.review import history
from fsd_core.review.chosen_runs import setting_of
from fsd_core.review.evidence import REQUIREMENT_TITLES
from fsd_core.review.history import Use
from fsd_core.review.measured_weights import certain_weights, weights
from fsd_core.review.proposal_review import ProposalReview, asked, case_of
from fsd_core.roles import Person, require
from fsd_core.storage.review_events import (
    Act,
    AliasMoved,
    Choice,
    Judged,
    Proposed,
    Remarked,
    Requirements,
    UseDescribed,
    Verdict,
    Voted,
    Waived,
    Withdrawn,
)

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent

_LONGEST_ID = 64


class ReviewService:
    """Uses, proposals and verdicts of one database. Each method reads the log, checks, and adds to it.

    All raise ``Refused`` for a person who may not, ``InvalidSetting`` for what cannot be, ``UnknownName`` for what is
    not there, and ``Overtaken`` where somebody else acted since the page was read (``seen``: the sequence of the last
    act that the page showed).
    """

    def __init__(self, repository: Repository) -> None:
        self.repository = repository

    def uses(self) -> list[Use]:
        """Every use there is, in the order in which they were made."""
        return history.uses(self.repository.review_log())

    def labels(self, uses: Sequence[Use]) -> dict[str, str]:
        """Names of the settings that uses speak of, by their id."""
        named = {proposal.setting for use in uses for proposal in use.proposals.values()}
        return self.repository.setting_labels(named)

    def use(self, id: str) -> Use:
        log = self.repository.review_log(id)
        if not log:
            raise UnknownName(f"There is no use '{id[:_LONGEST_ID]}': the link is incomplete, or of another database.")
        return history.use(id, log)

    def approved(self, use: Use) -> str:
        """The id of the setting that is approved for a use. Raises ``UnknownName`` where none is."""
        if (named := use.named("approved")) is None:
            raise UnknownName(f"Nothing is approved for the use '{use.id}' yet.")
        return named

    def approved_weights(self, use: Use) -> dict[str, str]:
        """What the setting that is approved was measured with, by role; empty where that was not recorded."""
        return self._weights_of(use, use.in_force[-1]) if use.in_force else {}

    def _weights_of(self, use: Use, approval: AliasMoved) -> dict[str, str]:
        """As its act says; of one of an earlier version, as the runs that it rests on say while they are there."""
        proposal = use.proposals.get(approval.proposal or "")
        if approval.weights or proposal is None:
            return approval.weights
        return weights(self.repository.runs(proposal.runs, limit=None))

    def case(self, proposal_id: str) -> ProposalReview:
        """A proposal with its evidence judged anew."""
        for use in self.uses():
            if proposal_id in use.proposals:
                return case_of(self.repository, use, use.proposals[proposal_id])
        raise UnknownName(f"There is no proposal '{proposal_id[:32]}': the link is incomplete, or of another database.")

    def describe(
        self,
        person: Person,
        name: str,
        description: str = "",
        requirements: Requirements | None = None,
        approvals: int = 1,
        days: int | None = None,
        use_id: str | None = None,
        seen: int = 0,
    ) -> Use:
        """Makes a use, or describes the one of an id anew."""
        require(person, "admin" if use_id else "author", "Changing a use" if use_id else "Making a use")
        act = UseDescribed.checked(
            name=name.strip(),
            description=description.strip(),
            requirements=requirements or Requirements(),
            approvals=approvals,
            days=days,
        )
        if use_id is not None:
            self.use(use_id)
        elif self.repository.review_log(use_id := id_of(act.name)):
            raise InvalidSetting(f"There is a use of the name “{act.name}” already: choose another name.")
        self._append(use_id, person, [act], seen)
        return self.use(use_id)

    def propose(
        self,
        person: Person,
        use_id: str,
        runs: Sequence[str],
        baselines: Sequence[str],
        rationale: str = "",
        requirements: Requirements | None = None,
    ) -> str:
        """Proposes the setting of ``runs`` for a use, as its candidate; returns the proposal's id."""
        require(person, "author", "Proposing a setting")
        use = self.use(use_id)
        setting = setting_of(self.repository, runs, baselines)
        asked = requirements or use.requirements
        if any(one.setting == setting and one.state == "open" for one in use.proposals.values()):
            raise InvalidSetting("This setting is under review for this use already: comment there.")
        id = uuid4().hex
        proposed = Proposed.checked(
            proposal=id,
            setting=setting,
            requirements=asked,
            runs=tuple(runs),
            baselines=tuple(baselines),
            rationale=rationale.strip(),
        )
        moved = AliasMoved(alias="candidate", setting=setting, former=use.named("candidate"), proposal=id)
        self._append(use_id, person, [proposed, moved], use.sequence)
        return id

    def waive(self, person: Person, case: ProposalReview, requirement: str, words: str) -> None:
        """Answers for a requirement that the evidence does not meet, by name and in words."""
        require(person, "author", "Waiving a requirement")
        _open(case)
        if requirement not in asked(case.proposal.requirements):
            raise InvalidSetting(f"The proposal has no requirement '{requirement[:40]}': reload the page.")
        act = Waived.checked(
            proposal=case.proposal.id, requirement=requirement, words=words.strip(), evidence=case.hash
        )
        self._append(case.use.id, person, [act], case.use.sequence)

    def remark(
        self,
        person: Person,
        case: ProposalReview,
        words: str,
        reply_to: int | None = None,
        run: str | None = None,
        position: int | None = None,
    ) -> None:
        """Comments. Whatever else happened in the meantime, a comment is kept."""
        require(person, "author", "Commenting")
        if reply_to is not None and all(logged.sequence != reply_to for logged in case.proposal.remarks):
            raise InvalidSetting("The comment that this answers is not there: reload the page.")
        act = Remarked.checked(
            proposal=case.proposal.id, words=words.strip(), reply_to=reply_to, run=run, position=position
        )
        self._keep(case.use.id, person, act)

    def vote(
        self, person: Person, case: ProposalReview, position: int, choice: Choice, left: Literal["setting", "baseline"]
    ) -> None:
        """Votes on one prompt of the first of its evidence, whose names the person was not shown."""
        require(person, "author", "Voting")
        _open(case)
        if not case.evidence:
            raise InvalidSetting("Runs of its evidence were deleted: there is nothing to vote on.")
        ours, theirs, _ = case.evidence[0]
        if position not in ours.writers or position not in theirs.writers:
            raise InvalidSetting("The evidence does not have this prompt: reload the page.")
        act = Voted.checked(
            proposal=case.proposal.id,
            run=ours.writers[position],
            baseline=theirs.writers[position],
            position=position,
            choice=choice,
            left=left,
        )
        self._keep(case.use.id, person, act)

    def judge(self, person: Person, case: ProposalReview, verdict: Verdict, comment: str, seen: int) -> None:
        """Approves, asks for changes or declines. The approval that was still needed moves the alias ``approved``."""
        require(person, "reviewer", "A verdict")
        _open(case)
        self._check_seen(case, person, seen)
        proposal = case.proposal
        if person.name == proposal.author:
            raise Refused("Nobody judges their own proposal: ask somebody else.")
        act = Judged.checked(proposal=proposal.id, verdict=verdict, comment=comment.strip(), evidence=case.hash)
        acts: list[Act] = [act]
        if verdict != "approve":
            if not act.comment:
                raise InvalidSetting("Say what is missing: a comment is needed with this verdict.")
        else:
            self._check_gate(case)
            measured = certain_weights(self.repository.runs([*proposal.runs, *proposal.baselines], limit=None))
            at = datetime.now(UTC)
            proposal.judgements.append(history.Judgement(person.name, verdict, act.comment, case.hash, at))
            if case.use.standing(proposal, case.hash, at).enough:
                acts.append(_moved(case, act.comment, measured))
        self._append(case.use.id, person, acts, case.use.sequence)

    def withdraw(self, person: Person, case: ProposalReview, comment: str = "") -> None:
        _open(case)
        _own(person, case, "Withdrawing it")
        act = Withdrawn.checked(proposal=case.proposal.id, comment=comment.strip())
        self._append(case.use.id, person, [act], case.use.sequence)

    def roll_back(self, person: Person, use_id: str, comment: str, seen: int) -> str | None:
        """The alias ``approved`` names again what it named before; returns that setting."""
        require(person, "admin", "Rolling back")
        use = self.use(use_id)
        if seen != use.sequence:
            raise Overtaken(_news(use.log[seen:]))
        if not comment.strip():
            raise InvalidSetting("Say why it is rolled back: a comment is needed.")
        if use.named("approved") is None:
            raise InvalidSetting("Nothing is approved for this use, so nothing can be rolled back.")
        before = use.in_force[:-1]  # rolling back twice goes back two steps
        act = AliasMoved.checked(
            alias="approved",
            setting=before[-1].setting if before else None,
            former=use.named("approved"),
            comment=comment.strip(),
            weights=self._weights_of(use, before[-1]) if before else {},
        )
        self._append(use_id, person, [act], use.sequence)
        return act.setting

    def _check_gate(self, case: ProposalReview) -> None:
        if case.missing:
            raise InvalidSetting("Runs of its evidence were deleted: the author must choose others first.")
        if case.open_requirements:
            left = ", ".join(REQUIREMENT_TITLES[name].lower() for name in case.open_requirements)
            raise InvalidSetting(
                f"The evidence does not settle {left}: measure more prompts, or have somebody waive it in words."
            )

    def _check_seen(self, case: ProposalReview, person: Person, seen: int) -> None:
        later = [logged for logged in case.use.about(case.proposal.id) if logged.sequence > seen]
        if news := [one for one in later if one.who != person.name and not isinstance(one.act, Voted)]:
            raise Overtaken(_news(news))

    def _append(self, use_id: str, person: Person, acts: Sequence[Act], seen: int) -> None:
        self.repository.append_acts(use_id, person.name, person.role, acts, seen)

    def _keep(self, use_id: str, person: Person, act: Act) -> None:
        """Adds an act that contradicts no other, behind whatever is there."""
        while True:
            try:
                self._append(use_id, person, [act], self.use(use_id).sequence)
            except Overtaken:
                continue
            return


def id_of(name: str) -> str:
    """The id of a use, for addresses: its name in small letters, digits and hyphens."""
    plain = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode().lower()
    id = re.sub(r"[^a-z0-9]+", "-", plain).strip("-")[:_LONGEST_ID].strip("-")
    if not id:
        raise InvalidSetting(f"The name “{name[:40]}” has no letter or digit of its own for an address: add one.")
    return id


def _open(case: ProposalReview) -> None:
    if case.proposal.state != "open":
        raise InvalidSetting(f"This proposal is {case.proposal.state}: make a new one.")


def _own(person: Person, case: ProposalReview, what: str) -> None:
    if person.name != case.proposal.author and not person.may("admin"):
        raise Refused(f"{what} is for its author, {case.proposal.author}, and for admins.")


def _moved(case: ProposalReview, comment: str, measured: dict[str, str]) -> AliasMoved:
    return AliasMoved(
        alias="approved",
        setting=case.proposal.setting,
        former=case.use.named("approved"),
        proposal=case.proposal.id,
        evidence=case.hash,
        comment=comment,
        weights=measured,
    )


def _news(news: Sequence[LoggedEvent]) -> str:
    names = ", ".join(list(dict.fromkeys(logged.who for logged in news))[:3])
    return f"Since you opened this page {names} acted here: reload it, look at what is new, and say it again."
