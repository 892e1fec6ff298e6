"""Runaways that few prompts do not show: what an interval misses, and what is said and decided with them.

``FSD_TEST_LONG=1 python -m tests.unit.test_rare_runaways`` prints what a sentence of docs/methods-figures.md sums up.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.stats import binom

from fsd_core.evaluation.aggregate import Runaways, is_moved, runaways
from fsd_core.metrics import compared
from fsd_core.statistics.intervals import (
    PROMPTS_THAT_SHOW_RARE,
    difference_ends,
    most_share,
    quotient_ends,
    with_runaways,
)
from tests.tools.sizes import LONG, size

LIMIT = 256
TRIALS, MANY = size(500, 4000), size(100_000, 400_000)
RATES, CHANGED, PROMPTS = (0.01, 0.02, 0.03), (0.1, 0.3, 1.0), (10, 20, 30, 100, PROMPTS_THAT_SHOW_RARE, 600)


class Coverage(NamedTuple):
    """How often the truth lies in the interval alone, and in what is said with unseen runaways; how often a bound just
    below the truth is met wrongly, before and now."""

    alone: float
    said: float
    wrong_before: float
    wrong: float


def _draw(rng: np.random.Generator, n: int, rate: float, changed: float) -> np.ndarray:
    """Tokens of both answers; a lenient rule changes some, and at ``rate`` one never ends. → [n, 5], last: ran away"""
    base = np.clip(rng.lognormal(4.3, 0.5, n).round(), 5, LIMIT)
    other = np.clip((base * rng.lognormal(0.05, 0.3, n)).round(), 5, LIMIT)
    away = rng.random(n) < rate
    lenient = np.where(away, LIMIT, np.where(rng.random(n) < changed, other, base))
    return np.column_stack([lenient, np.ones(n), base, np.ones(n), away & (base < LIMIT)])


def coverage(n: int, rate: float, changed: float) -> Coverage:
    """Simulate paired ratios of answer length."""
    rng = np.random.default_rng(n)
    tokens, _, base, *_ = _draw(rng, MANY, rate, changed).sum(0)
    truth = tokens / base
    tables = _draw(rng, TRIALS * n, rate, changed).reshape(TRIALS, n, 5)
    low, high = quotient_ends(tables[..., :4])
    share = np.array([most_share(int(seen), n) for seen in tables[..., 4].sum(1)])
    worst = with_runaways(high, share, LIMIT / tables[..., 2].mean(1))  # pyright: ignore[reportArgumentType]
    shown, bound = ~np.isnan(low), truth * 0.9999
    met = high <= bound
    decided = met & ((worst <= bound) | (n >= PROMPTS_THAT_SHOW_RARE))
    held = [((low <= truth) & (truth <= end))[shown].mean() for end in (high, worst)]
    return Coverage(*map(float, (*held, met.mean(), decided.mean())))


def acceptance_coverage(n: int, rate: float, changed: float) -> tuple[float, float]:
    """Simulate paired differences of acceptance: how often the truth lies in the interval alone, and in what is said.

    A runaway repeats itself, so that nearly all its drafts are accepted: 97 % of them. ``changed`` answers differ.
    """

    def draw(count: int) -> np.ndarray:  # → [count, 5]: accepted, drafted; of the baseline; ran away
        base = np.clip(rng.lognormal(4.3, 0.5, count).round(), 5, LIMIT)
        share, away = rng.beta(6, 4, count), rng.random(count) < rate
        moved = rng.random(count) < changed
        other = np.where(moved, np.clip(share + rng.normal(0.03, 0.05, count), 0, 1), share)
        length = np.where(away, LIMIT, base)
        accepted = np.where(away, 0.97, other)
        return np.column_stack([accepted * length, length, share * base, base, away & (base < LIMIT)])

    rng = np.random.default_rng(n)
    a, drafted, b, of_base, _ = draw(MANY).sum(0)
    truth = a / drafted - b / of_base
    tables = draw(TRIALS * n).reshape(TRIALS, n, 5)
    low, high = difference_ends(tables[..., :4])
    share = np.array([most_share(int(seen), n) for seen in tables[..., 4].sum(1)])
    weight = share * LIMIT / ((1 - share) * tables[..., 1].mean(1) + share * LIMIT)
    accepted = tables[..., 0].sum(1) / tables[..., 1].sum(1)
    shown = ~np.isnan(low)
    held = [((low <= truth) & (truth <= end))[shown].mean() for end in (high, high + weight * (1 - accepted))]
    return float(held[0]), float(held[1])


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


def main() -> None:
    """Print the table that docs/methods-figures.md sums up: coverage alone → with runaways, and wrong verdicts."""
    print(
        "| runaways, changed | " + " | ".join(f"n = {n}" for n in PROMPTS) + " |\n" + "|---" * (len(PROMPTS) + 1) + "|"
    )
    for rate in RATES:
        for changed in CHANGED:
            every = [coverage(n, rate, changed) for n in PROMPTS]
            for name, cells in (
                ("covered", (f"{at.alone:.0%} → {at.said:.0%}" for at in every)),
                ("wrongly met", (f"{at.wrong_before:.1%} → {at.wrong:.1%}" for at in every)),
            ):
                print(f"| {rate:.0%}, {changed:.0%}: {name} | {' | '.join(cells)} |")
            pairs = (acceptance_coverage(n, rate, changed) for n in PROMPTS)
            accepted = " | ".join(f"{alone:.0%} → {said:.0%}" for alone, said in pairs)
            print(f"| {rate:.0%}, {changed:.0%}: acceptance covered | {accepted} |")


if __name__ == "__main__":
    main()
