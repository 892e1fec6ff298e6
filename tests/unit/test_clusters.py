"""Prompts that depend on each other: what is told of them as if each stood alone is wrong, and of clusters right."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from scipy.stats import binomtest

from fsd_core.calibration.findings import Measurements
from fsd_core.config import RunConfig
from fsd_core.statistics import paired
from fsd_core.statistics.intervals import clustered_wilson, design_effect, numbered, sign_flip, wilson
from fsd_core.statistics.paired import PairedDifference, paired_difference, verdict
from fsd_core.statistics.tradeoff import Curves, Measured
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import CheckedFile, check, grouped, noted
from tests.tools.sizes import size

EACH = 4


def compared(gains: np.ndarray, clusters: np.ndarray | None) -> PairedDifference:
    """Two runs of which only the first solves a prompt of 1, only the second one of -1, and both any other."""
    a, b = ({i: gain != lost for i, gain in enumerate(gains)} for lost in (-1, 1))
    return paired_difference(a, b, clusters=None if clusters is None else dict(enumerate(clusters.tolist())))


def families(rng: np.random.Generator, number: int, losing: float, gaining: float) -> tuple[np.ndarray, np.ndarray]:
    """Gains of families whose prompts are all alike, and the family of each. → [number * EACH] both"""
    drawn = rng.random(number)
    gains = np.where(drawn < losing, -1, np.where(drawn < losing + gaining, 1, 0))
    return np.repeat(gains, EACH), np.repeat(np.arange(number), EACH)


def test_prompts_that_stand_alone_are_told_as_before() -> None:
    gains = np.random.default_rng(0).choice([-1, 0, 0, 0, 1], 50)
    assert compared(gains, np.arange(50)) == compared(gains, None)
    hits = gains >= 0
    assert clustered_wilson(hits.tolist(), np.arange(50)) == wilson(int(hits.sum()), 50)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (3, 0), (2, 7), (6, 6)])
def test_signs_of_single_prompts_are_mcnemars_test(gained: int, lost: int) -> None:
    lower, either = sign_flip([1] * gained + [-1] * lost)
    if gained + lost:
        assert lower == pytest.approx(binomtest(gained, gained + lost, alternative="less").pvalue)
        assert either == pytest.approx(binomtest(gained, gained + lost).pvalue)
    else:
        assert (lower, either) == (1.0, 1.0)


def test_signs_of_sums_are_those_of_every_flip() -> None:
    totals = [3, -1, 2, 0, -4, 1]
    flips = [
        sum(sign * abs(total) for sign, total in zip(signs, totals, strict=True))
        for signs in itertools.product([-1, 1], repeat=len(totals))
    ]
    lower, either = sign_flip(totals)
    assert lower == pytest.approx(np.mean([flip <= sum(totals) for flip in flips]))
    assert either == pytest.approx(np.mean([abs(flip) >= abs(sum(totals)) for flip in flips]))


def test_a_family_of_equal_prompts_says_as_much_as_one() -> None:
    rng = np.random.default_rng(1)
    gains, clusters = families(rng, 200, 0.2, 0.1)
    assert design_effect(gains.astype(float), clusters) == EACH
    assert design_effect(rng.permutation(gains).astype(float), clusters) < 1.5
    assert design_effect(np.zeros(12), np.repeat([0, 1, 2], EACH)) == EACH  # nothing shows how much they depend


@pytest.mark.parametrize("number", [12, 40])
def test_intervals_and_verdicts_of_families_hold_and_those_of_prompts_do_not(number: int) -> None:
    """At the boundary of the margin: non-inferior is wrong, and allowed in 5 of 100."""
    rng, times, margin, rate = np.random.default_rng(2), size(150, 2000), 0.05, 0.08
    covered, wrong = np.zeros(2), np.zeros(2)
    for _ in range(times):
        gains, clusters = families(rng, number, rate + margin, rate)
        for i, of in enumerate((clusters, None)):
            told = compared(gains, of)
            covered[i] += told.interval.low <= -margin <= told.interval.high
            wrong[i] += verdict(told, 100 * margin).kind == "non-inferior"
    # The quick size allows three standard errors.
    assert covered[0] >= times * (0.95 - 3 * (0.05 * 0.95 / times) ** 0.5)
    assert wrong[0] <= times * (0.05 + 3 * (0.05 * 0.95 / times) ** 0.5)
    assert covered[1] < 0.85 * times
    assert wrong[1] > 0.1 * times


def test_a_bet_on_families_is_won_as_seldom_as_promised_and_one_on_prompts_more_often() -> None:
    rng, times, bound, level = np.random.default_rng(3), size(200, 2000), 0.475, 0.05
    won, stakes = np.zeros(2), paired.stakes_for(np.full(16, 0.5), bound)
    for _ in range(times):
        gains, clusters = families(rng, 60, 0.15, 0.1)
        values = (1 + gains) / 2
        for i, most in enumerate((EACH, 1)):
            won[i] += paired.capital(paired.together(values, clusters, most, bound), bound, stakes) >= 1 / level
    assert won[0] <= times * level
    assert won[1] > times * 2 * level


def test_a_lower_bound_of_families_is_that_of_as_many_prompts() -> None:
    rng = np.random.default_rng(4)
    gains, clusters = families(rng, 80, 0.02, 0.02)
    values, stakes = (1 + gains) / 2, paired.stakes_for(np.full(16, 0.5), 0.49)
    alone = paired.lower_bound(values[::EACH], stakes, 0.05, np.arange(80), 1)
    assert paired.lower_bound(values, stakes, 0.05, clusters, EACH) == pytest.approx(alone)


def test_curves_of_families_are_those_of_as_many_prompts() -> None:
    rng = np.random.default_rng(5)
    gained, cost = rng.choice([-1.0, 0.0, 1.0], (30, 3)), rng.uniform(1, 2, (30, 3))
    alone = Curves(Measured(gained, cost, cost[:, 0]), resamples=50)
    alike = [np.repeat(table, EACH, axis=0) for table in (gained, cost, cost[:, 0])]
    together = Curves(Measured(*alike, clusters=np.repeat(np.arange(30), EACH)), resamples=50)
    np.testing.assert_allclose(together.difference, alone.difference)
    np.testing.assert_allclose(together._resampled[0], alone._resampled[0])
    assert together.n == alone.n == 30


def test_an_order_keeps_groups_together_and_fresh_ones_are_whole() -> None:
    groups = {i: f"g{i % 5}" for i in range(20)} | {3: "", 17: ""}
    groups = {i: group for i, group in groups.items() if group}
    run = RunConfig(limit=24, shuffled=True, seed=5)
    order = run.positions(24, groups=groups)
    assert sorted(order) == list(range(24))
    places = numbered(groups.get(i, i) for i in order)
    assert (np.diff(places) >= 0).all()
    assert run.positions(24) != order
    assert RunConfig(limit=24).positions(24, groups=groups) == list(range(24))
    evidence = Measurements(order, {}, groups=groups)
    whole = [i for i in order[6:15] if evidence.is_whole(6, 15)(i)]
    for i in order[6:15]:
        members = {j for j in order if groups.get(j, j) == groups.get(i, i)}
        assert (i in whole) == (members <= set(order[6:15]))
    assert 0 < len(whole) < 9
    assert evidence.largest_cluster == 4


def test_a_group_is_as_likely_early_as_a_prompt_alone() -> None:
    """Half of the prompts in groups of four: the mean place of both, over many orders, is that of the middle."""
    groups = {i: f"g{i // 4}" for i in range(40)}
    places: dict[bool, list[float]] = {}
    for whole in (False, True):
        orders = (RunConfig(limit=80, shuffled=True, whole_groups=whole, seed=seed) for seed in range(400))
        places[whole] = [float(np.mean([i in groups for i in run.positions(80, groups=groups)[:20]])) for run in orders]
    assert sorted(RunConfig(limit=80, shuffled=True, whole_groups=True).positions(80, groups=groups)) == [*range(80)]
    assert np.mean(places[True]) == pytest.approx(0.5, abs=0.03)
    assert np.mean(places[False]) > 0.7  # as runs from before are read
    stored = RunConfig(limit=80, shuffled=True)
    assert "whole_groups" not in stored.as_json()
    assert RunConfig.model_validate(stored.as_json()) == stored


def read(*rows: dict[str, object]) -> CheckedFile:
    return check("".join(json.dumps(row) + "\n" for row in rows).encode(), "none")


def test_a_line_names_its_group() -> None:
    file = read({"prompt": "One", "group": "a"}, {"prompt": "Two", "group": 7}, {"prompt": "Three"}, {"prompt": "4"})
    assert (file.problems, file.notes) == ((), ())
    assert [example.group for example in CustomTask.of("mine", file).all_examples()] == ["a", "7", "", ""]
    assert check(file.content.encode()).lines == file.lines
    turns = read({"turns": ["One", "Two"], "group": "a"})
    assert [example.group for example in CustomTask.of("mine", turns).all_examples()] == ["a", "a"]
    for wrong in ([], 1.5, True, "x" * 101, "a\nb"):
        assert "group" in read({"prompt": "One", "group": wrong}).problems[0].sentence


def test_near_duplicates_are_told_and_made_groups() -> None:
    template = "A customer asks whether the order {} of last week can still be changed before it leaves the shop."
    rows = [{"prompt": template.format(i)} for i in (11, 25, 73)]
    rows += [{"prompt": "Where is the nearest shop?"}, {"prompt": "How much is 3 + 4?"}, {"prompt": "…"}]
    file = read(*rows, {"prompt": template.format(99), "group": "mine"})
    (note,) = noted(file, "as docs say").notes
    assert "3 prompts are near-duplicates, in 1 family" in note
    assert [line.group for line in grouped(file).lines] == ["like line 1"] * 3 + [""] * 3 + ["mine"]
    assert noted(grouped(file), "as docs say").notes == grouped(file).notes
    assert noted(read(*rows[3:]), "as docs say").notes == ()
