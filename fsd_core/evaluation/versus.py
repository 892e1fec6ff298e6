"""One run beside others on the prompts that all have done: metrics, texts and times.

Prompts that depend on each other: turns of one conversation, and prompts of one group.

Intervals take such a cluster in place of the prompt.

Ranking of settings by time per answer, no finer than the machine allows.

Times of two settings are told apart only if the median of their ratios, prompt by prompt, leaves no doubt which is
less, and if they differ by more than :data:`LEAST_TOLD_APART` and by more than the share of the time that other
programs took, which could have fallen on either. Of the settings that are not told apart from the fastest, those whose
ratio to it may be 1 come first, by target passes, which do not depend on the machine; the others follow by the lower
bound of their ratio.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import numpy as np

from fsd_core.metrics import METRICS, Metric, PromptCounts, listed, taken
from fsd_core.statistics.intervals import (
    Interval,
    Pairs,
    by_group,
    clustered_wilson,
    difference_interval,
    median_interval,
    numbered,
    quotient_interval,
    summed,
)
from fsd_core.statistics.paired import paired_difference

if TYPE_CHECKING:
    from fsd_core.storage.records import GenerationView


def cluster_numbers(generations: Sequence[PromptCounts]) -> np.ndarray:
    """Return the cluster of each generation, from 0. A prompt that stands alone is one of its own. → int [n]

    ``generations`` are in order of position, and some may be missing.
    """
    names: list[Hashable] = []
    conversation, last = -1, 0
    for generation in generations:
        if not names or generation.turn <= last:
            conversation += 1
        last = generation.turn
        names.append(generation.group or conversation)
    return numbered(names)


def by_cluster(pairs: Pairs, generations: Sequence[PromptCounts]) -> Pairs:
    """Return the sums of numerators and of denominators in each cluster."""
    return summed(pairs, cluster_numbers(generations))


def clusters_of(counts: Mapping[int, PromptCounts]) -> dict[int, int]:
    """Return the cluster of each prompt by position. ``counts`` are in order of position."""
    return dict(zip(counts, cluster_numbers(list(counts.values())).tolist(), strict=True))


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


Prompts = Mapping[int, PromptCounts]
"""by position"""
OF_ANSWERS = ("seconds_per_answer", "tokens_per_second", "mean_tokens", "target_passes", "runaway_rate")


class Versus(NamedTuple):
    """A ratio or a speed-up if the metric says so, else a difference in the stored unit of the metric."""

    value: float
    low: float | None = None
    high: float | None = None

    @property
    def interval(self) -> Interval | None:
        """The 95 % interval, if the prompts support one."""
        return None if self.low is None or self.high is None else Interval(self.low, self.high)


def versus(metric: Metric, run: Prompts, baseline: Prompts) -> Versus | None:
    """Return a metric of one run relative to another, both by position of the prompt in one task.

    Return ``None`` for a metric that is no ratio, and if the prompts that neither run failed give nothing to divide by.
    """
    shared = answered(run, baseline, timed=metric.timed)
    if metric.ratio is None or not shared:
        return None
    a, b = ([metric.ratio(side[key]) for key in shared] for side in (run, baseline))
    if metric.as_speedup:
        a, b = b, a
    value, other = _value(a), _value(b)
    if value is None or other is None:
        return None
    if metric.counted:
        run_hits, baseline_hits = (
            dict(zip(shared, (numerator > 0 for numerator, _ in side), strict=True)) for side in (a, b)
        )
        clusters = clusters_of({key: run[key] for key in shared})
        return Versus(value - other, *paired_difference(run_hits, baseline_hits, clusters=clusters).interval)
    # Of one task, so both sides have the same clusters.
    a, b = (by_cluster(pairs, [run[key] for key in shared]) for pairs in (a, b))
    if not metric.as_ratio:
        return Versus(value - other, *(difference_interval(a, b) or ()))
    return Versus(value / other, *(quotient_interval(a, b) or ())) if other else None


def answered(run: Prompts, baseline: Prompts, *, timed: bool = False) -> list[int]:
    """Return the positions of the prompts that neither failed; ``timed``: of those whose times count on both sides."""
    return [
        key
        for key in sorted(run.keys() & baseline.keys())
        if "failed" not in (run[key].outcome, baseline[key].outcome)
        and (not timed or (run[key].timed and baseline[key].timed))
    ]


def versus_target(run: Sequence[GenerationView], target: Sequence[GenerationView]) -> dict[str, float | None]:
    """Return metrics of a setting's answers relative to those of the target alone, ready for JSON.

    Keys are ``mean_tokens_versus_target`` and so on, each with ``_low`` and ``_high``. Values are ratios, except a
    difference for ``runaway_rate``. ``speedup_versus_target`` is of the time per answer.
    """
    sides = [{generated.position: generated for generated in side} for side in (run, target)]
    figures: dict[str, float | None] = {}
    for key in OF_ANSWERS:
        name = METRICS[key].delta_key if METRICS[key].as_speedup else key
        parts = versus(METRICS[key], sides[0], sides[1]) or (None, None, None)
        figures |= {
            f"{name}_versus_target{end}": value for end, value in zip(("", "_low", "_high"), parts, strict=True)
        }
    return figures


def _value(pairs: Pairs) -> float | None:
    total = sum(denominator for _, denominator in pairs)
    return sum(numerator for numerator, _ in pairs) / total if total else None


LEAST_TOLD_APART = 0.03
"""relative difference in time by which the same measurement on a quiet machine differs from one time to the next"""

K = TypeVar("K")


class TimeRanking(NamedTuple, Generic[K]):
    """The setting to prefer by time, and those that are as fast."""

    first: K
    """of the fastest and those whose time may be the same, the one with the fewest target passes"""
    equal: tuple[K, ...]
    """the others that are not told apart from the fastest, the next to prefer first; empty if time alone decides"""
    within: float
    """largest relative difference in time between the fastest and these"""
    taken: float | None
    """share of the compared time that other programs took; ``None`` if unknown"""


def equal_text(names: Sequence[str], within: float) -> str:
    """Return that the named settings are equal in time: ``γ 12 to 16 are equal within 3 % in time per answer``.

    Settings that differ in their draft length alone are named by it.
    """
    share = f"are equal within {max(1, math.ceil(100 * within)):g} % in time per answer"
    lengths, others = set[int](), set[str]()
    for name in names:
        parts = name.split(" · ")
        length = [part for part in parts if part.startswith("γ ") and part[2:].isdecimal()]
        lengths |= {int(part[2:]) for part in length}
        others.add(" · ".join(part for part in parts if part not in length))
    if len(others) == 1 and len(lengths) == len(names) > 1:
        ends = min(lengths), max(lengths)
        return f"{others.pop()}: γ {ends[0]} {'and' if len(names) == 2 else 'to'} {ends[1]} {share}"
    return f"{listed(names)} {share}"


def rank_by_time(prompts: Mapping[K, Prompts]) -> TimeRanking[K]:
    """Return the ranking of some settings, each with its prompts. Raises ``ValueError`` for none."""
    share = taken((g.seconds, g.cpu_seconds) for side in prompts.values() for g in side.values() if g.timed)
    fastest = _fastest(prompts)
    equal = [key for key in prompts if key != fastest and not _is_slower(prompts[key], prompts[fastest], share or 0.0)]
    group = sorted(
        [fastest, *equal],
        key=lambda key: (_at_least(prompts[key], prompts[fastest]), _passes(prompts[key], prompts[fastest])),
    )
    within = max((abs(_steady_ratio(prompts[key], prompts[fastest]) - 1) for key in equal), default=0.0)
    return TimeRanking(group[0], tuple(group[1:]), within, share)


def _fastest(prompts: Mapping[K, Prompts]) -> K:
    """Return the setting with the least steady time, each held against the first on the prompts that both did."""
    keys = list(prompts)
    if not keys:
        raise ValueError("There is nothing to rank.")
    return min(keys, key=lambda key: _steady_ratio(prompts[key], prompts[keys[0]]))


def _is_slower(run: Prompts, fastest: Prompts, share: float) -> bool:
    """Return whether a setting is surely slower than the fastest."""
    return _at_least(run, fastest) > 1 and _steady_ratio(run, fastest) > 1 + max(LEAST_TOLD_APART, share)


def _at_least(run: Prompts, fastest: Prompts) -> float:
    """Return the lower bound of the median ratio of times, prompt by prompt; 1 where it may be 1 or less."""
    keys = _both(run, fastest)
    ends = median_interval([run[key].seconds / fastest[key].seconds for key in keys]) if keys else None
    return 1.0 if ends is None or _steady_ratio(run, fastest) <= 1 + LEAST_TOLD_APART else max(1.0, ends.low)


def _steady_ratio(run: Prompts, other: Prompts) -> float:
    """Return the ratio of times per answer as on a machine that never pauses; 1 without prompts in common."""
    keys = _both(run, other)
    return steady_seconds([run[key] for key in keys]) / steady_seconds([other[key] for key in keys]) if keys else 1.0


def _passes(run: Prompts, other: Prompts) -> float:
    """Return the ratio of target passes per answer on the prompts in common; 1 without any."""
    keys = answered(run, other)
    below = sum(other[key].rounds for key in keys)
    return sum(run[key].rounds for key in keys) / below if below else 1.0


def _both(run: Prompts, other: Prompts) -> list[int]:
    return [key for key in answered(run, other, timed=True) if run[key].seconds > 0 < other[key].seconds]


def steady_seconds(counts: Sequence[PromptCounts]) -> float:
    """Return Σ rounds times the median of seconds per round: a pause of the machine in one prompt hides nothing.

    An engine tells no rounds, so its tokens take their place.
    """
    rounds = [max(1, count.rounds or count.tokens) for count in counts]
    return sum(rounds) * median(count.seconds / n for count, n in zip(counts, rounds, strict=True))
