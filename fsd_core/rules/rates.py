"""Acceptance probability of each multi-draft verifier at a position with p and q.

All are lossless, and none accepts more often than the optimum for its drafts (``theory.optimum``).
"""

from __future__ import annotations

from typing import Any

from fsd_core.errors import IncompatibleOptions, UnknownName
from fsd_core.rules import VERIFIERS
from fsd_core.theory import POSITIONS_SAMPLED, check_drafts, for_each_row


def acceptance_rate(
    rule: str, target_probs: Any, draft_probs: Any, num_drafts: int, paths: int = POSITIONS_SAMPLED
) -> Any:
    """Return the probability that the emitted token is one of ``num_drafts`` drafts under the verifier ``rule``.

    ``target_probs``, ``draft_probs``: p and q, arrays or tensors [V] or [R,V]. Returns a float, or float64 [R]. Exact,
    except for ``rrs-without-replacement`` if V^(n−1) exceeds ``rejections.MOST_PATHS``. It then samples ``paths`` paths
    of rejections with a fixed seed.

    Raises ``UnknownName`` for another rule, and ``InvalidSetting`` for invalid distributions or a number of drafts that
    the rule does not couple.
    """
    check_drafts(num_drafts)
    if rule not in VERIFIERS:
        raise UnknownName(f"There is no verifier '{rule}': expected one of {', '.join(VERIFIERS)}.")
    verifier = VERIFIERS[rule]
    if (count := verifier.drafts) not in (None, num_drafts):
        raise IncompatibleOptions(
            f"'{rule}' couples {count} drafts, not {num_drafts}: choose {count}, or another verifier."
        )
    return for_each_row(
        target_probs, draft_probs, lambda p, q: min(1.0, float(verifier.rate(p, q, int(num_drafts), paths)))
    )
