"""With what probability each verifier of multi-draft speculative decoding accepts, at a position with p and q.

Every one of them is lossless, and none accepts more often than the optimum for its drafts (``theory.optimum``).
Sources: RRS = Miao et al. 2023 (SpecInfer), without replacement Jeon et al. 2024 and Yang et al. 2024; K-SEQ = Sun et
al. 2023 (SpecTr); SpecHub = Sun et al. 2024; the greedy drafts' = Hu et al. 2025 (arXiv 2502.18779).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from fsd_core import config
from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.theory.distributions import Vector, check_drafts, for_each_row, once_in
from fsd_core.theory.optimum import greedy_acceptance
from fsd_core.theory.rejections import SAMPLED, without_replacement


def acceptance_rate(rule: str, target_probs: Any, draft_probs: Any, num_drafts: int, paths: int = SAMPLED) -> Any:
    """The chance that the emitted token is one of ``num_drafts`` drafts, under the verifier ``rule``.

    ``target_probs``, ``draft_probs``: p and q, arrays or tensors [V] or [R,V]. Returns a float, or float64 [R].
    Exact, but for ``rrs-without-replacement`` where V^(n−1) is beyond ``rejections.MOST_PATHS``: there so many
    ``paths`` of rejections are sampled, always the same.

    Raises ``UnknownName`` for another rule, ``InvalidSetting`` for what are no distributions, or for another
    number of drafts than the rule couples.
    """
    check_drafts(num_drafts)
    if rule not in VERIFIERS:
        raise UnknownName(f"There is no verifier '{rule}': expected one of {', '.join(VERIFIERS)}.")
    if (only := VERIFIERS[rule].drafts) not in (None, num_drafts):
        raise InvalidSetting(f"'{rule}' couples {only} drafts, not {num_drafts}: choose {only}, or another verifier.")
    accept = VERIFIERS[rule].acceptance
    if accept is without_replacement:
        accept = partial(without_replacement, sampled=paths)
    return for_each_row(target_probs, draft_probs, lambda p, q: min(1.0, float(accept(p, q, int(num_drafts)))))


def _recursive(p: Vector, q: Vector, count: int) -> float:
    """1 − Π_i (1 − Σ min(p_i, q)), p_1 = p, p_{i+1} = norm((p_i − q)₊)."""
    rejected = 1.0
    for _ in range(count):
        rest = np.maximum(p - q, 0)
        missed = rest.sum()
        rejected *= missed
        if missed <= 0:
            break
        p = rest / missed
    return 1 - rejected


def k_seq_ratio(p: Vector, q: Vector, count: int) -> float:
    """K-SEQ's ρ in [1,n]: the root of 1 − (1 − β)^n = ρβ, with β(ρ) = Σ min(p/ρ, q)."""

    def left_over(ratio: float) -> float:
        kept = np.minimum(p / ratio, q).sum()
        return float(once_in(kept, count)) - ratio * kept

    if count == 1 or left_over(1.0) <= 0:
        return 1.0
    low, high = 1.0, float(count)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if left_over(middle) > 0 else (low, middle)
    return high


def _k_seq(p: Vector, q: Vector, count: int) -> float:
    """ρβ(ρ)"""
    ratio = k_seq_ratio(p, q, count)
    return ratio * np.minimum(p / ratio, q).sum()


def _naive_sampling(p: Vector, q: Vector, count: int) -> float:
    """Σ p (1 − (1 − q)^n): a sample from p that happens to be among the drafts."""
    return (p * once_in(q, count)).sum()


def _first_draft(p: Vector, q: Vector, count: int) -> float:
    """Σ min(p, q) + Σ (p − q)₊ (1 − (1 − q)^{n−1}): the residual may hit one of the others."""
    return np.minimum(p, q).sum() + (np.maximum(p - q, 0) * once_in(q, count - 1)).sum()


@dataclass(frozen=True)
class Verifier:
    """``sampling``: how its drafts come about, as in ``theory.optimum``; ``acceptance``: (p, q, n) → a number."""

    title: str
    sampling: str
    drafts: int | None
    """how many it couples; ``None``: as many as there are"""
    optimal: bool
    """whether it accepts as often as drafts of its kind can be"""
    acceptance: Callable[[Vector, Vector, int], float]


_ACCEPTANCE: dict[str, Callable[[Vector, Vector, int], float]] = {
    "rrs": _recursive,
    "rrs-without-replacement": without_replacement,
    "k-seq": _k_seq,
    "nss": _naive_sampling,
    "naive": _first_draft,
    "spec-hub": greedy_acceptance,
    "greedy-optimal": greedy_acceptance,
}
VERIFIERS = {
    kind: Verifier(rule.title, rule.sampling, rule.drafts, rule.optimal, _ACCEPTANCE[kind])
    for kind, rule in config.VERIFIERS.items()
}
