from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest, t

from fsd_core.statistics.intervals import (
    difference_interval,
    median_interval,
    pareto_front,
    quotient_interval,
    ratio_interval,
    wilson,
)
from fsd_core.statistics.paired import holm, paired_difference


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (5, 5), (1, 3), (47, 50), (300, 600)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_correction_widens_wilsons_interval(successes: int, n: int, confidence: float) -> None:
    low, high = wilson(successes, n, confidence)
    expected = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert max(0, expected.low - 1 / n) <= low <= expected.low
    assert expected.high <= high <= min(1, expected.high + 1 / n)


def test_wilson_contains_the_rate_even_at_the_ends() -> None:
    for n in range(1, 60):
        for successes in (0, n):
            low, high = wilson(successes, n)
            assert low <= successes / n <= high


@pytest.mark.parametrize(("successes", "n"), [(0, 0), (3, 2), (-1, 2)])
def test_wilson_refuses_impossible_counts(successes: int, n: int) -> None:
    with pytest.raises(ValueError, match="successes"):
        wilson(successes, n)


def test_with_equal_denominators_a_ratio_has_the_textbooks_interval_on_the_scale_of_logarithms() -> None:
    values = np.array([9.0, 11.0, 10.0, 12.0, 8.0, 10.5, 9.5, 10.0])
    half = t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / math.sqrt(len(values))
    low, high = ratio_interval([(value, 1.0) for value in values]) or (0, 0)
    assert math.sqrt(low * high) == pytest.approx(values.mean())
    assert math.log(high / low) / 2 == pytest.approx(half / values.mean(), rel=0.1)


def test_a_constant_ratio_has_no_interval() -> None:
    assert ratio_interval([(2, 1), (4, 2), (6, 3)]) is None
    assert difference_interval([(2, 1), (4, 2), (6, 3)], [(1, 1), (3, 3), (5, 5)]) is None


def test_below_three_prompts_there_is_no_interval() -> None:
    assert ratio_interval([(2, 1), (5, 2)]) is None
    assert ratio_interval([(2, 1), (5, 2), (0, 0)]) is None  # the third says nothing
    assert median_interval([1.0, 2.0]) is None


def test_a_share_stays_within_0_and_1_and_has_none_at_the_ends() -> None:
    low, high = ratio_interval([(9, 10), (6, 10), (8, 10)], is_share=True) or (-1, 2)
    assert 0 < low < 23 / 30 < high < 1
    assert ratio_interval([(9, 10), (1, 10), (10, 10)], is_share=True) is None  # from 1 % to 99.9 %
    assert ratio_interval([(10, 10)] * 5, is_share=True) is None


def test_one_long_text_among_short_ones_widens_the_interval() -> None:
    speeds = (1.0, 1.2, 0.9, 1.1, 1.0, 1.3)
    equal = ratio_interval([(100 * speed, 100) for speed in speeds]) or (0, 0)
    unequal = ratio_interval([(n * speed, n) for speed, n in zip(speeds, (1000, 10, 10, 10, 10, 10), strict=True)])
    assert unequal is not None
    assert unequal[1] / unequal[0] > 3 * equal[1] / equal[0]


def test_where_one_pause_decides_there_is_no_interval() -> None:
    """Of a machine that stood still for 100 s in one of 20 prompts, the others do not say how often that happens."""
    quiet = [(50.0, 1 + i / 100) for i in range(20)]
    paused = [*quiet[:-1], (50.0, 100.0)]
    assert ratio_interval(quiet)
    assert quotient_interval(quiet, [(a, b + i % 3) for i, (a, b) in enumerate(quiet)])
    assert ratio_interval(paused) is None
    assert quotient_interval(paused, quiet) is None


def test_what_moves_together_cancels_between_paired_runs() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.uniform(20, 200, 30)
    base = [(n, n / 40 * mood) for n, mood in zip(lengths, rng.lognormal(0, 0.3, 30), strict=True)]
    ours = [(n, seconds / 2 * (1 + 0.01 * (i % 3))) for i, (n, seconds) in enumerate(base)]
    low, high = quotient_interval(ours, base) or (0, 0)
    assert low < 2 / 1.01 < high
    alone = ratio_interval(base) or (0, 0)
    assert high / low < 1 + (alone[1] / alone[0] - 1) / 5


def test_where_fewer_than_three_prompts_differ_a_pair_has_no_interval() -> None:
    base = [(float(n), 1.0) for n in range(10, 30)]
    ours = [(9.0, 1.0), (99.0, 1.0), *base[2:]]
    assert quotient_interval(ours, base) is difference_interval(ours, base) is None
    assert quotient_interval([*ours[:2], (5.0, 1.0), *base[3:]], base) is not None


def test_a_ratio_needs_a_denominator() -> None:
    for pairs in ([(1, 0), (2, 0), (3, 0)], []):
        with pytest.raises(ValueError, match="denominator"):
            ratio_interval(pairs)
    with pytest.raises(ValueError, match="denominator"):
        difference_interval([(1, 0)] * 3, [(1, 1)] * 3)


def test_interval_of_the_median() -> None:
    assert median_interval(range(1, 102)) == pytest.approx((41, 61))  # order statistics
    low, high = median_interval([0.9, 1.0, 1.2]) or (0, 0)
    assert low < 0.9 < 1.2 < high
    with pytest.raises(ValueError, match="no values"):
        median_interval([])


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
    assert (equal.difference, equal.p_value) == (0, 1)
    assert equal.interval.low < -0.5 < 0.5 < equal.interval.high  # two prompts that agree prove little
    with pytest.raises(ValueError, match="share no prompt"):
        paired_difference({1: True}, {2: True})


def test_holm_corrects_the_smallest_most_and_keeps_the_order() -> None:
    assert holm([0.01, 0.04, 0.03, 0.5]) == pytest.approx([0.04, 0.09, 0.09, 0.5])
    assert holm([0.8, 0.9]) == [1.0, 1.0]
    assert holm([]) == []


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
