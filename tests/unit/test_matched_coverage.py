"""Statements about matched rules hold in simulations with a known truth."""

from __future__ import annotations

import numpy as np
import pytest

from fsd_core.statistics.tradeoff import BEHIND, Curves, at_ratio, within
from tests.tools.sizes import LONG, size
from tools.matched_coverage import ALIKE, APART, HARMLESS, PROMPTS, drawn, paths, simulated


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
