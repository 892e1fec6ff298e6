"""Answers as voters see them: blind until they have voted, quoted word by word.

Blind votes kept blind: which answers a person may not read with the names of their settings yet.

Answers to one prompt are put to the vote while a proposal is open, if the setting and the baseline of its first
evidence wrote other texts. Whoever may vote on them reads them without names until they have voted on that prompt, have
stopped voting on the proposal, or it is decided. A program counts as its owner.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.errors import OutOfRange, Refused, Stale
from fsd_core.frozen import text_hash
from fsd_core.review import history
from fsd_core.review.evidence import matched_pools
from fsd_core.review.history import measured_runs
from fsd_core.statistics.intervals import Interval, wilson
from fsd_core.storage.review_events import LONGEST_QUOTE, Commented, Passage

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal, ProposalReview
    from fsd_core.roles import Person
    from fsd_core.storage.records import LoggedEvent
    from fsd_core.storage.repository import Repository


Side = Literal["setting", "baseline"]


class Tally(NamedTuple):
    """Votes on a proposal."""

    setting: int
    baseline: int
    ties: int
    both_bad: int

    @property
    def preference(self) -> tuple[float, Interval] | None:
        """The share of votes for the setting among those with a preference, with its 95 % Wilson interval."""
        decided = self.setting + self.baseline
        return (self.setting / decided, wilson(self.setting, decided)) if decided else None


def tally(proposal: Proposal) -> Tally:
    """Count the votes on a proposal's current runs."""
    choices = [vote.choice for vote in proposal.votes.values() if vote.run in proposal.runs]
    return Tally(*(choices.count(choice) for choice in ("setting", "baseline", "tie", "both bad")))


def next_position(proposal: Proposal, runs: Mapping[int, str], person: str) -> int | None:
    """Return the position of a prompt that a person has not voted on. The order is specific to the person. ``runs``
    holds the setting's run that answered, by position."""
    remaining = [position for position, run in runs.items() if not proposal.has_vote(run, position, person)]
    return min(remaining, key=lambda position: _hash(proposal.id, person, position), default=None)


def left_side(proposal: Proposal, person: str, position: int) -> Side:
    """Return whose answer is on the left. Both are equally likely, and the page does not tell."""
    return "setting" if _hash(proposal.id, person, position) % 2 else "baseline"


def _hash(*key: object) -> int:
    return int.from_bytes(hashlib.sha256(repr(key).encode()).digest()[-8:], "big")


class HiddenAnswers(NamedTuple):
    """Answers that one person may not read with their names yet."""

    by_run: Mapping[str, frozenset[int]] = MappingProxyType({})
    """positions of the prompts, by id of the run"""
    proposals: tuple[str, ...] = ()
    """ids of the proposals that they are put to the vote for"""

    def of(self, run_id: str) -> frozenset[int]:
        """Return the positions of a run's prompts whose answers are hidden."""
        return self.by_run.get(run_id, frozenset())


def hidden_answers(repository: Repository, person: Person, run_ids: Collection[str]) -> HiddenAnswers:
    """Return which answers of some runs are hidden from a person."""
    voter = voter_of(person)
    if voter is None:
        return HiddenAnswers()
    named, by_run, proposals = set(run_ids), dict[str, frozenset[int]](), list[str]()
    for use_id in repository.uses_of_runs(named):
        for proposal in history.use(use_id, repository.review_log(use_id)).proposals.values():
            if proposal.state != "open" or proposal.votes_no_more(voter):
                continue
            if named.isdisjoint((*proposal.runs, *proposal.baselines)):
                continue
            hidden = {run: at for run, at in _hidden(repository, proposal, voter).items() if run in named}
            by_run |= {run: by_run.get(run, frozenset()) | positions for run, positions in hidden.items()}
            proposals += [proposal.id] if hidden else []
    return HiddenAnswers(by_run, tuple(proposals))


def blinded(repository: Repository, person: Person, log: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """Return log entries without the passages that comments quote of answers hidden from a person."""
    quoting = {run for one in log if isinstance(one.event, Commented) and one.event.passage and (run := one.event.run)}
    hidden = hidden_answers(repository, person, quoting) if quoting else HiddenAnswers()

    def kept(logged: LoggedEvent) -> LoggedEvent:
        event = logged.event
        if not isinstance(event, Commented) or event.position not in hidden.of(event.run or ""):
            return logged
        return replace(logged, event=event.model_copy(update={"passage": None}))

    return [*map(kept, log)]


def voter_of(person: Person) -> str | None:
    """Return the name under which a person's votes are kept, for a program its owner's; ``None`` for a person who may
    not vote."""
    if person.owner is not None:
        return person.owner
    return person.name if person.may("author") else None


def _hidden(repository: Repository, proposal: Proposal, voter: str) -> dict[str, frozenset[int]]:
    """Return the hidden positions of a proposal's runs on the task of its first evidence, by run.

    Another seed of the same setting often writes the same text, so all of these runs have the same hidden positions.
    """
    runs, baselines, _ = measured_runs(repository, proposal)
    prompts = repository.prompts(run.id for run in (*runs, *baselines) if run.metrics)
    matched = matched_pools(repository, runs, baselines, prompts)
    if not matched:
        return {}
    pool, reference = matched[0]
    differ = repository.answers_that_differ([run.id for run in pool.runs], [run.id for run in reference.runs])
    hidden = frozenset(
        position
        for position in pool.writers.keys() & reference.writers.keys()
        if (pool.writers[position], reference.writers[position], position) in differ
        and not proposal.has_vote(pool.writers[position], position, voter)
    )
    return {run.id: hidden for run in (*runs, *baselines) if run.task == pool.run.task} if hidden else {}


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
