"""The table of a run's metrics, and the conditions under which their times are one figure.

The conditions under which a run's prompts were measured: they decide its speed besides the setting.

Times measured under different conditions are not one figure. This module alone decides when that is so and how to say
it. Pages, exports, the command line, the library and MLflow follow it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from fsd_core.plugins import Registry
from fsd_core.texts import Written, written

Conditions = Mapping[str, Any]
"""values by key of :data:`CONDITIONS`; unknown ones are left out, and unrecorded conditions are empty"""

MIXED_MARK = "†"
"""follows a speed or a time that is not one figure"""
SHARED_DEVICE = "Computed in the app's own process or on ZeroGPU, which are shared: no speed to compare."
"""explains the mark for times from a shared device"""
UNRECORDED = "unrecorded conditions"
"""replaces a condition's name if the conditions of some prompts are unknown"""

MOST_TAKEN = 0.2
"""largest share of the decoding time that other programs may take before speeds are doubted"""

EXECUTOR = "executor"
"""key of a condition that exists only if the device is shared, so that no speed can be compared"""
SHARED_EXECUTOR = "shared executor"
"""its name"""
WORKER = "worker"
"""key of a condition that exists only where several workers share runs: the name of one, and so of its machine"""


class Condition(NamedTuple):
    """One thing that decides speed."""

    key: str
    """its key in stored data"""
    name: str
    phrase: str
    """how something was measured, with ``{}`` for the value and ``{s}`` for a plural"""


CONDITIONS = (
    Condition(EXECUTOR, SHARED_EXECUTOR, "by {}"),
    Condition(WORKER, "worker", "by the worker {}"),
    Condition("engine", "engine", "on {}"),
    Condition("device", "device", "on {}"),
    Condition("cpu", "processor", "on {}"),
    Condition("cpu_count", "number of processors", "on {} processor{s}"),
    Condition("gpu", "GPU", "on {}"),
    Condition("dtype", "dtype", "in {}"),
    Condition("threads", "number of threads", "with {} thread{s}"),
    Condition("python", "version of Python", "with Python {}"),
    Condition("torch", "version of torch", "with torch {}"),
    Condition("transformers", "version of transformers", "with transformers {}"),
    Condition("fsd-lab", "version of FSD Lab", "with FSD Lab {}"),
    Condition("git_revision", "commit", "at commit {}"),
)


class Difference(NamedTuple):
    """A condition that varied, with its values as text."""

    name: str
    values: tuple[str, ...]


