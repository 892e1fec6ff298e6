"""How often intervals of 95 % hold the truth, simulated as runs come about: prompts that differ, few of them.

``make coverage-table`` writes the table into the documents, beside the percentile bootstrap that these intervals
replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from fsd_core.statistics.intervals import Ends, difference_ends, quotient_ends, ratio_ends
from tests.tools.sizes import size
from tools.written_tables import write_table

PROMPTS = (3, 4, 6, 10, 20, 50, 200)
TRIALS = size(500, 2000)
MANY = size(200_000, 400_000)  # prompts that stand for the truth

Draw = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
"""numerators and denominators of so many prompts"""


def _tokens(rng: np.random.Generator, n: int, spread: float = 0.5) -> np.ndarray:
    """Lengths of answers: some several times as long as others, none beyond the limit."""
    return np.clip(rng.lognormal(4.3, spread, n).round(), 5, 256)


def throughput(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Time has a part that no length changes, and noise that a prompt's tokens share."""
    tokens = _tokens(rng, n, 0.7)
    return tokens, 0.02 + tokens / 50 * rng.lognormal(0, 0.15, n)


def slowing(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Longer texts are slower by the token."""
    tokens = _tokens(rng, n, 0.6)
    return tokens, (0.02 + tokens / 50 * (1 + tokens / 1000)) * rng.lognormal(0, 0.15, n)


def acceptance(rng: np.random.Generator, n: int, a: float = 6, b: float = 3) -> tuple[np.ndarray, np.ndarray]:
    """Prompts have acceptance rates of their own."""
    drafted = _tokens(rng, n, 0.7)
    return rng.binomial(drafted.astype(int), rng.beta(a, b, n)).astype(float), drafted


def near_full(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Nearly everything is accepted."""
    return acceptance(rng, n, 30, 1.5)


def acceptance_length(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = _tokens(rng, n, 0.7)
    return tokens, np.ceil(tokens / rng.normal(3, 0.5, n).clip(1, 6))


def answer_length(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    return _tokens(rng, n), np.ones(n)


def likelihood(rng: np.random.Generator, n: int) -> tuple[np.ndarray, np.ndarray]:
    tokens = _tokens(rng, n, 0.7)
    return tokens * rng.gamma(4, 0.06, n), tokens


SINGLE: dict[Draw, bool] = {
    throughput: False, slowing: False, acceptance: True, near_full: True, acceptance_length: False,
    answer_length: False, likelihood: False,
}  # fmt: skip
"""and whether it is a share of something"""


def paired_speed(rng: np.random.Generator, n: int) -> np.ndarray:
    """Both runs meet the same prompts and the same moods of the machine. [n, 4]"""
    base, mood = _tokens(rng, n, 0.6), rng.lognormal(0, 0.15, n)
    ours = np.clip((base * rng.lognormal(0.1, 0.25, n)).round(), 5, 256)
    seconds = [(0.02 + ours / 80) * mood * rng.lognormal(0, 0.15, n), (0.02 + base / 40) * mood]
    return np.column_stack([ours, seconds[0], base, seconds[1]])


def paired_length(share: float) -> Callable[[np.random.Generator, int], np.ndarray]:
    """Leniency changes the answers to some prompts alone."""

    def draw(rng: np.random.Generator, n: int) -> np.ndarray:
        base = _tokens(rng, n)
        other = np.clip((base * rng.lognormal(0.1, 0.35, n)).round(), 5, 256)
        ours = np.where(rng.random(n) < share, other, base)
        return np.column_stack([ours, np.ones(n), base, np.ones(n)])

    draw.__name__ = f"paired_length_{share:g}"
    return draw


def paired_acceptance(rng: np.random.Generator, n: int) -> np.ndarray:
    drafted, rate = _tokens(rng, n, 0.7), rng.beta(6, 3, n)
    other = np.clip((drafted * rng.lognormal(0, 0.2, n)).round(), 5, None)
    counts = [rng.binomial(drawn.astype(int), p) for drawn, p in ((other, np.minimum(1, 1.1 * rate)), (drafted, rate))]
    return np.column_stack([counts[0], other, counts[1], drafted]).astype(float)


PAIRED = (paired_speed, paired_length(1.0), paired_length(0.3), paired_length(0.1), paired_acceptance)


def coverage(truth: float, ends: Ends) -> float:
    """Of those that are shown at all; NaN where that is hardly ever."""
    low, high = ends
    shown = ~np.isnan(low)
    return float(((low <= truth) & (truth <= high))[shown].mean()) if shown.mean() > 0.05 else np.nan


def simulate(draw: Draw, n: int, ends: Callable[[np.ndarray], Ends]) -> float:
    rng = np.random.default_rng(n)
    top, bottom = draw(rng, MANY)
    tables = np.stack(draw(rng, TRIALS * n), -1).reshape(TRIALS, n, 2)
    return coverage(top.sum() / bottom.sum(), ends(tables))


def simulate_pair(draw: Callable[[np.random.Generator, int], np.ndarray], n: int) -> tuple[float, float]:
    """Of the ratio, and of the difference."""
    rng = np.random.default_rng(n)
    a, b, c, d = draw(rng, MANY).sum(0)
    tables = draw(rng, TRIALS * n).reshape(TRIALS, n, 4)
    return coverage((a / b) / (c / d), quotient_ends(tables)), coverage(a / b - c / d, difference_ends(tables))


def bootstrapped(tables: np.ndarray) -> Ends:
    """What stood here before: percentiles of resamples of the prompts; of a tenth of the trials."""
    some, n = tables[:: len(tables) // 200], tables.shape[1]
    counts = np.random.default_rng(0).multinomial(n, np.full(n, 1 / n), size=1000)  # [1000, n]
    top, bottom = np.moveaxis(counts @ some, -1, 0)
    low, high = np.quantile(top / bottom, [0.025, 0.975], axis=-1)
    return low, high


def coverage_table() -> str:
    """The share of intervals that hold the truth: before, and now."""
    lines = ["| | " + " | ".join(f"n = {n}" for n in PROMPTS) + " |", "|---" * (len(PROMPTS) + 1) + "|"]
    for draw, is_share in SINGLE.items():
        both = (
            [simulate(draw, n, how) for how in (bootstrapped, partial(ratio_ends, is_share=is_share))] for n in PROMPTS
        )
        cells = (f"{before:.0%} → {now:.0%}" for before, now in both)
        lines.append(f"| {draw.__name__.replace('_', ' ')} | {' | '.join(cells)} |")
    for paired in PAIRED:
        cells = ("–" if np.isnan(found) else f"{found:.0%}" for found in (simulate_pair(paired, n)[0] for n in PROMPTS))
        lines.append(
            f"| {_TITLES.get(paired.__name__) or paired.__name__.replace('_', ' ')}, ratio | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


_TITLES = {
    "paired_length_1": "paired length, every answer changed", "paired_length_0.3": "paired length, 30 % changed",
    "paired_length_0.1": "paired length, 10 % changed",
}  # fmt: skip


if __name__ == "__main__":
    write_table("make coverage-table", coverage_table())
