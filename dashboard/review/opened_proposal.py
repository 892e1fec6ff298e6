"""One proposal opened: its evidence, its discussion, and the buttons of the reviewers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Annotated, Any

import gradio as gr
from typing_extensions import TypedDict

from dashboard.review.blind_vote import BlindVote, ids_of, pairing_of
from dashboard.review.propose_form import (
    EvidenceFields,
    baselines_of,
    choices_of,
    measurements_of,
    reviewers_field,
    selected_ids,
)
from dashboard.tables.logs import deed_text, requirements_text, setting_link
from dashboard.tables.prompt_pairs import Pair, Pairing, PairReader, RunPair, Show, pair_up
from dashboard.tables.run_record import machine, weights_html
from dashboard.ui.components import Column, Tile, notice, pill, rough, section, show, table, tiles
from dashboard.ui.fields import optional_number, read
from dashboard.ui.templates import Html, interval, joined, quantity, render
from dashboard.ui.view import Act, Asked, Part, Updates, Values, View, count_in
from fsd_core.actions.action import Ask, action
from fsd_core.analysis.cells import against, ratio_mixed, speedup
from fsd_core.errors import FsdError, InvalidSetting, OutOfRange, Refused, Stale, UnknownName
from fsd_core.metrics import METRICS
from fsd_core.review.approvals import BesideApproved, beside_approved
from fsd_core.review.blinding import Quoted, hidden_answers, quoted_passages
from fsd_core.review.evidence import REQUIREMENT_TITLES, Evidence, certain_weights, grouped, overall, taken_of
from fsd_core.review.history import measured_runs, possible_reviewers
from fsd_core.review.review_service import ReviewService, check_author
from fsd_core.roles import LOCAL, Person, same_name
from fsd_core.statistics.intervals import Estimate
from fsd_core.storage.review_events import LONGEST_TEXT, Verdict, written_text
from fsd_core.texts import DASH, Id, count, percent

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal, ProposalReview
    from fsd_core.storage.records import GenerationView, LoggedEvent
    from fsd_core.storage.tables import UserRow


class OtherEvidence:
    """The form's components as attributes. ``seen``: the field with the hash of the evidence that the page shows."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        with gr.Accordion("Choose other evidence", open=False, visible=False) as self.part:
            with gr.Row(elem_classes=["rev-forms"]):
                self.fields = EvidenceFields()
            with gr.Row(elem_classes=["rev-forms"]):
                self.comment = gr.Textbox(label="Why other runs", max_length=LONGEST_TEXT, scale=3)
                self.choose = gr.Button("Choose it")
            self.answer = show()
        self.forms = [*self.fields.both, self.comment]
        self.outputs: list[Any] = [self.part, *self.fields.both]

    def listen(self, view: View, seen: gr.Textbox) -> None:
        """Attach the event."""
        self._seen = seen
        view.button(self.choose, "choose evidence", [seen, *self.forms], self.choose_evidence, self.answer)

    def redraw(self, asked: Asked, review: ProposalReview) -> Updates:
        """Return the form with what can be chosen, if it differs; at first it holds what the proposal rests on."""
        proposal, repository = review.proposal, self.service.repository
        may = proposal.state == "open" and (proposal.is_by(asked.person.name) or asked.person.may("admin"))
        if not may:
            return {self.part: gr.Accordion(visible=False)} if asked.differs("other evidence", None) else {}
        runs, baselines, _ = measured_runs(repository, proposal)
        measured = measurements_of(repository, proposal.setting)
        offered = [baseline for measurement in measured for baseline in baselines_of(repository, measurement)]
        rests_on = grouped(runs), grouped(baselines)
        self.fields.fill(asked, *rests_on)
        choices = choices_of([*rests_on[0], *measured]), choices_of([*rests_on[1], *offered])
        if not asked.differs("other evidence", choices):
            return {}
        dropdowns = zip(self.fields.both, choices, strict=True)
        return {self.part: gr.Accordion(visible=True)} | {field: gr.Dropdown(offer) for field, offer in dropdowns}

    def choose_evidence(self, values: Values, asked: Asked) -> Updates:
        """Rest the proposal that the address names on the runs that were chosen."""
        review = self.service.review(asked.address.get("proposal", ""))
        runs, baselines = (selected_ids(values[field]) for field in self.fields.both)
        _, _, evidence = values[self._seen].partition(" ")
        comment = values[self.comment]
        self.service.choose_evidence(asked.person, review, runs, baselines, comment, evidence, values.key)
        asked.used(values, self.comment)
        return {self.answer: notice("Chosen. Verdicts and answers on the former evidence do not count any more.")}


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


