"""Blind vote: two answers to one prompt without their names, and the tally of all votes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.tables.prompt_pairs import Ids, Pairing, pair_up
from dashboard.ui.components import PRIVATE_EVENT, notice, section, show
from dashboard.ui.quantities import interval, percent
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, render
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.formatting import count
from fsd_core.review.ballots import Side, left_side, next_position, tally

if TYPE_CHECKING:
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.review.review_service import ReviewService
    from fsd_core.roles import Person

Updates = dict[Any, Any]
CHOICES = ("Left", "Right", "Tie", "Both bad")


class Ballot(NamedTuple):
    """The two answers that a person is looking at. Stored on the server."""

    proposal: str
    position: int
    left: Side


class BlindVote:
    """The panel's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, desk: ReviewService) -> None:
        self.desk = desk
        show(section("Blind vote"))
        self.tally = show()
        self.answers = show()
        with gr.Row(elem_classes=["rev-forms"], visible=False) as self.row:
            self.buttons = [gr.Button(label) for label in CHOICES]
        self.ballot = gr.State(None)
        for button, label in zip(self.buttons, CHOICES, strict=True):
            button.click(self._vote(label), self.ballot, self.outputs, **PRIVATE_EVENT)

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`open` may change."""
        return [self.tally, self.answers, self.row, self.ballot]

    def open(self, case: ProposalReview, pairing: Pairing | None, person: Person) -> Updates:
        """Return the next two answers for a person, and the tally so far."""
        no_ballot = {self.answers: "", self.row: gr.Row(visible=False), self.ballot: None}
        tally_update = {self.tally: tally_html(case)}
        if pairing is None or case.proposal.state != "open":
            return no_ballot | tally_update
        pairs = {pair.a.position: pair for pair in pairing.filtered("text")}
        runs = {position: pair.a.run_id for position, pair in pairs.items()}
        position = next_position(case.proposal, runs, person.name)
        if position is None:
            done = "You have voted on every prompt whose answers differ."
            return no_ballot | tally_update | {self.answers: render("review/discussion.html", "faded", done)}
        left, pair = left_side(case.proposal, person.name, position), pairs[position]
        first, second = (pair.a, pair.b) if left == "setting" else (pair.b, pair.a)
        sides = {"Left": first.text, "Right": second.text}
        answers = render("review/discussion.html", "ballot", pair.a.prompt, sides)
        ballot = Ballot(case.proposal.id, position, left)
        return tally_update | {self.answers: answers, self.row: gr.Row(visible=True), self.ballot: ballot}

    def _vote(self, label: str) -> Any:
        def vote(ballot: Ballot | None, request: gr.Request) -> Updates:
            person = person_of(request)
            try:
                if ballot is None:
                    raise InvalidSetting("There is nothing to vote on: reload the page.")
                other: Side = "baseline" if ballot.left == "setting" else "setting"
                choice: Any = {"Left": ballot.left, "Right": other}.get(label, label.lower())
                self.desk.vote(person, self.desk.case(ballot.proposal), ballot.position, choice, ballot.left)
                review = self.desk.case(ballot.proposal)
                return self.open(review, pairing_of(self.desk, review), person)
            except FsdError as error:
                return {self.tally: notice(str(error), "bad")}

        return vote


def pairing_of(desk: ReviewService, case: ProposalReview) -> Pairing | None:
    """Return the prompts of a proposal's first evidence."""
    return pair_up(desk.repository, *ids_of(case)) if case.evidence else None


def ids_of(case: ProposalReview) -> tuple[Ids, Ids]:
    """Return the ids of the setting's and of the baseline's runs in the first evidence, whose answers are read."""
    measured, baseline, _ = case.evidence[0]
    return tuple(run.id for run in measured.runs), tuple(run.id for run in baseline.runs)


def tally_html(case: ProposalReview) -> Html:
    """Return all votes as a sentence."""
    votes = tally(case.proposal)
    if not sum(votes):
        nobody = "Nobody voted yet. Names and sides are hidden; the tally says who won."
        return render("review/discussion.html", "faded", nobody)
    text = f"{votes.setting} for the setting, {votes.baseline} for the baseline, "
    text += f"{count(votes.ties, 'tie')}, {votes.both_bad} both bad"
    if (preferred := votes.preference) is not None:
        share, (low, high) = preferred
        text += f"; where one was preferred, the setting in {percent(share, low, high)} ({interval(low, high, 100)})"
    return render("review/discussion.html", "tally", text)
