"""Metrics of a run, computed from its generations without measuring again.

Answers that only the run did not end by itself, and how many more of them its prompts may have missed.

An interval of a ratio knows the prompts it is computed from. Where one answer in a hundred runs on to the limit, most
samples of thirty hold none, and their interval of speed, length, passes or acceptance is of the others alone.

Costs of texts, at a price per hour of the machine that writes them.

The currency is whatever the price is in. All costs are of the seconds of decoding: a machine that waits costs as well,
and loading a pair is not counted.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fsd_core.decoding.trace import RoundRecord
from fsd_core.engines.kinds import with_engine_rates
from fsd_core.evaluation.versus import answered, by_cluster, cluster_numbers, clusters_of
from fsd_core.metrics import METRICS, Metric, PromptCounts, taken
from fsd_core.models.conversation import split_thoughts
from fsd_core.settings import get_settings
from fsd_core.statistics.intervals import (
    PROMPTS_THAT_SHOW_RARE,
    Estimate,
    Interval,
    clustered_wilson,
    keyed,
    most_share,
    ratio_interval,
)
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import GenerationView, RunView
    from fsd_core.tasks.base import Task


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
        """Such as ``up to 10 % of answers could be overlong unseen by 30 prompts``."""
        if not self.seen:
            return f"up to {self.share} of answers could be overlong unseen by {count(self.n, self.unit)}"
        return f"overlong beyond the baseline's: {self.seen} of {self.n:,}, and up to {self.share} are possible"


def runaways(run: Mapping[int, PromptCounts], baseline: Mapping[int, PromptCounts]) -> Runaways | None:
    """Return the run's runaways on the prompts that neither failed; ``None`` without such a prompt."""
    if not (shared := answered(run, baseline)):
        return None
    clusters = clusters_of({key: run[key] for key in shared})
    ran_away = {clusters[key] for key in shared if _endless(run[key]) and not _endless(baseline[key])}
    n = len(set(clusters.values()))
    together = "group" if any(run[key].group for key in shared) else "conversation"
    return Runaways(len(ran_away), n, "prompt" if n == len(shared) else together)


def _endless(generated: PromptCounts) -> bool:
    ratio = METRICS["runaway_rate"].ratio
    return ratio is not None and ratio(generated)[0] > 0


_MILLION = 1e6
_HOUR = 3600.0


def price_of(run: RunView) -> float | None:
    """Return the price per hour that a run was measured at, else the installation's; ``None`` if neither is known."""
    return run.price_per_hour or get_settings().price_per_hour


def cost_per_million_tokens(generations: Sequence[PromptCounts], price: float) -> Estimate | None:
    """Return the cost of a million emitted tokens, with its 95 % interval; ``None`` without tokens.

    ``price`` is per hour. Failed prompts are left out, as they are of the throughput.
    """
    done = [g for g in generations if g.timed and g.outcome != "failed"]
    return _per([(g.seconds * price / _HOUR * _MILLION, g.tokens) for g in done], done)


def cost_per_solved_task(generations: Sequence[PromptCounts], price: float) -> Estimate | None:
    """Return the cost of a prompt solved, with its 95 % interval; ``None`` where none is, or where one has no score.

    ``price`` is per hour. What prompts cost that were not solved, or failed, is part of it.
    """
    timed = [g for g in generations if g.timed]
    if any(g.outcome == "unscored" for g in timed):
        return None
    return _per([(g.seconds * price / _HOUR, float(g.outcome == "correct")) for g in timed], timed)


def cost_figures(generations: Sequence[PromptCounts], price: float | None) -> dict[str, float | None]:
    """Return the metrics of cost and their intervals; ``{}`` without a price."""
    if price is None:
        return {}
    return {
        "price_per_hour": price,
        **keyed("cost_per_million_tokens", cost_per_million_tokens(generations, price)),
        **keyed("cost_per_solved_task", cost_per_solved_task(generations, price)),
    }


