"""Intervals hold the truth: by hand, in simulations of runs, and where prompts depend on each other."""

from __future__ import annotations

import itertools
import json
import math

import numpy as np
import pytest
from scipy.stats import binom, binomtest, multinomial, t

from fsd_core.calibration.findings import Measurements
from fsd_core.config import RunConfig
from fsd_core.statistics import paired
from fsd_core.statistics.intervals import (
    clustered_wilson,
    design_effect,
    difference_interval,
    median_interval,
    numbered,
    pareto_front,
    quotient_interval,
    ratio_ends,
    ratio_interval,
    sign_flip,
    wilson,
)
from fsd_core.statistics.paired import PairedDifference, holm, paired_difference, verdict
from fsd_core.statistics.tradeoff import Curves, Measured
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.reading import CheckedFile, check, grouped, noted
from tests.tools.sizes import size
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


@pytest.mark.parametrize(("successes", "n"), [(0, 5), (5, 5), (1, 3), (47, 50), (300, 600)])
@pytest.mark.parametrize("confidence", [0.9, 0.95])
def test_the_correction_widens_wilsons_interval(successes: int, n: int, confidence: float) -> None:
    low, high = wilson(successes, n, confidence)
    expected = binomtest(successes, n).proportion_ci(confidence, method="wilson")
    assert max(0, expected.low - 1 / n) <= low <= expected.low
    assert expected.high <= high <= min(1, expected.high + 1 / n)


def test_wilson_is_scipys_with_the_correction() -> None:
    for n in (*range(1, 41), 600, 14_042):
        for successes in {0, 1, 2, n // 3, n // 2, n - 1, n} & {*range(n + 1)}:
            for confidence in (0.5, 0.95, 0.999):
                expected = binomtest(successes, n).proportion_ci(confidence, method="wilsoncc")
                assert wilson(successes, n, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


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
