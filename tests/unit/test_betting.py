"""Bets on a mean: fair odds are never beaten for long, and what is true is found."""

from __future__ import annotations

import numpy as np
import pytest

from fsd_core.statistics.paired import SHARES, capital, lower_bound, stakes_for

EVENLY = np.full(len(SHARES), 1 / len(SHARES))


def test_capital_is_what_each_share_made_of_its_part() -> None:
    values, bound = np.array([0.5, 1.0, 0.0]), 0.4
    grown = [1 + SHARES * (value / bound - 1) for value in values]
    after = [float((EVENLY * np.prod(grown[:n], axis=0)).sum()) for n in range(4)]
    assert capital(values, bound, EVENLY) == pytest.approx(max(after))
    assert after[2] > after[3]  # the last one lost, and the most that there was is kept
    assert capital(np.array([]), bound, EVENLY) == 1


def test_stakes_go_where_earlier_prompts_earned_and_all_keep_some() -> None:
    never = stakes_for(np.full(200, 0.5), 0.49)  # nothing lost: the boldest earned most
    assert never.argmax() == len(SHARES) - 1
    losing = stakes_for(np.array([0.5] * 60 + [0.0] * 4), 0.49)
    assert losing.argmax() == 0
    for begun in (never, losing, stakes_for(np.array([]), 0.49)):
        assert begun.sum() == pytest.approx(1)
        assert (begun >= 0.2 / len(SHARES) - 1e-12).all()


@pytest.mark.parametrize(("lost", "won"), [(0.02, 0.0), (0.05, 0.03), (0.3, 0.28)])
def test_a_setting_just_worse_than_the_margin_hardly_ever_wins(lost: float, won: float) -> None:
    """The chance to reach 1/α at any time is at most α; 2,000 texts of 500 prompts, looked at after each."""
    draws = np.random.default_rng(1).choice([0.0, 0.5, 1.0], (2000, 500), p=[lost, 1 - lost - won, won])
    begun = stakes_for(np.random.default_rng(2).choice([0.0, 0.5, 1.0], 64, p=[lost, 1 - lost - won, won]), 0.49)
    wins = sum(capital(values, 0.49, begun) >= 20 for values in draws)
    assert wins / 2000 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 2000)
    assert wins / 2000 > 0.001  # it is a bet that can be won


def test_one_that_loses_nothing_wins_with_about_as_many_prompts_as_the_binomial_bound_asks() -> None:
    begun = stakes_for(np.full(64, 0.5), 0.49)
    needed = next(n for n in range(1, 400) if capital(np.full(n, 0.5), 0.49, begun) >= 20)
    assert 149 <= needed <= 190  # 0.98¹⁴⁹ < 0.05


def test_the_lower_bound_covers_the_mean_and_comes_near() -> None:
    rng = np.random.default_rng(3)
    begun, bounds = stakes_for(rng.choice([0.0, 0.5, 1.0], 64, p=[0.03, 0.94, 0.03]), 0.49), []
    for _ in range(300):
        bounds.append(lower_bound(rng.choice([0.0, 0.5, 1.0], 300, p=[0.03, 0.94, 0.03]), begun, 0.05))
    assert np.mean(np.array(bounds) <= 0.5) >= 0.95 - 3 * np.sqrt(0.05 * 0.95 / 300)
    assert np.median(bounds) > 0.47  # within 6 points
    assert capital(np.full(200, 0.5), lower_bound(np.full(200, 0.5), begun, 0.05), begun) == pytest.approx(20, rel=1e-6)
