from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest

from fsd_core.benchmarks.statistics import (
    bootstrap_median,
    bootstrap_ratio,
    paired_difference,
    pareto_front,
    wilson,
)


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (5, 5), (1, 3), (47, 50), (300, 600)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_wilson_agrees_with_scipy(successes: int, n: int, confidence: float) -> None:
    expected = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert wilson(successes, n, confidence) == pytest.approx((expected.low, expected.high))


def test_wilson_contains_the_rate_even_at_the_ends() -> None:
    for n in range(1, 60):
        for successes in (0, n):
            low, high = wilson(successes, n)
            assert low <= successes / n <= high


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, n)


def test_bootstrap_of_a_ratio_covers_the_truth_about_as_often_as_it_says() -> None:
    rng, covered, trials = np.random.default_rng(7), 0, 200
    for trial in range(trials):
        denominators = rng.uniform(1, 3, 60)
        numerators = denominators * 2 + rng.normal(0, 1, 60)
        low, high = bootstrap_ratio(numerators.tolist(), denominators.tolist(), seed=trial, resamples=400)
        covered += low <= 2 <= high
    assert 0.88 <= covered / trials <= 0.99


def test_bootstrap_of_a_constant_ratio_has_no_width() -> None:
    assert bootstrap_ratio([2, 4, 6], [1, 2, 3]) == pytest.approx((2, 2))


def test_bootstrap_repeats_with_its_seed_and_differs_with_another() -> None:
    numerators, denominators = [1, 5, 2, 8, 4], [2, 3, 1, 6, 7]
    assert bootstrap_ratio(numerators, denominators) == bootstrap_ratio(numerators, denominators)
    assert bootstrap_ratio(numerators, denominators) != bootstrap_ratio(numerators, denominators, seed=1)


def test_bootstrap_leaves_out_resamples_that_say_nothing() -> None:
    low, high = bootstrap_ratio([0, 0, 1], [0, 0, 2])
    assert (low, high) == (0.5, 0.5)


def test_bootstrap_refuses_what_has_no_ratio() -> None:
    with pytest.raises(ValueError, match="denominator"):
        bootstrap_ratio([1, 2], [0, 0])
    with pytest.raises(ValueError, match="denominator"):
        bootstrap_ratio([], [])
    with pytest.raises(ValueError, match="dimensions"):
        bootstrap_ratio([1, 2], [1])


def test_bootstrap_of_the_median() -> None:
    low, high = bootstrap_median(list(range(101)))
    assert low < 50 < high
    with pytest.raises(ValueError, match="no values"):
        bootstrap_median([])


def test_paired_difference_uses_shared_prompts_alone() -> None:
    a = {0: True, 1: True, 2: True, 3: False, 9: True}
    b = {0: True, 1: False, 2: False, 3: True, 8: False}
    result = paired_difference(a, b)
    assert (result.only_a, result.only_b, result.n) == (2, 1, 4)
    assert result.difference == pytest.approx(0.25)
    assert result.interval.low <= 0.25 <= result.interval.high
    assert result.p_value == pytest.approx(1.0)  # 2 against 1 is no evidence


def test_paired_difference_is_antisymmetric_and_sees_a_clear_difference() -> None:
    a = {i: i % 10 != 0 for i in range(200)}  # 90 %
    b = {i: i % 2 == 0 for i in range(200)}  # 50 %
    forth, back = paired_difference(a, b), paired_difference(b, a)
    assert forth.difference == -back.difference == pytest.approx(0.4)
    assert forth.p_value == back.p_value == pytest.approx(binomtest(20, 120).pvalue)
    assert 0 < forth.interval.low < 0.4 < forth.interval.high < 0.6


def test_paired_difference_of_equals_and_of_strangers() -> None:
    equal = paired_difference({1: True, 2: False}, {1: True, 2: False})
    assert (equal.difference, equal.interval, equal.p_value) == (0, (0, 0), 1)
    with pytest.raises(ValueError, match="share no prompt"):
        paired_difference({1: True}, {2: True})


def test_pareto_front_keeps_what_nothing_beats() -> None:
    points = [(1, 5), (2, 4), (2, 3), (3, 4), (0, 5), (4, 1)]
    assert pareto_front(points) == [0, 3, 5]


def test_pareto_front_keeps_equal_points_together_and_leaves_out_nan() -> None:
    assert sorted(pareto_front([(1, 1), (1, 1), (math.nan, 9), (9, math.nan)])) == [0, 1]
    assert pareto_front([]) == []


def test_pareto_front_agrees_with_the_definition() -> None:
    rng = np.random.default_rng(3)
    points = [(int(x), int(y)) for x, y in rng.integers(0, 12, (80, 2))]

    def beaten(p: tuple[int, int]) -> bool:
        return any(q[0] >= p[0] and q[1] >= p[1] and q != p for q in points)

    assert sorted(pareto_front(points)) == [i for i, p in enumerate(points) if not beaten(p)]
