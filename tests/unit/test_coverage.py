"""Intervals of 95 % hold the truth in simulations of runs: prompts that differ, few of them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from fsd_core.statistics.intervals import median_interval, ratio_ends, wilson
from fsd_core.statistics.paired import paired_difference
from tools.coverage_table import (
    PAIRED,
    PROMPTS,
    SINGLE,
    TRIALS,
    Draw,
    coverage,
    coverage_table,
    simulate,
    simulate_pair,
)
from tools.written_tables import written_table

AT_LEAST = 0.92


@pytest.mark.parametrize("draw", SINGLE, ids=lambda draw: draw.__name__)
def test_the_interval_of_a_ratio_covers(draw: Draw) -> None:
    found = {n: simulate(draw, n, lambda tables: ratio_ends(tables, is_share=SINGLE[draw])) for n in PROMPTS}
    assert min(found.values()) >= AT_LEAST, found


@pytest.mark.parametrize("draw", PAIRED, ids=lambda draw: draw.__name__)
def test_the_interval_of_a_paired_ratio_or_difference_covers(draw) -> None:
    found = {n: simulate_pair(draw, n) for n in PROMPTS}
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
        found[n] = coverage(truth, (low, high))
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
        assert coverage(gained - lost, (low, high)) >= AT_LEAST, (gained, lost)


@pytest.mark.long
def test_the_documents_have_the_table_that_the_simulation_gives() -> None:
    assert coverage_table() == written_table("make coverage-table")
