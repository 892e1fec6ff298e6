"""Deviation of a run from the target alone on the same prompts: the cost of a fuzzy rule when nothing is scored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import Any

import numpy as np

from fsd_core.statistics.clusters import by_group, clustered_wilson
from fsd_core.statistics.ratios import difference_interval, summed

FIDELITY_KEYS = (
    "same_text", "same_text_low", "same_text_high", "agreed_tokens",
    "excess_nll", "excess_nll_low", "excess_nll_high",
)  # fmt: skip


@dataclass(frozen=True)
class ComparedText:
    """One prompt's emitted tokens, and their negative log-likelihood under the target, in nats.

    A conversation is one text: later turns follow what was written before, so they cannot be compared alone.
    """

    tokens: Sequence[int]
    negative_log_likelihood: float


Groups = Mapping[int, str]
"""the group of each prompt that has one, by position: its prompts count as one cluster in an interval"""
_ALONE: Groups = MappingProxyType({})


def fidelity(
    run: Mapping[int, ComparedText], target: Mapping[int, ComparedText], *, greedy: bool, groups: Groups = _ALONE
) -> dict[str, Any]:
    """Return fidelity metrics over the prompts that both runs have, by position, ready for JSON.

    ``same_text``: share of texts equal to the greedy target's, token for token, with Wilson's interval.
    ``agreed_tokens``: median number of tokens before the first difference, over the texts that differ. Both are
    ``None`` when sampling, because two lossless methods then write different texts as well. ``excess_nll``: nats per
    token above those of the target's own texts, with an interval over paired prompts if three differ. It is near 0 for
    lossless methods.
    """
    shared = sorted(run.keys() & target.keys())
    pairs, clusters = [(run[position], target[position]) for position in shared], by_group(shared, groups)
    figures: dict[str, Any] = dict.fromkeys(FIDELITY_KEYS)
    if not pairs:
        return figures
    if greedy:
        same = [list(a.tokens) == list(b.tokens) for a, b in pairs]
        agreed = [_agreed(a.tokens, b.tokens) for a, b in pairs if list(a.tokens) != list(b.tokens)]
        figures |= _same_text(same, clusters)
        figures["agreed_tokens"] = median(agreed) if agreed else None
    sides = [[(text.negative_log_likelihood, len(text.tokens)) for text in side] for side in zip(*pairs, strict=True)]
    if all(any(tokens for _, tokens in side) for side in sides):
        a, b = (sum(nats for nats, _ in side) / sum(tokens for _, tokens in side) for side in sides)
        low, high = difference_interval(*(summed(side, clusters) for side in sides)) or (None, None)
        figures |= {"excess_nll": a - b, "excess_nll_low": low, "excess_nll_high": high}
    return figures


def text_fidelity(
    run: Mapping[int, str], target: Mapping[int, str], *, greedy: bool, groups: Groups = _ALONE
) -> dict[str, Any]:
    """Return what :func:`fidelity` can say of texts whose tokens are not known, as an engine gives them: ``same_text``,
    by the characters."""
    shared, figures = sorted(run.keys() & target.keys()), {str(key): None for key in FIDELITY_KEYS}
    if not shared or not greedy:
        return figures
    same = [run[position] == target[position] for position in shared]
    return figures | _same_text(same, by_group(shared, groups))


def _same_text(same: Sequence[bool], clusters: np.ndarray) -> dict[str, float]:
    low, high = clustered_wilson(same, clusters)
    return {"same_text": sum(same) / len(same), "same_text_low": low, "same_text_high": high}


def _agreed(a: Sequence[int], b: Sequence[int]) -> int:
    """Return the number of equal first tokens. A text that goes on where the other ends differs there."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
