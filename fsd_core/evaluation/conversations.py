"""Conversations whose turns a run asks one after another: what a later turn is asked, and figures by conversation.

The turns of one are not independent, so an interval takes them as one.
"""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.errors import FsdError
from fsd_core.metrics import Generated
from fsd_core.statistics.ratios import Pairs
from fsd_core.storage.database.repository import Repository
from fsd_core.tasks.base import Example, Said, Task


class TurnFailed(FsdError):
    """A turn of a conversation cannot be asked, because an earlier one failed."""


def asked_prompt(repository: Repository, run_id: str, task: Task, position: int) -> Example:
    """Return a prompt of a run as it is asked, with what the run wrote in earlier turns. Raises ``TurnFailed``."""
    turn = task.all_examples()[position].turn
    earlier = [repository.generations(run_id, position=position - back) for back in range(turn, 0, -1)]
    if any(not found or found[0].outcome == "failed" for found in earlier):
        raise TurnFailed(
            "An earlier turn of this conversation failed, so this one could not be asked. Resume the run to try again."
        )
    return task.asked(position, [Said(found[0].text, found[0].only_thought) for found in earlier])


def conversation_numbers(generations: Sequence[Generated]) -> list[int]:
    """Return which conversation each generation belongs to, from 0. A prompt that stands alone is one of its own.

    ``generations`` are in order of position, and some may be missing.
    """
    numbers, number, last = [], -1, 0
    for generation in generations:
        if not numbers or generation.turn <= last or not generation.turn:
            number += 1
        last = generation.turn
        numbers.append(number)
    return numbers


def by_conversation(pairs: Pairs, generations: Sequence[Generated]) -> Pairs:
    """Return the sums of numerators and of denominators in each conversation."""
    sums: dict[int, tuple[float, float]] = {}
    for number, (numerator, denominator) in zip(conversation_numbers(generations), pairs, strict=True):
        before = sums.get(number, (0.0, 0.0))
        sums[number] = before[0] + numerator, before[1] + denominator
    return list(sums.values())
