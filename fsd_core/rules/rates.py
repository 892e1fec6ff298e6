"""With what probability each verifier of several drafts accepts, at a position with p and q.

Every one of them is lossless, and none accepts more often than the optimum for its drafts (``theory.optimum``).
"""

from __future__ import annotations

from typing import Any

from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.rules import VERIFIERS
from fsd_core.theory.distributions import check_drafts, for_each_row
from fsd_core.theory.rejections import POSITIONS_SAMPLED


def acceptance_rate(
    rule: str, target_probs: Any, draft_probs: Any, num_drafts: int, paths: int = POSITIONS_SAMPLED
) -> Any:
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
    verifier = VERIFIERS[rule]
    if (only := verifier.drafts) not in (None, num_drafts):
        raise InvalidSetting(f"'{rule}' couples {only} drafts, not {num_drafts}: choose {only}, or another verifier.")
    return for_each_row(
        target_probs, draft_probs, lambda p, q: min(1.0, float(verifier.rate(p, q, int(num_drafts), paths)))
    )
