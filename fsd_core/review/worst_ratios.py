"""A ratio of length or speed if as many answers as its prompts may have missed ran on to the limit of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsd_core.analysis.cells import shared
from fsd_core.evaluation.versus import answered
from fsd_core.statistics.rare_events import with_runaways

if TYPE_CHECKING:
    from fsd_core.evaluation.runaways import Runaways
    from fsd_core.statistics.intervals import Estimate
    from fsd_core.storage.records import Prompts, RunView


def worst_length(
    ratio: Estimate | None, rare: Runaways | None, run: RunView, baseline: RunView, prompts: Prompts
) -> float | None:
    """Return (1 − u)·high + u·L/b: ``u`` is the share of runaways, ``L`` the limit, ``b`` the baseline's mean length.

    ``None`` without an interval or without runaways to reckon with.
    """
    if ratio is None or ratio.high is None or rare is None:
        return None
    run_counts, baseline_counts = shared(run, baseline, prompts)
    keys = answered(run_counts, baseline_counts)
    length = sum(baseline_counts[key].tokens for key in keys) / len(keys)
    return with_runaways(ratio.high, rare.most, run.decoding.max_new_tokens / length)


def worst_speed(
    ratio: Estimate | None, rare: Runaways | None, run: RunView, baseline: RunView, prompts: Prompts
) -> float | None:
    """Return 1 / ((1 − u)/low + u·L·s/b): ``s`` is the run's time per token, ``b`` the baseline's time per answer.

    ``None`` as for :func:`worst_length`, and if nothing was timed.
    """
    if ratio is None or ratio.low is None or rare is None:
        return None
    run_counts, baseline_counts = shared(run, baseline, prompts)
    keys = answered(run_counts, baseline_counts, timed=True)
    tokens = sum(run_counts[key].tokens for key in keys)
    per_answer = sum(baseline_counts[key].seconds for key in keys) / len(keys) if keys else 0
    if not tokens or not per_answer:
        return None
    runaway = run.decoding.max_new_tokens * sum(run_counts[key].seconds for key in keys) / tokens
    return 1 / with_runaways(1 / ratio.low, rare.most, runaway / per_answer)
