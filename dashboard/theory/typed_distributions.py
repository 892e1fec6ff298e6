"""Computations of the theory page on two typed-in distributions.

Heavy imports are deferred until they are needed, so that the page opens at once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from string import ascii_uppercase

from fsd_core.config import VERIFIERS
from fsd_core.errors import Contradiction, Malformed, OutOfRange
from fsd_core.plots.acceptance_by_drafts import MOST_DRAFTS, OPTIMA

_MOST_TOKENS = 200
MOST_OUTCOMES = 400  # of the drafts, in a picture of their coupling
_BETWEEN = re.compile(r"[\s,;|]+")


@dataclass(frozen=True)
class AcceptanceCurves:
    """Acceptance by the number of drafts, from one on."""

    optima: dict[str, list[float]]
    """by the sampling of drafts"""
    verifiers: dict[str, tuple[str, str, Mapping[int, float]]]
    """title, sampling of drafts, and rates by the number of drafts"""


def read_weights(text: str, name: str) -> list[float]:
    """Return numbers separated by spaces or commas as shares of their sum. Raises ``InvalidSetting`` for anything
    else."""
    parts = [part for part in _BETWEEN.split(text.strip()) if part]
    try:
        weights = [float(part) for part in parts]
    except ValueError:
        bad = next(part for part in parts if not _is_number(part))
        raise Malformed(f"“{bad[:20]}” in {name} is not a number: expected numbers such as 0.5, 0.3, 0.2.") from None
    if not 1 <= len(weights) <= _MOST_TOKENS:
        raise OutOfRange(
            f"There are {len(weights)} numbers in {name}: expected 1 to {_MOST_TOKENS}, one for each token."
        )
    if not min(weights) >= 0 or not 0 < sum(weights) < float("inf"):
        raise OutOfRange(
            f"The numbers in {name} are not a distribution: expected finite numbers of at least 0, not all of them 0."
        )
    return [weight / sum(weights) for weight in weights]


def _is_number(part: str) -> bool:
    try:
        float(part)
    except ValueError:
        return False
    return True


def read_pair(target: str, draft: str) -> tuple[list[float], list[float]]:
    """Return p and q of one vocabulary. Raises ``InvalidSetting``."""
    p, q = read_weights(target, "the target's distribution"), read_weights(draft, "the draft's distribution")
    if len(p) != len(q):
        raise Contradiction(
            f"The target has {len(p)} tokens and the draft {len(q)}: give both the same tokens, 0 for a missing one."
        )
    return p, q


def token_names(count: int) -> list[str]:
    """Return A, B, … for up to 26 tokens, and numbers for more."""
    return list(ascii_uppercase[:count]) if count <= len(ascii_uppercase) else [str(i + 1) for i in range(count)]


def curves(p: list[float], q: list[float]) -> AcceptanceCurves:
    """Return all optima and all verifiers, for 1 to ``MOST_DRAFTS`` drafts."""
    from fsd_core.rules.rates import acceptance_rate
    from fsd_core.theory import optimal_acceptance

    counts = range(1, MOST_DRAFTS + 1)
    optima = {sampling: [optimal_acceptance(p, q, n, sampling) for n in counts] for sampling in OPTIMA}
    verifiers: dict[str, tuple[str, str, Mapping[int, float]]] = {}
    for name, verifier in VERIFIERS.items():
        if verifier.optimal:  # equals the optimum of its drafts
            continue
        supported = counts if verifier.drafts is None else (verifier.drafts,)
        verifiers[name] = (verifier.title, verifier.sampling, {n: acceptance_rate(name, p, q, n) for n in supported})
    return AcceptanceCurves(optima, verifiers)


def coupling(p: list[float], q: list[float], drafts: int, sampling: str) -> dict[tuple[int, ...], list[float]] | None:
    """Return the optimal coupling of drafts and output token, or ``None`` if its picture would be too large."""
    import numpy as np

    from fsd_core.theory.transport import joint_distribution, optimal_coupling

    if sampling != "greedy" and len(q) ** drafts > MOST_OUTCOMES:
        return None
    _, weights = optimal_coupling(np.array(p), joint_distribution(np.array(q), drafts, sampling))
    return {outcome: row.tolist() for outcome, row in weights.items()}
