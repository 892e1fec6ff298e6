"""Blind votes kept blind: which answers a person may not read with the names of their settings yet.

Answers to one prompt are put to the vote while a proposal is open, if the setting and the baseline of its first
evidence wrote other texts. Whoever may vote on them reads them without names until they have voted on that prompt, have
stopped voting on the proposal, or it is decided. A program counts as its owner.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.review import history
from fsd_core.review.evidence import matched_pools
from fsd_core.review.proposal_review import measured_runs
from fsd_core.storage.review_events import Commented

if TYPE_CHECKING:
    from fsd_core.review.history import Proposal
    from fsd_core.roles import Person
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import LoggedEvent


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
