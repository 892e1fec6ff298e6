"""One proposal opened: its evidence, its discussion, and the buttons of the reviewers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.review.blind_vote import BlindVote, ids_of, pairing_of
from dashboard.review.optional_number import optional_number, read
from dashboard.review.proposal_html import case_html, conversation_html, prompts_html
from dashboard.tables.pair_reader import PAGE_SIZES, PairReader, RunPair
from dashboard.tables.prompt_pairs import Pair
from dashboard.ui.components import PRIVATE_EVENT, notice, section, show
from dashboard.ui.signed_in import person_of
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.review.evidence import REQUIREMENT_TITLES
from fsd_core.roles import Person
from fsd_core.storage.review_events import LONGEST_WORDS

if TYPE_CHECKING:
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.review.review_service import ReviewService

Updates = dict[Any, Any]
BY_NAME = "Kept with your name"
Shown = tuple[str, int]
"""id of the proposal, and the sequence number of the last event on the page"""


class OpenedProposal:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, desk: ReviewService) -> None:
        self.desk = desk
        self.case = show()
        show(section("Verdict"))
        self.own = show()
        self.verdict_words = gr.Textbox(label="Comment on the verdict", lines=2, max_length=LONGEST_WORDS)
        with gr.Row(elem_classes=["rev-forms"]):
            self.approve = gr.Button("Approve", variant="primary")
            self.changes = gr.Button("Request changes")
            self.decline = gr.Button("Decline", variant="stop")
            self.withdraw = gr.Button("Withdraw")
        with gr.Row(elem_classes=["rev-forms"]):
            choices = [(title, name) for name, title in REQUIREMENT_TITLES.items()]
            self.requirement = gr.Dropdown(
                choices, value="margin", label="Answer for", info="A requirement that is open"
            )
            self.waiver = gr.Textbox(label="Why that is acceptable", info=BY_NAME, max_length=LONGEST_WORDS, scale=3)
            self.waive = gr.Button("Answer for it")
        self.answer = show()
        show(section("Comments"))
        self.conversation = show()
        with gr.Row(elem_classes=["rev-forms"]):
            self.words = gr.Textbox(label="Comment", info=BY_NAME, lines=1, max_length=LONGEST_WORDS, scale=4)
            self.reply = optional_number("Answers #", "Empty: nothing")
            self.prompt = optional_number("On prompt", "Empty: the whole")
            self.say = gr.Button("Comment")
        self.votes = BlindVote(desk)
        show(section("Prompt by prompt"))
        self.prompts = show()
        self.reader = PairReader(desk.repository, "text", worst_first)
        self.shown = gr.State(("", 0))
        self._events()

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`open` may change."""
        reading = [*self.reader.outputs, self.reader.filter, self.reader.size]
        changing = [*self._buttons, *self._fields, *self.votes.outputs, *reading]
        return [self.case, self.own, self.conversation, self.prompts, self.shown, self.answer, *changing]

    @property
    def _buttons(self) -> list[Any]:
        return [*self._verdicts, self.withdraw, self.waive]

    @property
    def _verdicts(self) -> list[Any]:
        return [self.approve, self.changes, self.decline]

    @property
    def _fields(self) -> list[Any]:
        return [self.verdict_words, self.waiver, self.words, self.reply, self.prompt]

    def _events(self) -> None:
        verdicts: dict[gr.Button, Any] = {
            self.approve: "approve", self.changes: "request changes", self.decline: "decline",
        }  # fmt: skip
        for button, verdict in verdicts.items():
            button.click(self._submit_review(verdict), [self.shown, self.verdict_words], self.outputs, **PRIVATE_EVENT)
        self.withdraw.click(self.give_up, [self.shown, self.verdict_words], self.outputs, **PRIVATE_EVENT)
        self.waive.click(self.answer_for, [self.shown, self.requirement, self.waiver], self.outputs, **PRIVATE_EVENT)
        self.say.click(self.remark, [self.shown, self.words, self.reply, self.prompt], self.outputs, **PRIVATE_EVENT)

    def open(self, proposal_id: str, person: Person) -> Updates:
        """Return the proposal's current state, with the next ballot of a person."""
        review = self.desk.case(proposal_id)
        label = self.desk.labels([review.use]).get(review.proposal.setting, review.proposal.setting)
        pairing = pairing_of(self.desk, review)
        read = None
        if review.evidence:
            read = RunPair(*ids_of(review), review.evidence[0].run.label, review.evidence[0].baseline.label)
        is_open, is_author = review.proposal.state == "open", review.proposal.author == person.name
        reading = self.reader.read(read, "text", PAGE_SIZES[0], 0, person, pairing)
        return (
            self.votes.open(review, pairing, person)
            | reading
            | {
                self.case: case_html(review, label),
                self.conversation: conversation_html(review.proposal.remarks),
                self.prompts: prompts_html(pairing),
                self.reader.filter: "text",
                self.reader.size: PAGE_SIZES[0],
                self.shown: (review.proposal.id, review.use.sequence),
                self.own: notice(_author_text(person), "warn") if is_open and is_author else "",
                **{button: gr.Button(interactive=is_open) for button in (self.withdraw, self.waive)},
                **{button: gr.Button(interactive=is_open and not is_author) for button in self._verdicts},
                self.answer: "",
            }
        )

    def _perform(
        self, person: Person, shown: Shown, action: Callable[[ProposalReview], None], message: str, *cleared: Any
    ) -> Updates:
        """Run an action on the proposal and redraw it. A refusal keeps what was typed."""
        try:
            action(self.desk.case(shown[0]))
            updates = self.open(shown[0], person)
        except FsdError as error:
            return {self.answer: notice(str(error), "bad")}
        return updates | {self.answer: notice(message)} | dict.fromkeys(cleared, "")

    def _submit_review(self, verdict: Any) -> Any:
        def judge(shown: Shown, comment: str, request: gr.Request) -> Updates:
            person = person_of(request)
            messages = {"approve": "Approved.", "request changes": "Changes are asked for.", "decline": "Declined."}
            return self._perform(
                person, shown, lambda review: self.desk.judge(person, review, verdict, comment or "", shown[1]),
                messages[verdict], self.verdict_words,
            )  # fmt: skip

        return judge

    def give_up(self, shown: Shown, words: str, request: gr.Request) -> Updates:
        """Withdraw the proposal for its author."""
        person = person_of(request)
        return self._perform(
            person,
            shown,
            lambda review: self.desk.withdraw(person, review, words or ""),
            "Withdrawn.",
            self.verdict_words,
        )

    def answer_for(self, shown: Shown, requirement: str, words: str, request: gr.Request) -> Updates:
        """Record that a person answers for an open requirement, by name."""
        person = person_of(request)
        return self._perform(
            person, shown, lambda review: self.desk.waive(person, review, requirement or "", words or ""),
            "Noted with your name.", self.waiver,
        )  # fmt: skip

    def remark(self, shown: Shown, words: str, reply: str, prompt: str, request: gr.Request) -> Updates:
        """Add a comment."""
        person = person_of(request)

        def say(review: ProposalReview) -> None:
            location = _location(review, read(prompt, "On prompt", int))
            self.desk.remark(person, review, words or "", read(reply, "Answers #", int), *location)

        return self._perform(person, shown, say, "Said.", self.words, self.reply, self.prompt)


def _author_text(person: Person) -> str:
    """Return what an author sees instead of a verdict."""
    text = "This proposal is your own: somebody else gives the verdict."
    if person.known:
        return text
    return (
        f"{text} Here nobody signs in, so there is nobody else. Start the app with FSD_ACCESS=password, and add people "
        "with `python -m fsd_core users add`."
    )


def worst_first(pairs: Sequence[Pair]) -> list[Pair]:
    """Return the prompts that speak most against the setting first.

    First come those that only the baseline solves, then those that both or neither solve, last those that only the
    setting solves.
    """
    return sorted(pairs, key=lambda pair: (pair.gain, pair.a.position))


def _location(review: ProposalReview, prompt: int | None) -> tuple[str | None, int | None]:
    """Return the run and the position of a prompt number. Raises ``InvalidSetting`` if the evidence lacks it."""
    if prompt is None:
        return None, None
    writers = review.evidence[0].ours.writers if review.evidence else {}
    if prompt - 1 not in writers:
        raise InvalidSetting(f"The evidence has no prompt {prompt}: leave it empty for the whole proposal.")
    return writers[prompt - 1], prompt - 1
