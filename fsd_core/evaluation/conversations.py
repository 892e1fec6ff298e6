"""Figures by conversation: its turns are not independent, so an interval takes them as one prompt."""

from __future__ import annotations

from collections.abc import Sequence

from fsd_core.metrics import Generated
from fsd_core.statistics.ratios import Pairs


def conversation_numbers(generations: Sequence[Generated]) -> list[int]:
    """Return which conversation each generation belongs to, from 0. A prompt that stands alone is one of its own.

    ``generations`` are in order of position, and some may be missing.
    """
    numbers, number, last = [], -1, 0
    for generation in generations:
        if not numbers or generation.turn <= last:
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