def _per(pairs: Sequence[tuple[float, float]], generations: Sequence[PromptCounts]) -> Estimate | None:
    """Return the ratio of the sums of some pairs, one for each generation."""
    total = sum(denominator for _, denominator in pairs)
    if not total:
        return None
    low, high = ratio_interval(by_cluster(pairs, generations)) or (None, None)
    return Estimate(sum(numerator for numerator, _ in pairs) / total, low, high)


HISTOGRAM_BINS = 40


def summarise(generations: Sequence[PromptCounts], records: Iterable[list[RoundRecord]] | None) -> dict[str, Any]:
    """Return all metrics of a run, ready for JSON. Those that cannot be computed (no label, nothing drafted) are
    ``None``.

    Without ``records``, the metrics of rounds are left out.

    Accuracy counts truncated and failed prompts as not solved. Failed prompts have no tokens and do not enter the
    metrics of speed and acceptance, but their time counts in ``seconds`` and ``seconds_per_solved_task``.
    Intervals are of 95 %: Wilson's for accuracy, those of :mod:`fsd_core.statistics.intervals` for ratios. Prompts that
    depend on each other count as one cluster (:mod:`fsd_core.evaluation.versus`). ``generations`` are
    in order of position.
    ``unread``: how many of the wrong ones say nothing that could be read.
    ``negative_log_likelihood`` is in nats per token under the target, or under the draft if it decodes alone.
    ``mean_acceptance_length`` is tokens per round, which equals tokens per target forward if there is a target.
    """
    outcomes = Counter(g.outcome for g in generations)
    done = [g for g in generations if g.outcome != "failed"]
    tokens, seconds = sum(g.tokens for g in done), sum(g.seconds for g in generations)
    solved = outcomes["correct"]
    scored = len(generations) > 0 and not outcomes["unscored"]
    return {
        "n": len(generations),
        **{name: outcomes[name] for name in ("correct", "wrong", "truncated", "failed", "unscored")},
        "unread": sum(g.unread for g in generations),
        **_with_interval(
            "accuracy",
            solved / len(generations) if scored else None,
            lambda: clustered_wilson([g.outcome == "correct" for g in generations], cluster_numbers(generations)),
        ),
        "tokens": tokens,
        "rounds": sum(g.rounds for g in done),
        "drafted": sum(g.drafted for g in done),
        "accepted": sum(g.accepted for g in done),
        "fuzzy_tokens": (lenient := sum(g.fuzzy for g in done)),
        "lenient_tokens": lenient,
        **{name: value for metric in METRICS.values() for name, value in _ratio(metric, done).items()},
        "time_to_first_token": median(g.time_to_first_token for g in done) if done else None,
        **_between_tokens([g for g in done if g.timed]),
        "taken_share": taken((g.seconds, g.cpu_seconds) for g in done if g.timed),
        "peak_memory": max((g.device_memory for g in generations if g.device_memory is not None), default=None),
        "seconds": seconds,
        "seconds_per_solved_task": seconds / solved if scored and solved else None,
        "acceptance_deciles": _deciles([g.accepted / g.drafted for g in done if g.drafted]),
        **({} if records is None else _trace_metrics(records)),
    }


def published_figures(task: Task, generations: Iterable[GenerationView]) -> dict[str, Any]:
    """Return what the filter of published figures says of the answers without their thoughts: how many are right, and
    the positions of its verdicts that are not ours, by verdict. Empty for a task without one."""
    verdicts, differing = [], {}
    for g in generations if task.published_filter else ():
        answer = split_thoughts(g.text, thinking=g.only_thought, marks=task.thought_marks).answer
        match = re.search(task.published_filter, answer)
        verdicts.append(bool(match) and match[1].replace(",", "").removesuffix(".") == g.reference)
        if verdicts[-1] != (g.outcome == "correct"):
            differing.setdefault("correct" if verdicts[-1] else "wrong", []).append(g.position)
    return {"published_correct": sum(verdicts), "published_differs": differing} if verdicts else {}


def refreshed(run: RunView, prompts: Mapping[int, PromptCounts]) -> RunView:
    """Return the run with its metrics recomputed from its prompts, in case a metric or an interval has changed since it
    was measured. A run without metrics is returned unchanged."""
    if not run.metrics or not prompts:
        return run
    counts = list(prompts.values())
    figures = with_engine_rates(run.metrics | summarise(counts, None)) | cost_figures(counts, price_of(run))
    return replace(run, metrics=figures)


