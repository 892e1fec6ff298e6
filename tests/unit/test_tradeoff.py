"""Accuracy along a knob, held against sums done by hand and against simulations with a known truth."""

from __future__ import annotations

import numpy as np
import pytest

from fsd_core.statistics.tradeoff import (
    BEHIND,
    LEADS,
    OUTSIDE,
    TIED,
    Curves,
    Measured,
    PathPosition,
    at_ratio,
    nondegenerate_interval,
    within,
)
from tests.tools.sizes import LONG, size
from tools.matched_coverage import ALIKE, APART, HARMLESS, PROMPTS, drawn, paths, simulated


def measured(costs: list[float], gained: list[float], n: int = 200) -> Measured:
    """Settings of n prompts alike in cost, each of which loses (or wins) such a share, the same first prompts."""
    table = np.zeros((n, len(costs)))
    for k, share in enumerate(gained):
        table[: round(abs(share) * n), k] = np.sign(share)
    return Measured(table, np.tile(np.array(costs) * 10, (n, 1)), np.full(n, 10.0))


def test_between_two_settings_stands_their_mixture():
    """At 1/1.25 = 0.8 of the cost, a fifth of the way from 0.9 to 0.4 is done: 0.2·(−0.1) + 0.8·0 points lost."""
    curves = Curves(measured([1.0, 0.9, 0.4], [0, 0, -0.1]))
    along = curves.along((0, 1, 2), [1 / 1.25])
    assert along.value[0] == pytest.approx(-0.02)
    assert along.places[0] == PathPosition(1, 2, pytest.approx(0.2))
    a_mixture_costs = 0.8 * 0.9 + 0.2 * 0.4
    assert a_mixture_costs == pytest.approx(1 / 1.25)


def test_at_a_measured_setting_stands_that_setting():
    curves = Curves(measured([1.0, 0.8, 0.5], [0, -0.05, -0.2]))
    assert curves.along((0, 1, 2), [1.0, 0.8, 0.5]).value == pytest.approx([0, -0.05, -0.2])


def test_nothing_is_told_beyond_what_was_measured():
    curves = Curves(measured([0.9, 0.5], [0, -0.2]))
    along = curves.along((0, 1), [1.0, 0.91, 0.49])
    assert np.isnan(along.value).all()
    assert along.places == (None, None, None)
    assert [row.rank for row in at_ratio(curves, {"a": (0, 1)}, 2.5)] == [OUTSIDE]


def test_a_path_that_turns_back_is_read_at_its_strictest_crossing():
    """Costs 1, 1.2, 0.6, 0.9: at 0.8 the first line that has it is the second one, two thirds of the way."""
    curves = Curves(measured([1.0, 1.2, 0.6, 0.9], [0, -0.03, -0.06, -0.5]))
    along = curves.along((0, 1, 2, 3), [0.8, 1.1])
    assert along.value == pytest.approx([-0.03 - 0.03 * (0.4 / 0.6), -0.015])
    assert along.places[0] == PathPosition(1, 2, pytest.approx(2 / 3))


def test_without_any_disagreement_the_interval_knows_that_the_next_prompt_may_differ():
    """Bonett and Price's: 0 ± t·√2/(n+2)."""
    curves = Curves(measured([1.0, 0.5], [0, 0], n=98))
    low, high = curves.ends(*curves.settings())
    from scipy.stats import t

    assert high == pytest.approx(t.ppf(0.975, 97) * 2**0.5 / 100)
    assert low == pytest.approx(-high)


def test_an_interval_is_that_of_a_paired_difference():
    """Of 200 prompts 20 are lost: Bonett and Price's standard error is √((20 + 2)/202 − (20/202)²)/√202."""
    curves = Curves(measured([1.0, 0.5], [0, -0.1]), resamples=20_000)
    expected = (22 / 202 - (20 / 202) ** 2) ** 0.5 / 202**0.5
    assert curves.error(curves.settings()[1])[1] == pytest.approx(expected, rel=0.02)


def test_fewer_than_three_prompts_have_no_interval_and_no_ranks():
    curves = Curves(measured([1.0, 0.5, 0.5], [0, 0, -0.5], n=2))
    rows = at_ratio(curves, {"a": (0, 1), "b": (0, 2)}, 1.5)
    assert [row.rank for row in rows] == [LEADS, TIED]
    assert all(row.interval is None for row in rows)
    assert within(curves, {"a": (0, 1)}, 2)[0].interval is None


def test_rules_that_surely_lose_more_are_behind_and_the_others_tied():
    settings = measured([1.0, 0.5, 1.0, 0.5, 1.0, 0.5], [0, -0.02, 0, -0.025, 0, -0.4], n=400)
    rows = at_ratio(Curves(settings), {"a": (0, 1), "b": (2, 3), "c": (4, 5)}, 2.0)
    assert [(row.family, row.rank) for row in rows] == [("a", LEADS), ("b", TIED), ("c", BEHIND)]
    assert rows[1].prompts is not None
    assert rows[1].prompts > 400
    assert [row.difference for row in rows] == pytest.approx([-0.02, -0.025, -0.4])


