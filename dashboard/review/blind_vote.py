"""Blind vote: two answers to one prompt without their names, and the tally of all votes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.tables.prompt_pairs import Ids, Pairing, pair_up
from dashboard.ui.components import section, show
from dashboard.ui.templates import Html, interval, render
from dashboard.ui.view import Asked, Part, Updates, Values, View, digest
from fsd_core.errors import Overtaken
from fsd_core.review.blinding import Side, left_side, next_position, tally
from fsd_core.roles import folded
from fsd_core.texts import count, percent

if TYPE_CHECKING:
    from fsd_core.review.history import ProposalReview
    from fsd_core.review.review_service import ReviewService
    from fsd_core.roles import Person
    from fsd_core.storage.records import GenerationView

CHOICES = ("Left", "Right", "Tie", "Both bad")


_NOTHING_DIFFERS = "Both wrote the same answers, so there is nothing to vote on."


class Ballot(NamedTuple):
    """Two answers to one prompt, side by side."""

    left_side: Side
    left: GenerationView
    right: GenerationView

    @property
    def identity(self) -> str:
        """The number of the prompt, and a digest of the texts from left to right. It says no more than the page
        shows."""
        return f"{self.left.position} {digest(self.left.prompt, self.left.text, self.right.text)}"


class BlindVote(Part):
    """The panel's components as attributes."""

    def __init__(self, service: ReviewService) -> None:
        self.service = service
        show(section("Blind vote"))
        self.tally = show()
        self.answers = show()
        with gr.Row(elem_classes=["rev-forms"], visible=False) as self.row:
            self.buttons = [gr.Button(label) for label in CHOICES]
            self.stop = gr.Button("Stop voting, show the names", min_width=240)
        self.answer = show()
        self.ballot = gr.Textbox(visible="hidden")  # identity of the displayed one
        self.outputs = [self.tally, self.answers, self.row, self.ballot]

    def listen(self, view: View) -> None:
        """Attach the events."""
        for button, label in zip(self.buttons, CHOICES, strict=True):
            view.button(button, f"vote {label}", [self.ballot], self._vote(label), self.answer)
        view.button(self.stop, "stop voting", [], self._stop, self.answer)

    def redraw(self, asked: Asked, review: ProposalReview, read: Callable[[], Pairing | None]) -> Updates:
        """Return the tally so far and the next two answers for a person, if they differ. ``read`` returns the prompts
        of the first evidence."""
        proposal, person = review.proposal, asked.person
        html = tally_html(review)
        updates = {self.tally: html} if asked.differs("tally", html) else {}
        voted = [key for key in proposal.votes if key[2] == folded(person.name)]
        stopped = proposal.votes_no_more(person.name)
        if not asked.differs("ballot", proposal.state, review.hash, voted, person.name, stopped, slow=asked.opening):
            return updates
        pairing = read() if proposal.state == "open" else None
        ballot = next_ballot(review, pairing, person) if pairing else None
        if ballot:
            sides = {"Left": ballot.left.text, "Right": ballot.right.text}
            answers = render("review/discussion.html", "ballot", ballot.left.prompt, sides)
        else:
            done = "You have voted on every prompt whose answers differ." if voted else _NOTHING_DIFFERS
            if stopped:
                done = "You stopped voting on this proposal: the answers stand below with their names."
            answers = render("review/discussion.html", "faded", done) if pairing else ""
        return updates | {
            self.answers: answers, self.row: gr.Row(visible=ballot is not None),
            self.ballot: ballot.identity if ballot else "",
        }  # fmt: skip

    def _vote(self, label: str) -> Callable[[Values, Asked], Updates]:
        def vote(values: Values, asked: Asked) -> Updates:
            review = self.service.review(asked.address.get("proposal", ""))
            ballot = self._ballot(review, values[self.ballot].partition(" ")[0], asked.person)
            if ballot is None or ballot.identity != values[self.ballot]:
                for part in ("ballot", "prompts"):
                    asked.shown.pop(part, None)  # their texts are others now
                raise Overtaken("These answers were replaced since they were shown: read what is here now.")
            other: Side = "baseline" if ballot.left_side == "setting" else "setting"
            choice: Any = {"Left": ballot.left_side, "Right": other}.get(label, label.lower())
            self.service.vote(asked.person, review, ballot.left.position, choice, ballot.left_side, key=values.key)
            return {self.answer: ""}

        return vote

    def _stop(self, values: Values, asked: Asked) -> Updates:
        review = self.service.review(asked.address.get("proposal", ""))
        self.service.stop_voting(asked.person, review, key=values.key)
        return {self.answer: ""}

    def _ballot(self, review: ProposalReview, position: str, person: Person) -> Ballot | None:
        """Return the two answers to one prompt as they are stored now, or ``None`` if one of them is gone."""
        pools = review.evidence[0][:2] if review.evidence else ()
        writers = [(id, at) for pool in pools for at, id in pool.writers.items() if str(at) == position]
        stored = [one for id, at in writers for one in self.service.repository.generations(id, position=at)]
        return _ballot(review, stored[0], stored[1], person) if len(stored) == 2 else None


def next_ballot(review: ProposalReview, pairing: Pairing, person: Person) -> Ballot | None:
    """Return the next two answers for a person, or ``None`` if they voted on all that differ, or stopped voting."""
    if review.proposal.votes_no_more(person.name):
        return None
    pairs = {pair.a.position: pair for pair in pairing.filtered("text")}
    runs = {position: pair.a.run_id for position, pair in pairs.items()}
    position = next_position(review.proposal, runs, person.name)
    return None if position is None else _ballot(review, *pairs[position], person)


def _ballot(review: ProposalReview, setting: GenerationView, baseline: GenerationView, person: Person) -> Ballot:
    side = left_side(review.proposal, person.name, setting.position)
    return Ballot(side, *((setting, baseline) if side == "setting" else (baseline, setting)))


def pairing_of(service: ReviewService, review: ProposalReview) -> Pairing | None:
    """Return the prompts of a proposal's first evidence."""
    return pair_up(service.repository, *ids_of(review)) if review.evidence else None


def ids_of(review: ProposalReview) -> tuple[Ids, Ids]:
    """Return the ids of the setting's and of the baseline's runs in the first evidence, whose answers are read."""
    measured, baseline, _ = review.evidence[0]
    return tuple(run.id for run in measured.runs), tuple(run.id for run in baseline.runs)


def tally_html(review: ProposalReview) -> Html:
    """Return all votes as a sentence."""
    votes = tally(review.proposal)
    if not sum(votes):
        nobody = "Nobody voted yet. Names and sides are hidden; the tally says who won."
        return render("review/discussion.html", "faded", nobody)
    text = f"{votes.setting} for the setting, {votes.baseline} for the baseline, "
    text += f"{count(votes.ties, 'tie')}, {votes.both_bad} both bad"
    if (preferred := votes.preference) is not None:
        share, (low, high) = preferred
        text += f"; where one was preferred, the setting in {percent(share, low, high)} ({interval(low, high, 100)})"
    return render("review/discussion.html", "tally", text)
