"""Verdicts on paired accuracies keep their level and find what is there, by tests and by bets."""

from __future__ import annotations

import math
from bisect import bisect_left
from itertools import product

import numpy as np
import pytest
from scipy.stats import binom, multinomial

from fsd_core.errors import OutOfRange
from fsd_core.statistics.paired import (
    LEVEL,
    SHARES,
    PairedDifference,
    capital,
    checked_margin,
    lower_bound,
    p_value,
    paired_difference,
    stakes_for,
    verdict,
)
from tests.tools.sizes import LONG, size, some


def pair(both: int, gained: int, lost: int) -> PairedDifference:
    a = [True] * (both + gained) + [False] * lost
    b = [True] * both + [False] * gained + [True] * lost
    return paired_difference(dict(enumerate(a)), dict(enumerate(b)))


def called_with(gained: int, most: int, n: int, margin: float) -> np.ndarray:
    """Whether a run with so many gains and 0, 1, … ``most`` losses is called non-inferior. → bool [most + 1]

    Every loss speaks against it, so the quick size looks for the last that is borne and asks for those around it alone.
    """
    losses = range(most + 1)
    if LONG:
        return np.array([p_value(gained, lost, n, margin) < LEVEL for lost in losses])
    return np.array(losses) < bisect_left(losses, True, key=lambda lost: p_value(gained, lost, n, margin) >= LEVEL)


@pytest.mark.parametrize(
    ("n", "margin"), some(product([10, 24, 60], [0.01, 0.05, 0.1]), (10, 0.1), (24, 0.05), (60, 0.01))
)
def test_a_run_that_is_worse_by_the_margin_is_rarely_called_non_inferior(n: int, margin: float) -> None:
    """The level, summed exactly: at few prompts and hardly any disagreement as well."""
    counts = np.array([(b, c) for b in range(min(n, 14) + 1) for c in range(min(n - b, 22) + 1)])
    called = np.concatenate([called_with(b, min(n - b, 22), n, margin) for b in range(min(n, 14) + 1)])
    assert called.any() == (p_value(min(n, 14), 0, n, margin) < LEVEL)
    for gained in (0.0, 0.005, 0.02, 0.1):
        shares = [gained, gained + margin, 1 - 2 * gained - margin]
        chance = multinomial.pmf(np.column_stack([counts, n - counts.sum(1)]), n, shares)
        assert chance[called].sum() <= LEVEL


def test_without_disagreement_it_takes_the_rule_of_three() -> None:
    """No loss among n has the chance (1 − margin)ⁿ: 59 prompts show that 5 points are not lost, 58 do not."""
    needed = math.ceil(math.log(LEVEL) / math.log(0.95))
    assert p_value(0, 0, needed, 0.05) == pytest.approx(0.95**needed, rel=0.3)
    assert verdict(pair(150, 0, 0), 5).kind == "non-inferior"
    assert verdict(pair(40, 0, 0), 5).kind == "undecided"


def test_verdicts() -> None:
    assert verdict(pair(190, 4, 5), 5).sentence(5) == "Non-inferior within 5 points"
    assert verdict(pair(190, 4, 5), 1).kind == "undecided"
    lost = verdict(pair(20, 0, 8), 2)
    assert (lost.kind, lost.sentence(2), lost.prompts) == ("worse", "Worse", None)
    assert verdict(pair(20, 12, 0), 0).sentence(0) == "Better"
    few = verdict(pair(20, 2, 2), 5)
    assert (
        few.sentence(5) == f"Not enough prompts: about {few.prompts:,} in all would show it within 5 points, or worse"
    )


def test_so_many_prompts_would_decide_in_four_of_five_cases() -> None:
    seen = pair(20, 1, 2)
    needed = verdict(seen, 10).prompts
    assert needed is not None
    gains, losses = (seen.only_a + 0.5) / 24, (seen.only_b + 0.5) / 24
    drawn = np.random.default_rng(0).multinomial(needed, [gains, losses, 1 - gains - losses], size(120, 300))
    decided = np.mean([p_value(int(b), int(c), needed, 0.1) < LEVEL for b, c, _ in drawn])
    assert 0.7 < decided < 0.9


def test_a_margin_of_nothing_is_mcnemars_question() -> None:
    for gained, lost in ((9, 1), (6, 3), (30, 15)):
        exact = binom.sf(gained - 1, gained + lost, 0.5)
        assert p_value(gained, lost, 100, 0.0) == pytest.approx(exact, abs=0.02)


@pytest.mark.parametrize("points", [-1.0, 20.5, math.nan, math.inf, None])
def test_what_is_no_margin_is_told(points: float | None) -> None:
    with pytest.raises(OutOfRange):
        checked_margin(points)


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