_REQUIREMENTS = (Column("Requirement"), Column("Outcome"), Column("Evidence", "wide"), Column("Answered", "wide"))


def proposal_html(review: ProposalReview, label: str, accounts: Sequence[UserRow] = ()) -> Html:
    """Return the proposed setting, its progress, and the outcome of each requirement on its evidence.

    A verdict of somebody who has lost the right to one since stays, and says so beside the name.
    """
    proposal = review.proposal
    missing = (
        notice(f"{count(len(review.missing), 'run')} of its evidence was deleted.", "bad") if review.missing else ""
    )
    return render(
        "review/proposal.html",
        "proposal",
        review.use,
        proposal,
        label=label,
        setting=setting_link(proposal.setting),
        requirements_text=requirements_text(proposal.requirements),
        notices=joined([missing, _status(review, accounts)]),
        requirements=_requirements(review),
    )


def evidence_html(review: ProposalReview) -> Html:
    """Return why it is proposed, what was measured, and with which weights."""
    measured = joined(_measured(evidence) for evidence in review.evidence)
    return render("review/proposal.html", "evidence", review.proposal, weights=_weights(review), measured=measured)


def _status(review: ProposalReview, accounts: Sequence[UserRow]) -> Html:
    status, state = review.status, review.proposal.state
    parts = [f"{len(status.approved_by)} of {count(status.needed, 'approval')}"]
    for label, people in (
        ("approved by", status.approved_by), ("changes asked or declined by", status.against),
        ("stale, of other evidence:", status.stale), ("expired:", status.expired),
    ):  # fmt: skip
        if people:
            parts.append(f"{label} {', '.join(name + _lost_since(name, accounts) for name in people)}")
    tone = "warn" if status.stale or status.expired or (status.against and state == "open") else ""
    return notice(f"{'; '.join(parts)}. {review.note}".rstrip(), tone)


def _lost_since(name: str, accounts: Sequence[UserRow]) -> str:
    account = next((account for account in accounts if same_name(account.name, name)), None)
    if account is None:
        return " (no account now)" if accounts and name != LOCAL.name else ""
    may = Person(account.name, account.role).may("reviewer")
    return " (disabled now)" if account.disabled else "" if may else f" ({account.role} now)"


def _requirements(review: ProposalReview) -> Html:
    outcomes, rows = overall(review.evidence), []
    for name, outcome in outcomes.items():
        findings = "; ".join(
            finding.text for evidence in review.evidence for finding in evidence.findings if finding.requirement == name
        )
        waiver = review.proposal.waived(name, review.hash)
        answer = f"{waiver.who}: {waiver.reason}" if waiver else "" if outcome == "met" else "open"
        rows.append((REQUIREMENT_TITLES[name], pill(outcome), findings, answer))
    return table(_REQUIREMENTS, rows, "Requirements")


def _weights(review: ProposalReview) -> Html:
    """Return the weights that are approved with the setting, or why none can be if its runs disagree."""
    runs = [run for evidence in review.evidence for run in (*evidence.setting_pool.runs, *evidence.baseline_pool.runs)]
    if not runs:
        return Html()
    try:
        return render("review/proposal.html", "weights", weights_html(certain_weights(runs)))
    except InvalidSetting as error:
        return notice(str(error), "bad")