def test_the_fastest_within_a_loss_is_where_the_curve_has_lost_as_much():
    """From cost 1 to 0.5 it loses 10 points: 2 points at 0.9, 5 at 0.75, and more than 10 nowhere."""
    curves = Curves(measured([1.0, 0.5], [0, -0.1], n=1000))
    two, five, twenty = (within(curves, {"a": (0, 1)}, points)[0] for points in (2.0, 5.0, 20.0))
    assert [two.ratio, five.ratio, twenty.ratio] == pytest.approx([1 / 0.9, 1 / 0.75, 2.0], rel=1e-6)
    assert two.interval is not None
    assert 1 < two.interval.low < 1 / 0.9 < two.interval.high < 1 / 0.8
    assert (two.is_shown, two.is_open, twenty.is_open) == (True, False, True)


def test_few_prompts_show_no_gain_and_say_how_many_would():
    curves = Curves(measured([1.0, 0.5], [0, 0], n=30))
    row, unsure = (within(curves, {"a": (0, 1)}, 2.0, exact)[0] for exact in (["a"], []))
    assert not row.is_shown
    assert row.interval is not None
    assert row.interval.low == 1.0
    assert unsure.interval is not None
    assert unsure.interval.low == 0  # none of its settings is known to be within the loss
    assert row.prompts is not None
    assert row.prompts > 30


def test_a_rule_that_may_go_on_beyond_its_loosest_setting_is_not_called_slower():
    settings = measured([1.0, 0.8, 1.0, 0.4], [0, 0, 0, 0], n=2000)
    rows = within(Curves(settings), {"short": (0, 1), "long": (2, 3)}, 5.0)
    assert [(row.family, row.rank) for row in rows] == [("long", LEADS), ("short", TIED)]


def test_a_prompt_that_failed_counts_as_not_solved_and_has_no_cost():
    gained, cost = np.array([[0.0], [-1.0], [0.0], [0.0]]), np.array([[5.0], [np.nan], [5.0], [5.0]])
    curves = Curves(Measured(gained, cost, np.array([10.0, 90.0, 10.0, 10.0])))
    assert curves.difference[0] == -0.25
    assert curves.cost[0] == 0.5


def rates(rng: np.random.Generator, n: int) -> Measured:
    """Prompts of unequal length, of which a text's nats a token and its cost vary with the prompt. The target's column
    is the first. The mean excess is 0, 0.05 and 0.2 nats a token."""
    tokens = rng.integers(20, 200, (n, 3)).astype(float)
    prompt = rng.normal(0.5, 0.2, n)
    nats = np.column_stack([prompt, prompt + rng.normal(0.05, 0.1, n), prompt + rng.normal(0.2, 0.2, n)])
    cost = tokens * [1.0, 0.7, 0.4] * rng.uniform(0.8, 1.2, (n, 3))
    return Measured(-nats * tokens, cost, cost[:, 0], tokens, target=0)


@pytest.mark.parametrize("n", [20, 100])
def test_intervals_of_rates_hold_the_truth(n: int):
    rng = np.random.default_rng(0)
    truth = Curves(rates(rng, 400_000), resamples=2)
    at = (truth.cost[1] + truth.cost[2]) / 2
    real = truth.along((0, 1, 2), [at]).value[0]
    assert -real == pytest.approx(0.125, abs=0.01)
    held = []
    trials = size(120, 300)
    for trial in range(trials):
        curves = Curves(rates(rng, n), resamples=300, seed=trial)
        along = curves.along((0, 1, 2), [at])
        if along.places[0] is not None:
            low, high = curves.ends(along.value, along.resampled)
            held.append(low[0] <= real <= high[0])
    assert len(held) > trials * 5 // 6
    assert 0.92 <= np.mean(held) <= 0.99, np.mean(held)


def test_rates_that_no_prompt_tells_apart_have_no_interval_and_lead_nothing():
    one = rates(np.random.default_rng(1), 40)
    tied = Measured(one.gained[:, [0, 0, 1]], one.cost[:, [0, 0, 1]], one.reference, one.over[:, [0, 0, 1]])
    curves = Curves(tied)
    low, high = curves.ends(*curves.settings())
    assert [nondegenerate_interval(a, b) is None for a, b in zip(low, high, strict=True)] == [True, True, False]
    rows = at_ratio(curves, {"same": (0,), "again": (1,)}, 1.0)
    assert [row.rank for row in rows] == ["leads", "tied"]


@pytest.mark.parametrize("rules", [ALIKE, APART, HARMLESS], ids=["alike", "apart", "harmless"])
@pytest.mark.parametrize("n", PROMPTS)
def test_intervals_hold_the_truth_and_ranks_are_hardly_ever_false(rules, n: int) -> None:
    trials, held = size(8, 100), 0.93 if LONG else 0.88
    found = simulated(rules, n, trials)
    assert found.lost >= held, found
    assert found.fastest >= held, found
    assert found.false_at_ratio <= 0.05 + 1.65 * (0.05 * 0.95 / trials) ** 0.5, found
    assert found.false_within <= 0.05, found


def test_rules_that_are_far_apart_are_told_apart() -> None:
    """A test that never says anything would be right as well."""
    curves = Curves(drawn(APART, np.random.default_rng(3), 600))
    ranks = {row.family: row.rank for row in at_ratio(curves, paths(APART), 1.5)}
    assert ranks["2"] == BEHIND
    fastest = within(curves, paths(APART), 5.0, paths(APART))
    assert fastest[0].family == "0"
    assert {row.family: row.rank for row in fastest}["2"] == BEHIND
