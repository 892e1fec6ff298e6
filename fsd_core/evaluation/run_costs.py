"""Costs of texts, at a price per hour of the machine that writes them.

The currency is whatever the price is in. All costs are of the seconds of decoding: a machine that waits costs as well,
and loading a pair is not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fsd_core.evaluation.prompt_clusters import by_cluster
from fsd_core.metrics import Generated
from fsd_core.settings import get_settings
from fsd_core.statistics.intervals import Estimate, keyed
from fsd_core.statistics.ratios import ratio_interval

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

_MILLION = 1e6
_HOUR = 3600.0


def price_of(run: RunView) -> float | None:
    """Return the price per hour that a run was measured at, else the installation's; ``None`` if neither is known."""
    return run.price_per_hour or get_settings().price_per_hour


def cost_per_million_tokens(generations: Sequence[Generated], price: float) -> Estimate | None:
    """Return the cost of a million emitted tokens, with its 95 % interval; ``None`` without tokens.

    ``price`` is per hour. Failed prompts are left out, as they are of the throughput.
    """
    done = [g for g in generations if g.timed and g.outcome != "failed"]
    return _per([(g.seconds * price / _HOUR * _MILLION, g.tokens) for g in done], done)


def cost_per_solved_task(generations: Sequence[Generated], price: float) -> Estimate | None:
    """Return the cost of a prompt solved, with its 95 % interval; ``None`` where none is, or where one has no score.

    ``price`` is per hour. What prompts cost that were not solved, or failed, is part of it.
    """
    timed = [g for g in generations if g.timed]
    if any(g.outcome == "unscored" for g in timed):
        return None
    return _per([(g.seconds * price / _HOUR, float(g.outcome == "correct")) for g in timed], timed)


def cost_figures(generations: Sequence[Generated], price: float | None) -> dict[str, float | None]:
    """Return the metrics of cost and their intervals; ``{}`` without a price."""
    if price is None:
        return {}
    return {
        "price_per_hour": price,
        **keyed("cost_per_million_tokens", cost_per_million_tokens(generations, price)),
        **keyed("cost_per_solved_task", cost_per_solved_task(generations, price)),
    }


def _per(pairs: Sequence[tuple[float, float]], generations: Sequence[Generated]) -> Estimate | None:
    """Return the ratio of the sums of some pairs, one for each generation."""
    total = sum(denominator for _, denominator in pairs)
    if not total:
        return None
    low, high = ratio_interval(by_cluster(pairs, generations)) or (None, None)
    return Estimate(sum(numerator for numerator, _ in pairs) / total, low, high)