def _measured(evidence: Evidence) -> Html:
    run, baseline, prompts = evidence.run, evidence.baseline, evidence.prompts
    passes, length = (against(run, baseline, METRICS[key], prompts) for key in ("target_passes", "mean_tokens"))
    speed = speedup(run, baseline, prompts)
    m = run.metrics or {}
    mixed = ratio_mixed(run, baseline)
    entries = [
        _ratio("Times as fast", speed, mixed, "by time per answer"),
        _ratio("Answer length", length),
        _ratio("Target passes", passes),
    ]
    if (share := taken_of(prompts)) is not None:
        entries.append(Tile("Taken by other programs", percent(share, digits=0), "of the decoding time"))
    runaways = percent(m.get("runaway_rate"), m.get("runaway_rate_low"), m.get("runaway_rate_high"))
    entries.append(Tile("Overlong", runaways, _stopped(evidence)))
    caption = f"seed {run.seed}, {machine(run) or 'unknown machine'}"
    return render("review/proposal.html", "measured", evidence, caption, tiles(entries))


def _stopped(evidence: Evidence) -> str:
    rare = evidence.runaways
    return f"answers stopped by the limit; {rare.sentence}" if rare else "answers stopped by the limit"


def _ratio(name: str, ratio: Estimate | None, mixed: Sequence[str] = (), by: str = "") -> Tile:
    if ratio is None:
        return Tile(name, DASH)
    below = "; ".join(filter(None, (by, interval(ratio.low, ratio.high))))
    return Tile(name, rough(quantity(*ratio, unit="×"), ratio.low is None), below, mixed)


def conversation_html(proposal: Proposal, quoted: Mapping[int, Quoted]) -> Html:
    """Return all that was said, numbered from 1, with replies below it. ``quoted``: the passages of comments."""
    if not proposal.said:
        return render("review/discussion.html", "faded", "Nobody said anything yet.")
    answers: dict[int | None, list[tuple[int, LoggedEvent, str, str]]] = {}
    for number, logged in enumerate(proposal.said, start=1):
        entry = number, logged, deed_text(logged.event), written_text(logged.event)
        answers.setdefault(getattr(logged.event, "reply_to", None), []).append(entry)
    return render("review/discussion.html", "conversation", proposal, answers, quoted)


def prompts_html(pairing: Pairing | None) -> Html:
    """Return how the prompts below are sorted: those that speak most against the setting come first."""
    if pairing is None:
        text = "Runs of its evidence were deleted."
    elif not pairing.filtered("text"):
        text = "Both answered every shared prompt alike."
    else:
        text = "First those that the baseline solves and the setting does not."
    return render("review/discussion.html", "faded", text)


BY_NAME = "Kept with your name"
_BESIDE = ("The baseline", "What is approved")


