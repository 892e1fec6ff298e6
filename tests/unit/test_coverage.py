"""How often intervals of 95 % hold the truth, simulated as runs come about: prompts that differ, few of them.

``make coverage-table`` writes the table into the documents, beside the percentile bootstrap that these intervals
replaced.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from fsd_core.statistics.intervals import Ends, difference_ends, median_interval, quotient_ends, ratio_ends, wilson
from fsd_core.statistics.paired import paired_difference
from tests.tools.sizes import size
from tests.tools.written_tables import write_table, written_table

AT_LEAST = 0.92
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


def _coverage(truth: float, ends: Ends) -> float:
    """Of those that are shown at all; NaN where that is hardly ever."""
    low, high = ends
    shown = ~np.isnan(low)
    return float(((low <= truth) & (truth <= high))[shown].mean()) if shown.mean() > 0.05 else np.nan


def _single(draw: Draw, n: int, ends: Callable[[np.ndarray], Ends]) -> float:
    rng = np.random.default_rng(n)
    top, bottom = draw(rng, MANY)
    tables = np.stack(draw(rng, TRIALS * n), -1).reshape(TRIALS, n, 2)
    return _coverage(top.sum() / bottom.sum(), ends(tables))


def _paired(draw: Callable[[np.random.Generator, int], np.ndarray], n: int) -> tuple[float, float]:
    """Of the ratio, and of the difference."""
    rng = np.random.default_rng(n)
    a, b, c, d = draw(rng, MANY).sum(0)
    tables = draw(rng, TRIALS * n).reshape(TRIALS, n, 4)
    return _coverage((a / b) / (c / d), quotient_ends(tables)), _coverage(a / b - c / d, difference_ends(tables))


@pytest.mark.parametrize("draw", SINGLE, ids=lambda draw: draw.__name__)
def test_the_interval_of_a_ratio_covers(draw: Draw) -> None:
    found = {n: _single(draw, n, lambda tables: ratio_ends(tables, is_share=SINGLE[draw])) for n in PROMPTS}
    assert min(found.values()) >= AT_LEAST, found


@pytest.mark.parametrize("draw", PAIRED, ids=lambda draw: draw.__name__)
def test_the_interval_of_a_paired_ratio_or_difference_covers(draw) -> None:
    found = {n: _paired(draw, n) for n in PROMPTS}
    assert np.nanmin(list(found.values())) >= AT_LEAST, found
    assert not np.isnan(found[200]).any()


@pytest.mark.parametrize("skewed", [False, True])
def test_the_interval_of_a_median_covers(skewed: bool) -> None:
    """Ratios of speeds: their logarithms normal, or with a long tail of prompts that gain."""
    found = {}
    for n in PROMPTS:
        rng, trials = np.random.default_rng(n), TRIALS // 10
        logs = rng.exponential(0.2, (trials, n)) if skewed else rng.normal(0, 0.2, (trials, n))
        truth = np.exp(0.2 * np.log(2)) if skewed else 1.0
        low, high = np.array([median_interval(row) for row in np.exp(logs)]).T
        found[n] = _coverage(truth, (low, high))
    assert min(found.values()) >= AT_LEAST, found


@pytest.mark.parametrize("n", PROMPTS)
def test_the_interval_of_an_accuracy_covers(n: int) -> None:
    """Computed, not drawn: the sum over all that can be counted, at every share between 1 and 99 %."""
    low, high = np.array([wilson(solved, n) for solved in range(n + 1)]).T
    shares = np.linspace(0.01, 0.99, 99)
    held = (low[:, None] <= shares) & (shares <= high[:, None])
    assert (binom.pmf(np.arange(n + 1)[:, None], n, shares) * held).sum(0).min() >= 0.945


def _interval(only_a: int, only_b: int, n: int) -> tuple[float, float]:
    a = dict(enumerate([True] * only_a + [False] * (n - only_a)))
    b = dict(enumerate([False] * only_a + [True] * only_b + [False] * (n - only_a - only_b)))
    return paired_difference(a, b).interval


@pytest.mark.parametrize("n", [n for n in PROMPTS if n <= 20])
def test_the_interval_of_a_paired_difference_of_accuracies_covers(n: int) -> None:
    """Computed likewise, however rarely the two disagree."""
    counts = np.array([(b, c) for b in range(n + 1) for c in range(n + 1 - b)])
    low, high = np.array([_interval(int(b), int(c), n) for b, c in counts]).T
    every = np.column_stack([counts, n - counts.sum(1)])
    for gained in (0.0, 0.01, 0.05, 0.2):
        for lost in (0.01, 0.02, 0.05, 0.1, 0.3, 0.5):
            chance = multinomial.pmf(every, n, [gained, lost, 1 - gained - lost])
            held = (low - 1e-9 <= gained - lost) & (gained - lost <= high + 1e-9)
            assert chance[held].sum() >= AT_LEAST, (gained, lost)


@pytest.mark.parametrize("n", [n for n in PROMPTS if n > 20])
def test_so_it_does_where_prompts_are_many(n: int) -> None:
    rng = np.random.default_rng(n)
    for gained, lost in ((0.0, 0.02), (0.01, 0.05), (0.05, 0.1), (0.0, 0.3)):
        drawn = rng.multinomial(n, [gained, lost, 1 - gained - lost], TRIALS)
        every = {(int(b), int(c)): _interval(int(b), int(c), n) for b, c in {(b, c) for b, c, _ in drawn.tolist()}}
        low, high = np.array([every[b, c] for b, c, _ in drawn.tolist()]).T
        assert _coverage(gained - lost, (low, high)) >= AT_LEAST, (gained, lost)


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
            [_single(draw, n, how) for how in (bootstrapped, partial(ratio_ends, is_share=is_share))] for n in PROMPTS
        )
        cells = (f"{before:.0%} → {now:.0%}" for before, now in both)
        lines.append(f"| {draw.__name__.replace('_', ' ')} | {' | '.join(cells)} |")
    for paired in PAIRED:
        cells = ("–" if np.isnan(found) else f"{found:.0%}" for found in (_paired(paired, n)[0] for n in PROMPTS))
        lines.append(
            f"| {_TITLES.get(paired.__name__) or paired.__name__.replace('_', ' ')}, ratio | {' | '.join(cells)} |"
        )
    return "\n".join(lines)


_TITLES = {
    "paired_length_1": "paired length, every answer changed", "paired_length_0.3": "paired length, 30 % changed",
    "paired_length_0.1": "paired length, 10 % changed",
}  # fmt: skip


@pytest.mark.long
def test_the_documents_have_the_table_that_the_simulation_gives() -> None:
    assert coverage_table() == written_table("make coverage-table")


if __name__ == "__main__":
    write_table("make coverage-table", coverage_table())
