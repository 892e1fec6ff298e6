"""Comments on a passage of an answer: what was quoted, and whether it still stands there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.errors import OutOfRange, Refused, Stale
from fsd_core.frozen import text_hash
from fsd_core.review.blinding import hidden_answers
from fsd_core.storage.review_events import LONGEST_QUOTE, Commented, Passage

if TYPE_CHECKING:
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.roles import Person
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent


class Quoted(NamedTuple):
    """A passage that a comment is on, as one person may see it now."""

    sequence: int
    """of the comment"""
    run: str
    position: int
    passage: Passage
    state: Literal["there", "lost", "hidden"]
    """lost: the answer is another one now, or was deleted. hidden: it is put to a blind vote of this person."""


def runs_of_review(review: ProposalReview) -> set[str]:
    """Return the ids of the runs whose answers stand on a proposal's page: its own, and the approved proposal's."""
    runs = {*review.proposal.runs, *review.proposal.baselines}
    for moved in review.use.in_force[-1:]:
        if (approved := review.use.proposals.get(moved.proposal or "")) is not None:
            runs |= {*approved.runs, *approved.baselines}
    return runs


def checked_passage(
    repository: Repository, person: Person, review: ProposalReview, run: str, position: int,
    quote: tuple[int, str] | None,
) -> Passage | None:  # fmt: skip
    """Return the passage of an answer that begins nearest to where it is said to; ``None`` without a quote.

    Raises ``InvalidSetting`` if the answer is not of the proposal, or does not hold it, and ``Refused`` for a quote of
    an answer that the person has yet to vote on blind.
    """
    if run not in runs_of_review(review):
        raise Stale("This answer is not of the proposal's evidence: reload the page, and comment on another.")
    if quote is not None and position in hidden_answers(repository, person, [run]).of(run):
        raise Refused("These answers are put to a blind vote: vote on them, or stop voting, and comment then.")
    generation = next(iter(repository.generations(run, position=position)), None)
    if generation is None:
        raise Stale(f"The run has no answer to prompt {position + 1}: reload the page.")
    if quote is None:
        return None
    near, text = quote
    if not 0 < len(text) <= LONGEST_QUOTE:
        raise OutOfRange(f"The passage has {len(text):,} characters: expected 1 to {LONGEST_QUOTE:,}.")
    starts = [start for start in range(len(generation.text)) if generation.text.startswith(text, start)]
    if not starts:
        raise Stale("The answer does not hold this passage: it may have changed, so reload the page.")
    start = min(starts, key=lambda start: abs(start - near))
    return Passage(start=start, end=start + len(text), quote=text, text=text_hash(generation.text))


def quoted_passages(repository: Repository, person: Person, review: ProposalReview) -> dict[int, Quoted]:
    """Return the passages that comments on a proposal are on, by the comment's sequence number."""
    quoting = [(logged, logged.event) for logged in review.proposal.comments if isinstance(logged.event, Commented)]
    runs = {event.run for _, event in quoting if event.run is not None and event.passage is not None}
    hidden = hidden_answers(repository, person, runs)
    result: dict[int, Quoted] = {}
    for logged, event in quoting:
        if event.run is None or event.position is None or event.passage is None:
            continue
        if event.position in hidden.of(event.run):
            state = "hidden"
        else:
            state = "there" if _stands(repository, event.run, event.position, event.passage) else "lost"
        result[logged.sequence] = Quoted(logged.sequence, event.run, event.position, event.passage, state)
    return result


def passage_json(logged: LoggedEvent, quoted: Quoted | None) -> dict[str, object]:
    """Return what a program learns of the answer that a comment is on; empty if it is on none."""
    event = logged.event
    if not isinstance(event, Commented) or event.position is None:
        return {}
    answer: dict[str, object] = {"run": event.run, "prompt": event.position + 1}
    if quoted is not None:
        answer["state"] = quoted.state
        if quoted.state != "hidden":
            answer |= {"start": quoted.passage.start, "end": quoted.passage.end, "quote": quoted.passage.quote}
    return {"answer": answer}


def _stands(repository: Repository, run: str, position: int, passage: Passage) -> bool:
    stored = repository.generations(run, position=position)
    return bool(stored) and stored[0].text[passage.start : passage.end] == passage.quote