class OpenedProposal(Part):
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
        self.withdraw_barred = show()
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
        self.forms = [
            self.requirement, self.reviewers, self.verdict_comment, self.waiver, self.comment, self.reply,
            *self.other_evidence.forms,
        ]  # fmt: skip
        self._verdicts = [self.approve, self.changes, self.decline]
        self.outputs = [
            self.proposal, self.evidence, self.author_notice, self.withdraw_barred, self.conversation, self.prompts,
            self.seen, self.answer, *self._verdicts, self.withdraw, self.waive, self.reviewers, self.ask, self.beside,
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
        judges = is_open and not is_author
        barred = ""
        try:
            check_author(person, review, "Withdrawing it")
        except Refused as error:
            barred = str(error)
        return {
            self.proposal: html,
            self.evidence: evidence,
            self.conversation: conversation,
            self.beside: gr.Radio(visible=beside is not None),
            self.seen: seen,
            self.author_notice: "" if judges else notice(author_html(review, person), "warn"),
            self.withdraw_barred: notice(barred) if barred and judges else "",
            self.reviewers: gr.Dropdown(possible_reviewers(self.service.repository, authors)),
            self.ask: gr.Button(interactive=is_open),
            self.withdraw: gr.Button(interactive=is_open and not barred),
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


_MOST = 100


class CheckedRequirement(TypedDict):
    """What a measurement says of a requirement."""

    outcome: str
    told: str


class RequirementBeside(TypedDict):
    """A requirement, for both settings."""

    requirement: str
    candidate: CheckedRequirement
    approved: CheckedRequirement


class AnswerBeside(TypedDict):
    """An answer to a prompt, and what its scorer read in it."""

    run: str
    text: str
    answer: str | None
    outcome: str


class PromptBeside(TypedDict):
    """A prompt as both settings answered it. ``prompt`` is its number from 1."""

    prompt: int
    text: str
    reference: str | None
    candidate: AnswerBeside
    approved: AnswerBeside


class BesideAnswer(TypedDict):
    """A proposal beside what is approved. Counts are of prompts that both settings answered: ``candidate_alone`` are
    solved by the candidate and not by the other, ``hidden`` are left out, ``found`` fit the choice."""

    proposal: str
    candidate: str
    approved: str
    approved_proposal: str
    requirements: list[RequirementBeside]
    prompts: int
    candidate_alone: int
    approved_alone: int
    both: int
    hidden: int
    found: int
    pairs: list[PromptBeside]


@action()
def compare_with_approved(
    ask: Ask,
    proposal: Annotated[Id, "its id"],
    which: Annotated[
        Show,
        "prompts of different outcome (outcome), different text (text), not solved by both (unsolved), marked, or all",
    ] = "outcome",
    limit: Annotated[int, "number of prompts, 1 to 100"] = 20,
    offset: Annotated[int, "number of prompts to leave out before"] = 0,
) -> BesideAnswer:
    """Return a proposal beside what is approved for its use: each requirement, and prompt by prompt.

    Prompts that the caller has yet to vote on blind are counted in hidden and left out.
    """
    repository, review = ask.repository, ReviewService(ask.repository).review(proposal)
    if not 1 <= limit <= _MOST or offset < 0:
        raise OutOfRange(f"The limit is {limit} and the offset {offset}: expected 1 to {_MOST}, and 0 or more.")
    beside = beside_approved(repository, review)
    if beside is None:
        raise UnknownName(
            f"No other setting is approved for the use '{review.use.id}', so there is nothing to compare."
        )
    pairing = pair_up(repository, beside.candidate_runs, beside.approved_runs)
    hidden = hidden_answers(repository, ask.person, [*beside.candidate_runs, *beside.approved_runs])
    readable = [pair for pair in pairing.pairs if not any(g.position in hidden.of(g.run_id) for g in pair)]
    shown = Pairing(readable, pairing.marks).filtered(which)
    return {
        "proposal": review.proposal.id,
        "candidate": review.proposal.setting,
        "approved": beside.proposal.setting,
        "approved_proposal": beside.proposal.id,
        "requirements": [
            {
                "requirement": pair.candidate.requirement,
                "candidate": {"outcome": pair.candidate.outcome, "told": pair.candidate.text},
                "approved": {"outcome": pair.approved.outcome, "told": pair.approved.text},
            }
            for pair in beside.requirements
        ],
        "prompts": len(pairing.pairs),
        "candidate_alone": pairing.count(True, False),
        "approved_alone": pairing.count(False, True),
        "both": pairing.count(True, True),
        "hidden": len(pairing.pairs) - len(readable),
        "found": len(shown),
        "pairs": [
            {
                "prompt": pair.a.position + 1,
                "text": pair.a.prompt,
                "reference": pair.a.reference,
                "candidate": _answer(pair.a),
                "approved": _answer(pair.b),
            }
            for pair in shown[offset : offset + limit]
        ],
    }


def _answer(generation: GenerationView) -> AnswerBeside:
    return {
        "run": generation.run_id,
        "text": generation.text,
        "answer": generation.answer,
        "outcome": generation.outcome,
    }