def conditions_of(provenance: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the conditions in what :func:`fsd_core.provenance.collect` has gathered."""
    values = dict(provenance or {})
    values |= values.get("versions") or {}
    return {c.key: values[c.key] for c in CONDITIONS if values.get(c.key) is not None}


def mixed(sessions: Sequence[Conditions]) -> tuple[str, ...]:
    """Return the names of the differences between a run's measurement sessions; empty if its speed is one figure.

    A session without recorded conditions counts as different from all others. A shared executor is always named,
    because no speed measured with it can be compared.
    """
    shared = (SHARED_EXECUTOR,) if any(EXECUTOR in conditions for conditions in sessions) else ()
    unknown = (UNRECORDED,) if len(sessions) > 1 and not all(sessions) else ()
    differing = (difference.name for difference in differences([[conditions] for conditions in sessions]))
    return tuple(dict.fromkeys((*shared, *differing, *unknown)))


def differences(runs: Sequence[Sequence[Conditions]]) -> list[Difference]:
    """Return the differences between runs, each given by its measurement sessions. Unknown values never differ."""
    result = []
    for condition in CONDITIONS:
        values = [{_text(condition, item) for item in sessions if condition.key in item} for sessions in runs]
        recorded = [frozenset(item) for item in values if item]
        if len(set(recorded)) > 1:
            result.append(Difference(condition.name, tuple(sorted(frozenset().union(*recorded)))))
    return result


def taken(times: Iterable[tuple[float, float | None]]) -> float | None:
    """Return the share of the decoding time in which other programs had the processor.

    Each text comes with its wall seconds and the processor seconds of this process meanwhile, ``None`` where another
    device computes or nothing was recorded. ``None`` if no text has them. Several threads hide some of it, so it is at
    least this share.
    """
    known = [(seconds, cpu) for seconds, cpu in times if cpu is not None and seconds > 0]
    total = sum(seconds for seconds, _ in known)
    return sum(max(0.0, seconds - cpu) for seconds, cpu in known) / total if total else None


def taken_sentence(share: float | None) -> str:
    """Return how much of the time was taken, with what to do if it is much; empty if that is unknown."""
    if share is None:
        return ""
    sentence = f"Other programs took {100 * share:.0f} % of the decoding time"
    return f"{sentence}." if share <= MOST_TAKEN else f"{sentence}: time it again when the machine is quiet."


def mixed_sentence(names: Sequence[str]) -> str:
    """Return the meaning of the mark, from the names of :func:`mixed`; empty for none."""
    varying, sentences = [name for name in names if name not in (UNRECORDED, SHARED_EXECUTOR)], []
    if SHARED_EXECUTOR in names:
        sentences.append(SHARED_DEVICE)
    if varying:
        sentences.append(f"Measured under conditions that differ in {listed(varying)}: not one figure.")
    if UNRECORDED in names:
        sentences.append("The conditions of some prompts were not recorded, so this may not be one figure.")
    return " ".join(sentences)


def sessions_sentence(sessions: Sequence[tuple[Conditions, Sequence[int]]]) -> str:
    """Return which prompts were measured how, for a run whose speed is not one figure; empty for any other.

    Each measurement session comes with the positions of its prompts, from 0. The text numbers prompts from 1.

    >>> sessions_sentence([({"threads": 2}, range(12)), ({"threads": 1}, range(12, 24))])
    'Prompts 1 to 12 were measured with 2 threads, the other 12 with 1 thread.'
    """
    groups: dict[str, list[int]] = {}
    with_prompts = [(conditions, positions) for conditions, positions in sessions if positions]
    names = mixed([conditions for conditions, _ in with_prompts])
    for conditions, positions in with_prompts:
        groups.setdefault(phrases(conditions, names), []).extend(positions)
    if len(groups) < 2:
        return ""
    ordered = sorted((sorted(positions), phrase) for phrase, positions in groups.items())
    (first, phrase), *between, (remaining, last_phrase) = ordered
    parts = [
        f"{which(first)} {'was' if len(first) == 1 else 'were'} measured {phrase}",
        *(f"{which(positions)} {phrase}" for positions, phrase in between),
        f"the other {len(remaining)} {last_phrase}" if len(remaining) > 1 else f"the other {last_phrase}",
    ]
    sentence = ", ".join(parts)
    return f"{sentence[0].upper()}{sentence[1:]}."


def phrases(conditions: Conditions, names: Iterable[str] | None = None) -> str:
    """Return conditions as text, such as ``with 2 threads and at commit 1f2e3d``; only those in ``names`` if given."""
    if not conditions:
        return "under conditions that were not recorded"
    wanted = None if names is None else set(names)
    texts = [
        c.phrase.format(_text(c, conditions), s="" if conditions[c.key] == 1 else "s")
        for c in CONDITIONS
        if c.key in conditions and (wanted is None or c.name in wanted)
    ]
    return listed(texts) or "under recorded ones"


def which(positions: Sequence[int]) -> str:
    """Return prompts by their numbers if they are consecutive, else their count. Positions are sorted."""
    if len(positions) == 1:
        return f"prompt {positions[0] + 1}"
    if positions[-1] - positions[0] == len(positions) - 1:
        return f"prompts {positions[0] + 1} to {positions[-1] + 1}"
    return f"{len(positions)} prompts"


def listed(items: Sequence[str]) -> str:
    """Join items: ``one``, ``one and two``, ``one, two and three``."""
    return " and ".join(filter(None, (", ".join(items[:-1]), *items[-1:])))


def short_commit(revision: str) -> str:
    """Return the first 12 digits of a commit, and whether files differed from it."""
    commit, changed, _ = revision.partition("+")
    return commit[:12] + (" with changes" if changed else "")


def _text(condition: Condition, conditions: Conditions) -> str:
    """Return a condition's value as displayed."""
    text = str(conditions[condition.key])
    return short_commit(text) if condition.key == "git_revision" else text


Outcome = Literal["correct", "wrong", "truncated", "failed", "unscored"]


@dataclass(frozen=True)
class PromptCounts:
    """Counts of one prompt of one run, from which all metrics are computed."""

    outcome: Outcome
    stop_reason: str
    """eos, length, context or error"""
    tokens: int
    rounds: int
    drafted: int
    accepted: int
    fuzzy: int
    """lenient tokens: drafted, and accepted although the strict test would have rejected them"""
    negative_log_likelihood: float
    """of the emitted tokens under the target, in nats"""
    seconds: float
    time_to_first_token: float
    """seconds"""
    thought_tokens: int = 0
    """those of them that belong to thoughts, with their marks; 0 for texts of before revision 0011"""
    prompt_hash: str | None = None
    """of the token ids that were fed, as rendered; ``None`` for prompts of before revision 0012, and for those that
    could not be rendered"""
    turn: int = 0
    """how many turns of its conversation stand before it, at the positions right before its own"""
    cpu_seconds: float | None = None
    """processor time of the process meanwhile; ``None`` if another device computed, and before revision 0018"""
    latency: float | None = None
    """wall seconds from its request to its end, whatever else was decoded meanwhile; ``seconds`` are its share of them.
    ``None`` before revision 0025"""
    group: str = ""
    """the group of prompts that it belongs to, which depend on each other; empty for a prompt that stands alone, and
    before revision 0033"""
    energy: float | None = None
    """joules that the GPU took for it; ``None`` where none says, and before revision 0031"""
    device_memory: int | None = None
    """bytes of the GPU's memory in use at its end; ``None`` as above"""
    unread: bool = False
    """whether it was not cut off, and no answer could be read in it"""
    text: str = ""
    """read only if a metric of another package may need it"""
    timed: bool = True
    """whether its times count: false where its setting was timed again on other prompts"""


Generated = PromptCounts
"""its former name, which other packages import"""
Ratio = Callable[[PromptCounts], tuple[float, float]]
"""numerator and denominator of one prompt"""


@dataclass(frozen=True)
class Metric:
    """One figure of a run."""

    key: str
    """its name in a run's metrics, in MLflow and in exports"""
    title: str
    explanation: str
    unit: str = ""
    scale: float = 1.0
    """from the stored value to the unit"""
    better: int = 0
    """+1 if more is better, -1 if less is, 0 if neither is good in itself"""
    as_ratio: bool = False
    """whether runs are compared by their ratio, not by their difference"""
    as_speedup: bool = False
    """whether that ratio is upside down: how many times as fast a run is, the baseline's value over its own"""
    digits: int = 2
    """decimals without an interval"""
    ratio: Ratio | None = None
    """returns numerator and denominator of a prompt. The metric is the ratio of their sums over all prompts that did
    not fail, with an interval. ``None``: :mod:`fsd_core.evaluation.aggregate` computes it otherwise"""
    interval: bool = False
    """whether it has an interval although it is no such ratio"""
    exact_at: float | None = None
    """a value that needs no interval"""
    counted: bool = False
    """whether its numerators are 0 or 1 and its denominators 1: a share of prompts. Runs are then compared by the
    difference in points, because a ratio of rare events is too uncertain."""
    listed: str = ""
    """title of its column in lists of runs; empty for no column"""
    compared: bool = True
    """whether Compare has a column for it"""
    timed: bool = False
    """whether it is a speed or a time, which depends on the machine; its conditions tell when it is not one figure"""

    @property
    def is_share(self) -> bool:
        """Whether it is displayed in per cent."""
        return self.scale == 100.0

    def is_rough(self, value: float, low: float | None) -> bool:
        """Whether a value lacks the interval that the metric has from enough prompts on."""
        return low is None and (self.interval or self.ratio is not None) and value != self.exact_at

    def written(
        self, value: float, low: float | None = None, high: float | None = None, digits: int | None = None
    ) -> Written:
        """Return a value in the metric's unit as text, marked if it is rough."""
        return written(value, low, high, points=self.is_share, digits=digits, rough=self.is_rough(value, low))

    @property
    def delta_key(self) -> str:
        """Name of the comparison with a baseline in exports, such as ``accuracy_difference``, or ``speedup``."""
        return "speedup" if self.as_speedup else f"{self.key}_{'ratio' if self.as_ratio else 'difference'}"

    @property
    def more_is_better(self) -> int:
        """``better`` of the comparison with a baseline: of a time less is better, of being so many times as fast
        more."""
        return -self.better if self.as_speedup else self.better

    @property
    def slug(self) -> str:
        """Name in addresses, such as ``acceptance-rate``."""
        return self.title.lower().replace(" ", "-")

    @property
    def order(self) -> str:
        """Name of the order that sorts runs by it, such as ``Accuracy, highest first``."""
        return f"{self.title}, {'lowest' if self.better < 0 else 'highest'} first"


FIDELITY = ("same_text", "excess_nll")
"""Compare shows these for texts without a score. They are relative to the target alone, whatever the baseline."""

_BUILT_IN = (
    Metric(
        "accuracy", "Accuracy", "Share of prompts solved", "%", 100.0, 1, digits=1, listed="Accuracy",
        interval=True,
    ),
    Metric(
        "same_text", "Same text", "Texts identical to the target's", "% of the greedy target's", 100.0, digits=1,
        interval=True,
    ),
    Metric(
        "seconds_per_answer", "Time per answer",
        "Seconds of decoding per answer: the headline. Times as fast is the baseline's over the run's.", "s", better=-1,
        as_ratio=True, as_speedup=True, digits=3, ratio=lambda g: (g.seconds, 1), listed="s/answer", timed=True,
    ),
    Metric(
        "tokens_per_second", "Throughput", "Emitted tokens per second of decoding", "tok/s", better=1,
        as_ratio=True, digits=1, ratio=lambda g: (g.tokens, g.seconds), listed="Tokens/s", timed=True,
    ),
    Metric(
        "acceptance_rate", "Acceptance rate", "Drafted tokens accepted, of all drafted", "%", 100.0, digits=1,
        ratio=lambda g: (g.accepted, g.drafted), listed="Acceptance rate",
    ),
    Metric(
        "mean_acceptance_length", "Mean acceptance length",
        "τ, pooled over rounds: emitted tokens per target forward, the recovered or bonus token included",
        "tokens per target forward, pooled over rounds",
        ratio=lambda g: (g.tokens, g.rounds), listed="Acceptance length", exact_at=1.0,  # without drafts by definition
    ),
    Metric(
        "mean_acceptance_length_by_request", "Acceptance length by request",
        "Mean over the prompts of each one's own tokens per target forward: the other definition in use",
        "tokens per target forward, mean over requests",
        ratio=lambda g: (g.tokens / g.rounds, 1) if g.rounds else (0.0, 0), exact_at=1.0,
    ),
    Metric(
        "mean_tokens", "Answer length",
        "Tokens per answer, its thoughts included: leniency may lengthen answers, and eat up its speed",
        "tokens", as_ratio=True, digits=1, ratio=lambda g: (g.tokens, 1), listed="Answer length",
    ),
    Metric(
        "mean_thought_tokens", "Thought length", "Of the tokens of an answer, those of its thoughts", "tokens",
        as_ratio=True, digits=1, ratio=lambda g: (g.thought_tokens, 1), compared=False,
    ),
    Metric(
        "target_passes", "Target passes", "Forwards of the target per answer: a speed that no hardware decides",
        "per answer", better=-1, as_ratio=True, digits=1, ratio=lambda g: (g.rounds, bool(g.rounds)),
    ),
    Metric(
        "runaway_rate", "Overlong", "Answers that did not end by themselves: stopped by the limit or a full context",
        "%", 100.0, -1, digits=1, ratio=lambda g: (float(g.stop_reason in ("length", "context")), 1), counted=True,
    ),
    Metric(
        "seconds_per_solved_task", "Time per solved", "Seconds of decoding per prompt solved", "s", better=-1,
        as_ratio=True, digits=3, listed="s/solved", timed=True,
    ),
    Metric(
        "negative_log_likelihood", "NLL per token",
        "Of the emitted tokens under the target. The draft alone is measured under the draft and cannot be compared.",
        "nats", digits=3, ratio=lambda g: (g.negative_log_likelihood, g.tokens if g.rounds else 0),
    ),
    Metric(
        "excess_nll", "Excess NLL",
        "Beyond the NLL of the target's own texts on the same prompts: near 0 for a lossless method",
        "nats per token", digits=3, interval=True,
    ),
    Metric(
        "time_to_first_token", "Time to first token", "Median over prompts", "s", better=-1, compared=False, timed=True,
    ),
    Metric(
        "time_per_output_token", "Time per output token",
        "Median over prompts of the time between two tokens, after the first", "s", better=-1, digits=4, compared=False,
        timed=True,
    ),
    Metric(
        "taken_share", "Taken by other programs",
        "Share of the decoding time in which other programs had the processor", "%", 100.0, -1, digits=0,
        compared=False,
    ),
    Metric(
        "cost_per_million_tokens", "Cost per million tokens",
        "At the price per hour of the machine, of the seconds of decoding", "in the price's currency", better=-1,
        as_ratio=True, digits=3, compared=False, timed=True,
    ),
    Metric(
        "cost_per_solved_task", "Cost per solved",
        "At the price per hour of the machine, of the seconds of decoding of all prompts, for each one solved",
        "in the price's currency", better=-1, as_ratio=True, digits=6, compared=False, timed=True,
    ),
    Metric(
        "joules_per_token", "Energy per token", "Joules that the GPU took, as it reports them, per emitted token", "J",
        better=-1, as_ratio=True, ratio=lambda g: (g.energy or 0.0, 0 if g.energy is None else g.tokens),
        compared=False, timed=True,
    ),
    Metric(
        "peak_memory", "Peak memory",
        "Most of the GPU's memory in use at the end of a prompt, by all programs: torch gives none back meanwhile",
        "GB", 1e-9, -1, compared=False,
    ),
    Metric("seconds", "Time", "Seconds of decoding, of all prompts", "s", better=-1, compared=False, timed=True),
    Metric("tokens", "Tokens", "Tokens of all texts", "tokens", compared=False, digits=0, listed="Tokens"),
)  # fmt: skip
METRICS: Registry[Metric] = Registry(
    lambda: _BUILT_IN, lambda metric: metric.key, lambda thing: thing if isinstance(thing, Metric) else None
)
"""by key, in display order"""


def compared() -> tuple[Metric, ...]:
    """Return the metrics that have a column in Compare."""
    return tuple(metric for metric in METRICS.values() if metric.compared)


def listed_metrics() -> tuple[Metric, ...]:
    """Return the metrics that have a column in lists of runs."""
    return tuple(metric for metric in METRICS.values() if metric.listed)


def foreign_ratios() -> bool:
    """Whether another package adds a ratio, which may read the texts. Built-in ratios read only counts."""
    return any(metric.ratio and metric not in _BUILT_IN for metric in METRICS.values())
