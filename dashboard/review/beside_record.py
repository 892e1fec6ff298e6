"""A proposal beside what is approved, as plain data for programs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from typing_extensions import TypedDict

from dashboard.tables.prompt_pairs import Pairing, Show, pair_up
from fsd_core.errors import OutOfRange, UnknownName
from fsd_core.review.beside_approved import beside_approved
from fsd_core.review.blinding import hidden_answers

if TYPE_CHECKING:
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.roles import Person
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import GenerationView

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


def beside_record(
    repository: Repository, person: Person, review: ProposalReview, which: Show, limit: int, offset: int
) -> BesideAnswer:  # fmt: skip
    """Return each requirement for both settings, on how many prompts which one is better, and some of the prompts.

    Raises ``UnknownName`` if nothing else is approved, and ``InvalidSetting`` for a limit out of range.
    """
    if not 1 <= limit <= _MOST or offset < 0:
        raise OutOfRange(f"The limit is {limit} and the offset {offset}: expected 1 to {_MOST}, and 0 or more.")
    beside = beside_approved(repository, review)
    if beside is None:
        raise UnknownName(
            f"No other setting is approved for the use '{review.use.id}', so there is nothing to compare."
        )
    pairing = pair_up(repository, beside.candidate_runs, beside.approved_runs)
    hidden = hidden_answers(repository, person, [*beside.candidate_runs, *beside.approved_runs])
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
