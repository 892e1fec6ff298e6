"""Answers that only the run did not end by itself, and how many more of them its prompts may have missed.

An interval of a ratio knows the prompts it is computed from. Where one answer in a hundred runs on to the limit, most
samples of thirty hold none, and their interval of speed, length, passes or acceptance is of the others alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from fsd_core.evaluation.prompt_clusters import clusters_of
from fsd_core.evaluation.versus import answered
from fsd_core.formatting import count
from fsd_core.metrics import METRICS, Generated, Metric
from fsd_core.statistics.rare_events import PROMPTS_THAT_SHOW_RARE, most_share


def is_moved(metric: Metric) -> bool:
    """Return whether one long answer moves a metric: it is a ratio of sums over tokens, rounds or seconds."""
    return metric.timed or (metric.ratio is not None and not metric.counted)


class Runaways(NamedTuple):
    """Runaways of a run where its baseline ended by itself."""

    seen: int
    n: int
    """prompts that both answered; those that depend on each other count as one"""
    unit: str = "prompt"
    """what ``n`` counts: prompts, conversations or groups"""

    @property
    def most(self) -> float:
        """The largest share at 95 %: the rule of three if none was seen."""
        return most_share(self.seen, self.n)

    @property
    def prompts_lacking(self) -> int:
        """How many more prompts would have shown runaways of 1 %."""
        return max(0, PROMPTS_THAT_SHOW_RARE - self.n)

    @property
    def share(self) -> str:
        """``most`` as text, rounded up, such as ``10 %``."""
        percent = -(-self.most * 1000 // 1) / 10
        return f"{percent:.1f} %" if percent < 2 else f"{-(-percent // 1):.0f} %"

    @property
    def sentence(self) -> str:
        """Such as ``up to 10 % of answers could be runaways unseen by 30 prompts``."""
        if not self.seen:
            return f"up to {self.share} of answers could be runaways unseen by {count(self.n, self.unit)}"
        return f"runaways beyond the baseline's: {self.seen} of {self.n:,}, and up to {self.share} are possible"


def runaways(run: Mapping[int, Generated], baseline: Mapping[int, Generated]) -> Runaways | None:
    """Return the run's runaways on the prompts that neither failed; ``None`` without such a prompt."""
    if not (shared := answered(run, baseline)):
        return None
    clusters = clusters_of({key: run[key] for key in shared})
    ran_away = {clusters[key] for key in shared if _endless(run[key]) and not _endless(baseline[key])}
    n = len(set(clusters.values()))
    together = "group" if any(run[key].group for key in shared) else "conversation"
    return Runaways(len(ran_away), n, "prompt" if n == len(shared) else together)


def _endless(generated: Generated) -> bool:
    ratio = METRICS["runaway_rate"].ratio
    return ratio is not None and ratio(generated)[0] > 0
