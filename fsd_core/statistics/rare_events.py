"""Upper limits on the share of an event that few or none of the prompts showed.

If none of n independent prompts showed it, its share is at most 1 − 0.05^(1/n) with a confidence of 95 %, about 3/n:
the rule of three (Hanley and Lippman-Hand 1983). If k did, it is the one-sided limit of Clopper and Pearson (1934), the
0.95 quantile of Beta(k + 1, n − k). For k = 0 that is the same number.
"""

from __future__ import annotations

import math

CONFIDENCE = 0.95
RARE = 0.01
"""a share of runaways that a verdict on speed or length must have had the chance to see"""
PROMPTS_THAT_SHOW_RARE = math.ceil(math.log(1 - CONFIDENCE) / math.log(1 - RARE))
"""299: so many prompts show an event of 1 % at least once with a chance of 95 %"""


def most_share(seen: int, n: int) -> float:
    """Return the largest share, at 95 %, of an event that ``seen`` of ``n`` prompts showed.

    Raises ``ValueError`` for impossible counts, such as an ``n`` of 0.
    """
    if not 0 <= seen <= n or n == 0:
        raise ValueError(f"Expected 0 <= seen <= n and n > 0, got {seen} of {n}.")
    if not seen:
        return 1 - (1 - CONFIDENCE) ** (1 / n)
    if seen == n:
        return 1.0
    from scipy.special import betaincinv  # scipy.stats takes a second to import

    return float(betaincinv(seen + 1, n - seen, CONFIDENCE))


def with_runaways(ratio: float, share: float, runaway: float) -> float:
    """Return a ratio to a baseline's mean if a further ``share`` of answers is runaways.

    Without them it is ``ratio``. ``runaway`` is one runaway over the baseline's mean. It is (1 − u)·r + u·x.
    """
    return (1 - share) * ratio + share * runaway
