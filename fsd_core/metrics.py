"""The table of a run's metrics, read by Compare, lists, sorting, the command line, MLflow and exports."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fsd_core.formatting import Written, written
from fsd_core.plugins import Registry


class Generated(Protocol):
    """Fields of one prompt's generation that metrics read, whether it is fresh or from the database."""

    @property
    def turn(self) -> int: ...
    @property
    def group(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def outcome(self) -> str: ...
    @property
    def unread(self) -> bool: ...
    @property
    def stop_reason(self) -> str: ...
    @property
    def tokens(self) -> int: ...
    @property
    def thought_tokens(self) -> int: ...
    @property
    def rounds(self) -> int: ...
    @property
    def drafted(self) -> int: ...
    @property
    def accepted(self) -> int: ...
    @property
    def fuzzy(self) -> int: ...
    @property
    def negative_log_likelihood(self) -> float: ...
    @property
    def seconds(self) -> float: ...
    @property
    def time_to_first_token(self) -> float: ...
    @property
    def cpu_seconds(self) -> float | None: ...
    @property
    def latency(self) -> float | None: ...
    @property
    def energy(self) -> float | None: ...
    @property
    def device_memory(self) -> int | None: ...
    @property
    def timed(self) -> bool: ...


Ratio = Callable[[Generated], tuple[float, float]]
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
    """whether it is a speed or a time, which depends on the machine; :mod:`fsd_core.conditions` then tells when it
    is not one figure"""

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
        "runaway_rate", "Runaways", "Answers that did not end by themselves: stopped by the limit or a full context",
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


def listed() -> tuple[Metric, ...]:
    """Return the metrics that have a column in lists of runs."""
    return tuple(metric for metric in METRICS.values() if metric.listed)


def foreign_ratios() -> bool:
    """Whether another package adds a ratio, which may read the texts. Built-in ratios read only counts."""
    return any(metric.ratio and metric not in _BUILT_IN for metric in METRICS.values())
