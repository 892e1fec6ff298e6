"""Runaways that few prompts do not show: what is said and decided with them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scipy.stats import binom

from fsd_core.evaluation.aggregate import Runaways, is_moved, runaways
from fsd_core.metrics import compared
from fsd_core.statistics.intervals import (
    PROMPTS_THAT_SHOW_RARE,
    most_share,
)
from tests.tools.sizes import LONG
from tools.rare_runaways import CHANGED, LIMIT, PROMPTS, RATES, acceptance_coverage, coverage


@pytest.mark.parametrize("n", [10, 30])
def test_acceptance_looks_surer_than_it_is_and_what_is_said_beside_it_holds(n: int) -> None:
    alone, said = acceptance_coverage(n, 0.03, 0.3)
    assert alone < 0.9
    assert said >= 0.95


@pytest.mark.parametrize(("rate", "changed"), [(r, c) for r in RATES for c in CHANGED] if LONG else [(0.03, 0.3)])
def test_what_is_said_holds_where_an_interval_alone_does_not(rate: float, changed: float) -> None:
    """At most 5 % are wrong by design, one percent of runaways at n = 299 leaves a little more."""
    found = {n: coverage(n, rate, changed) for n in (PROMPTS if LONG else (30, PROMPTS_THAT_SHOW_RARE))}
    assert min(at.said for at in found.values()) >= 0.96, found
    assert max(at.wrong for at in found.values()) <= 0.075, found
    if (rate, changed) == (0.03, 0.3):  # what was wrong before
        assert found[30].alone < 0.9, found
        assert found[30].wrong_before > 0.1, found
        assert found[30].wrong < 0.02, found


@pytest.mark.parametrize(("seen", "n"), [(0, 1), (0, 30), (0, 299), (1, 30), (5, 40)])
def test_the_most_is_the_share_at_which_so_few_are_seen_once_in_twenty(seen: int, n: int) -> None:
    assert binom.cdf(seen, n, most_share(seen, n)) == pytest.approx(0.05)


def test_the_ends_of_the_rule_of_three() -> None:
    assert most_share(4, 4) == 1
    assert most_share(0, PROMPTS_THAT_SHOW_RARE) <= 0.01 < most_share(0, PROMPTS_THAT_SHOW_RARE - 1)
    with pytest.raises(ValueError, match="got 3 of 2"):
        most_share(3, 2)


def _answer(tokens: int, group: str = "", outcome: str = "correct", turn: int = 0) -> Any:
    stop = "length" if tokens == LIMIT else "eos"
    return SimpleNamespace(turn=turn, group=group, outcome=outcome, stop_reason=stop, tokens=tokens, timed=True)


def test_a_runaway_is_one_that_the_baseline_did_not_have() -> None:
    run = {0: _answer(LIMIT), 1: _answer(LIMIT), 2: _answer(9), 3: _answer(LIMIT, outcome="failed")}
    baseline = {0: _answer(LIMIT), 1: _answer(9), 2: _answer(LIMIT), 3: _answer(9), 4: _answer(9)}
    assert runaways(run, baseline) == Runaways(1, 3)
    assert runaways(run, {}) is None


def test_prompts_of_one_group_count_once() -> None:
    run = {i: _answer(LIMIT if i < 2 else 9, group=str(i // 4)) for i in range(12)}
    assert runaways(run, {i: _answer(9) for i in range(12)}) == Runaways(1, 3, "group")


def test_turns_of_one_conversation_count_once_and_are_named() -> None:
    run = {i: _answer(9, turn=i % 3) for i in range(90)}
    found = runaways(run, run)
    assert found == Runaways(0, 30, "conversation")
    assert found.sentence == "up to 10 % of answers could be runaways unseen by 30 conversations"


def test_what_a_long_answer_moves_is_told_of_them() -> None:
    moved = {metric.key for metric in compared() if is_moved(metric)}
    assert moved >= {"seconds_per_answer", "mean_tokens", "target_passes", "acceptance_rate", "mean_acceptance_length"}
    assert not moved & {"accuracy", "same_text", "runaway_rate"}


def test_it_is_said_in_words() -> None:
    assert Runaways(0, 30).sentence == "up to 10 % of answers could be runaways unseen by 30 prompts"
    assert Runaways(0, 299).sentence == "up to 1.0 % of answers could be runaways unseen by 299 prompts"
    assert Runaways(2, 30).sentence == "runaways beyond the baseline's: 2 of 30, and up to 20 % are possible"
    assert (Runaways(0, 30).prompts_lacking, Runaways(0, 300).prompts_lacking) == (269, 0)
