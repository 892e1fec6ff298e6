"""One proposal opened: its evidence, its discussion, and the buttons of the reviewers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.beside_html import beside_html, wins_html
from dashboard.review.blind_vote import BlindVote, ids_of, pairing_of
from dashboard.review.other_evidence import OtherEvidence
from dashboard.review.proposal_html import conversation_html, evidence_html, prompts_html, proposal_html
from dashboard.review.reviewers_field import reviewers_field
from dashboard.tables.pair_reader import PairReader, RunPair
from dashboard.tables.prompt_pairs import Pair, Pairing, Show
from dashboard.ui.components import notice, section, show
from dashboard.ui.optional_number import optional_number, read
from dashboard.ui.question import Act, Asked, Updates, Values, count_in
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import View
from fsd_core.errors import FsdError, Refused, Stale
from fsd_core.review.act_checks import check_author
from fsd_core.review.beside_approved import BesideApproved, beside_approved
from fsd_core.review.evidence import REQUIREMENT_TITLES
from fsd_core.review.passages import Quoted, quoted_passages
from fsd_core.review.reviewers import possible_reviewers
from fsd_core.roles import Person
from fsd_core.storage.review_events import LONGEST_TEXT, Verdict

if TYPE_CHECKING:
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.review.review_service import ReviewService

BY_NAME = "Kept with your name"
_BESIDE = ("The baseline", "What is approved")


class OpenedProposal:
    """The page's components as attributes, and one method per act."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        self.proposal = show()
        self.author_notice = show()
        self.verdict_comment = gr.Textbox(
            label="Comment on the verdict", lines=1, max_length=LONGEST_TEXT, elem_classes=["rev-verdict-comment"]
        )
        with gr.Row(elem_classes=["rev-forms", "rev-verdict"]):
            self.approve = gr.Button("Approve", variant="primary")
            self.changes = gr.Button("Request changes")
            self.decline = gr.Button("Decline", variant="stop")
            self.withdraw = gr.Button("Withdraw")
        with gr.Row(elem_classes=["rev-forms"]):
            choices = [(title, name) for name, title in REQUIREMENT_TITLES.items()]
            self.requirement = gr.Dropdown(
                choices, value="margin", label="Answer for", info="A requirement that is open"
            )
            self.waiver = gr.Textbox(label="Why that is acceptable", info=BY_NAME, max_length=LONGEST_TEXT, scale=3)
            self.waive = gr.Button("Answer for it")
        with gr.Row(elem_classes=["rev-forms"]):
            self.reviewers = reviewers_field()
            self.ask = gr.Button("Ask for their verdict")
        self.answer = show()
        self.evidence = show()
        self.other_evidence = OtherEvidence(service)
        show(section("What was said"))
        self.conversation = show()
        with gr.Row(elem_classes=["rev-forms"]):
            self.comment = gr.Textbox(label="Comment", info=BY_NAME, lines=1, max_length=LONGEST_TEXT, scale=4)
            self.reply = optional_number("Answers #", "Empty: nothing")
            self.say = gr.Button("Comment")
        self.votes = BlindVote(service)
        show(section("Prompt by prompt"))
        self.prompts = show()
        self.beside = gr.Radio(list(_BESIDE), value=_BESIDE[0], label="The candidate beside", visible=False)
        self.reader = PairReader(service.repository, "text", worst_first, comments=True)
        self.seen = gr.Textbox(visible="hidden")  # the number of the last act on the page, and the hash of its evidence
        self.fields = [self.beside, *self.reader.fields]
        self.forms = [self.requirement, self.reviewers, self.verdict_comment, self.waiver, self.comment, self.reply]
        self.forms += self.other_evidence.forms
        self._verdicts = [self.approve, self.changes, self.decline]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` may change."""
        return [
            self.proposal, self.evidence, self.author_notice, self.conversation, self.prompts, self.seen,
            self.answer, *self._verdicts, self.withdraw, self.waive, self.reviewers, self.ask, self.beside,
            *self.other_evidence.outputs,
            *self.votes.outputs, *self.reader.outputs,
        ]  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        self.votes.listen(view)
        self.reader.listen(view)
        self.other_evidence.listen(view, self.seen)
        verdicts: dict[Verdict, gr.Button] = {
            "approve": self.approve, "request changes": self.changes, "decline": self.decline,
        }  # fmt: skip
        for verdict, button in verdicts.items():
            judge = self._submit_review(verdict)
            view.button(button, verdict, [self.seen, self.verdict_comment], judge, self.answer)
        waived = [self.seen, self.requirement, self.waiver]
        view.button(self.withdraw, "withdraw", [self.verdict_comment], self.withdraw_proposal, self.answer)
        view.button(self.waive, "waive", waived, self.waive_requirement, self.answer)
        view.button(self.ask, "ask for verdicts", [self.reviewers], self.ask_reviewers, self.answer)
        view.button(self.say, "comment", [self.comment, self.reply], self.add_comment, self.answer)
        view.act("comment on", self.comment_on_answer, self.reader.answer)

    def redraw(self, asked: Asked, proposal_id: str) -> Updates:
        """Return the updates of a proposal. Raises ``UnknownName`` if there is none of this id."""
        review = self.service.review(proposal_id)
        pairing = cache(partial(pairing_of, self.service, review))
        quoted = quoted_passages(self.service.repository, asked.person, review)
        beside = beside_approved(self.service.repository, review)
        updates = self._proposal(asked, review, quoted, beside) | self.other_evidence.redraw(asked, review)
        updates |= self.votes.redraw(asked, review, pairing)
        return updates | self._prompts(asked, review, pairing, quoted, beside)

    def fail(self, error: FsdError) -> Updates:
        """Return an error in place of the prompts."""
        return {self.reader.summary: "", self.reader.pairs: notice(str(error), "bad")}

    def _proposal(
        self, asked: Asked, review: ProposalReview, quoted: Mapping[int, Quoted], beside: BesideApproved | None
    ) -> Updates:  # fmt: skip
        label = self.service.labels([review.use]).get(review.proposal.setting, review.proposal.setting)
        html = proposal_html(review, label, self.service.repository.users())
        evidence = joined([evidence_html(review), beside_html(beside)])
        conversation = conversation_html(review.proposal, quoted)
        seen, person = f"{review.use.sequence} {review.hash}", asked.person
        if asked.opening:
            asked.fill(self.reviewers, list(review.proposal.reviewers))
        if (unsettled := review.open_requirements) and asked[self.requirement] not in unsettled:
            asked.fill(self.requirement, unsettled[0])
        if not asked.differs("proposal", html, evidence, conversation, seen, person.name):
            return {}
        authors = [review.proposal.author, review.proposal.owner or ""]
        is_open, is_author = review.proposal.state == "open", review.proposal.is_by(person.name)
        barred: str = author_html(review, person) if is_author or not is_open else ""
        withdraws = is_open
        try:
            check_author(person, review, "Withdrawing it")
        except Refused as error:
            barred, withdraws = barred or str(error), False
        judges = is_open and not is_author
        return {
            self.proposal: html,
            self.evidence: evidence,
            self.conversation: conversation,
            self.beside: gr.Radio(visible=beside is not None),
            self.seen: seen,
            self.author_notice: notice(barred, "warn") if barred else "",
            self.reviewers: gr.Dropdown(possible_reviewers(self.service.repository, authors)),
            self.ask: gr.Button(interactive=is_open),
            self.withdraw: gr.Button(interactive=withdraws),
            self.waive: gr.Button(interactive=judges and bool(unsettled)),
            **{button: gr.Button(interactive=judges) for button in self._verdicts},
        }

    def _prompts(
        self, asked: Asked, review: ProposalReview, pairing: Callable[[], Pairing | None],
        passages: Mapping[int, Quoted], beside: BesideApproved | None,
    ) -> Updates:  # fmt: skip
        if not review.evidence:
            updates = {self.prompts: prompts_html(None)} if asked.differs("order", None) else {}
            return updates | self.reader.redraw(asked, None)
        link = count_in(asked.address.get("comment", ""))
        quoted = passages.get(link) if link else None
        quoted = quoted if quoted and quoted.state == "there" else None
        which: Show | None = "all" if asked.opening and quoted else None
        if asked.opening and quoted:
            asked.fill(self.reader.filter, "all")
            if beside and quoted.run in beside.approved_runs:
                asked.fill(self.beside, _BESIDE[1])
        linked = quoted.position if quoted else None
        name, baseline = review.evidence[0].run.label, review.evidence[0].baseline.label
        if beside and asked.current(self.beside) == _BESIDE[1]:
            approved = self.service.labels([review.use]).get(beside.proposal.setting, beside.proposal.setting)
            runs = RunPair(beside.candidate_runs, beside.approved_runs, f"Candidate: {name}", f"Approved: {approved}")
            return self.reader.redraw(
                asked, runs, review.hash, slow=asked.opening, linked=linked, quoted=quoted, which=which,
                about=lambda drawn: {self.prompts: wins_html(drawn)},
            )  # fmt: skip
        runs = RunPair(*ids_of(review), name, baseline)
        return self.reader.redraw(
            asked, runs, review.hash, read=lambda _: pairing() or Pairing([]), slow=asked.opening, linked=linked,
            quoted=quoted, which=which,
            about=lambda drawn: {self.prompts: prompts_html(drawn)},
        )  # fmt: skip

    def _review(self, asked: Asked) -> ProposalReview:
        return self.service.review(asked.address.get("proposal", ""))

    def _submit_review(self, verdict: Verdict) -> Callable[[Values, Asked], Updates]:
        def submit(values: Values, asked: Asked) -> Updates:
            sequence, evidence = _seen(values[self.seen])
            comment = values[self.verdict_comment]
            self.service.submit_review(
                asked.person, self._review(asked), verdict, comment, sequence, evidence, values.key
            )
            asked.used(values, self.verdict_comment)
            return {self.answer: notice(verdict_text(self._review(asked), verdict))}

        return submit

    def withdraw_proposal(self, values: Values, asked: Asked) -> Updates:
        """Withdraw the proposal for its author."""
        self.service.withdraw(asked.person, self._review(asked), values[self.verdict_comment], values.key)
        asked.used(values, self.verdict_comment)
        return {self.answer: notice("Withdrawn.")}

    def waive_requirement(self, values: Values, asked: Asked) -> Updates:
        """Record that a person answers for an open requirement, by name."""
        _, evidence = _seen(values[self.seen])
        requirement, reason = values[self.requirement] or "", values[self.waiver]
        self.service.waive(asked.person, self._review(asked), requirement, reason, evidence, values.key)
        asked.used(values, self.waiver)
        return {self.answer: notice("Noted with your name.")}

    def ask_reviewers(self, values: Values, asked: Asked) -> Updates:
        """Ask people for a verdict, in place of those who were asked before."""
        self.service.ask_reviewers(asked.person, self._review(asked), values[self.reviewers] or [], values.key)
        names = ", ".join(self._review(asked).proposal.reviewers)
        return {self.answer: notice(f"Asked for a verdict: {names}." if names else "Nobody is asked any more.")}

    def add_comment(self, values: Values, asked: Asked) -> Updates:
        """Add a comment."""
        review = self._review(asked)
        reply = review.proposal.said_as(read(values[self.reply], "Answers #", int))
        self.service.comment(asked.person, review, values[self.comment], reply, key=values.key)
        asked.used(values, self.comment, self.reply)
        return {self.answer: notice("Said.")}

    def comment_on_answer(self, act: Act, asked: Asked) -> Updates:
        """Add a comment on an answer, or on the passage of it that was selected."""
        if not re.fullmatch("[0-9]{1,9}", act["position"]):
            raise Stale("There is no such answer: reload the page.")
        quote = (count_in(act["start"]), act["quote"]) if act["quote"] else None
        self.service.comment(
            asked.person, self._review(asked), act["words"], None, act["run"], int(act["position"]), act.key, quote
        )
        return {self.reader.answer: notice("Said: it stands among the comments, with a link to this answer.")}


def _seen(text: str) -> tuple[int, str]:
    """Return the number of the last act that a page showed, and the hash of its evidence."""
    sequence, _, evidence = text.partition(" ")
    return count_in(sequence), evidence


def author_html(review: ProposalReview, person: Person) -> Html:
    """Return why a person gives no verdict: the proposal is their own, or closed."""
    return render("review/proposal.html", "author", review.use, review.proposal, alone=not person.known)


def verdict_text(review: ProposalReview, verdict: Verdict) -> str:
    """Return the message on the effect of a verdict."""
    if verdict != "approve":
        return {"request changes": "Changes are asked for.", "decline": "Declined."}[verdict]
    needed = max(0, review.status.needed - len(review.status.approved_by))
    return render("review/proposal.html", "approved", review.use, review.proposal, needed)


def worst_first(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the prompts that speak most against the setting first.

    First come those that only the baseline solves, then those that both or neither solve, last those that only the
    setting solves.
    """
    return sorted(pairs, key=lambda pair: (pair.gain, pair.a.position))