def so_far(run: RunView, prompts: Mapping[int, PromptCounts]) -> RunView:
    """Return the run with the metrics of the prompts that it has done, whether it has ended or not.

    Before the end there are none of rounds, and none that compare its texts with the target's. A run that failed before
    it had any keeps none.
    """
    if run.metrics or not prompts or run.status == "failed":
        return refreshed(run, prompts)
    return replace(run, metrics=with_engine_rates(summarise(list(prompts.values()), None)))


def _ratio(metric: Metric, done: Sequence[PromptCounts]) -> dict[str, float | None]:
    """Return a metric that is a ratio of sums over prompts, with its interval. Return ``{}`` for any other metric."""
    if metric.ratio is None:
        return {}
    counted = [generated for generated in done if generated.timed or not metric.timed]
    pairs = [metric.ratio(generated) for generated in counted]
    total = sum(denominator for _, denominator in pairs)
    return _with_interval(
        metric.key,
        sum(numerator for numerator, _ in pairs) / total if total else None,
        lambda: (
            clustered_wilson([numerator > 0 for numerator, _ in pairs], cluster_numbers(counted))
            if metric.counted
            else ratio_interval(by_cluster(pairs, counted), is_share=metric.is_share)
        ),
    )


def _between_tokens(done: Sequence[PromptCounts]) -> dict[str, float | None]:
    """Return the time per output token as servers tell it: the median over prompts, and two percentiles.

    Of a prompt it is (latency − time to first token) / (tokens − 1), in seconds. Where a round brings several tokens,
    those that came with the first one shorten it a little.
    """
    times = [(g.latency - g.time_to_first_token) / (g.tokens - 1) for g in done if g.latency and g.tokens > 1]
    values = np.quantile(times, (0.5, 0.9, 0.99)).tolist() if times else [None] * 3
    names = ("", "_p90", "_p99")
    return {f"time_per_output_token{name}": value for name, value in zip(names, values, strict=True)}


def _deciles(values: list[float]) -> list[float]:
    """Return the minimum, the deciles and the maximum, 11 values in all, or ``[]`` for no values."""
    return np.quantile(values, np.linspace(0, 1, 11)).tolist() if values else []


def _with_interval(name: str, value: float | None, interval: Callable[[], Interval | None]) -> dict[str, float | None]:
    low, high = (None if value is None else interval()) or (None, None)
    return {name: value, f"{name}_low": low, f"{name}_high": high}


def _trace_metrics(records: Iterable[list[RoundRecord]]) -> dict[str, Any]:
    """Return metrics by draft position and divergence, in one pass that does not hold a long run in memory."""
    rounds, draft_seconds = 0, 0.0
    accepted: Counter[int] = Counter()  # by position in the draft
    judged: Counter[int] = Counter()
    divergences: list[float] = []
    for record in (record for text_records in records for record in text_records):
        rounds += 1
        draft_seconds += record.draft_seconds
        accepted.update(range(record.accepted))
        # A rule may also judge the token after the draft. It replaces the bonus token and is not drafted.
        # Of beams, a layer is judged for each width.
        judged.update(range(min(len(record.widths or record.target_probability), len(record.drafted))))
        divergences.extend(d for d in record.divergence if d is not None)
    return {
        "acceptance_at_position": [accepted[i] / rounds for i in range(len(judged))],
        "conditional_acceptance_at_position": [accepted[i] / judged[i] for i in range(len(judged))],
        "draft_seconds": draft_seconds,
        "divergence_histogram": _histogram(divergences),
    }


def _histogram(divergences: list[float]) -> dict[str, list] | None:
    """Return equal bins from 0 to the largest finite value. Infinite divergences count in the last bin."""
    if not divergences:
        return None
    highest = max((d for d in divergences if math.isfinite(d)), default=0.0) or 1.0
    counts, edges = np.histogram(np.minimum(divergences, highest), bins=HISTOGRAM_BINS, range=(0, highest))
    return {"edges": edges.tolist(), "counts": counts.tolist()}
