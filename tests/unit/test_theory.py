"""Optimal acceptance, the verifiers' own and that of beams, against programs, enumeration and simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, permutations, product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from fsd_core import theory
from fsd_core.errors import Contradiction, IncompatibleOptions, InvalidSetting, Malformed, OutOfRange, UnknownName
from fsd_core.ops.distributions import JudgedLayer, draw_several, greedy_distribution, joint_law, judge_layer, likeliest
from fsd_core.ops.kernels import Forest
from fsd_core.rules import VERIFIERS
from fsd_core.rules.rates import acceptance_rate
from fsd_core.theory import (
    DRAFT_SAMPLINGS,
    acceptance_counts,
    greedy_drafts,
    joint_distribution,
    layer_width,
    missing_without_replacement,
    optimal_acceptance,
    optimal_coupling,
    rejected_shares,
)
from tests.tools.sizes import LONG, size


def distribution(rng: np.random.Generator, width: int) -> np.ndarray:
    """A distribution: flat or peaked, at times with zeros, ties, tiny tails, or all on one token."""
    kind = rng.integers(6)
    if kind == 0:
        return np.eye(width)[rng.integers(width)]
    values = rng.dirichlet(np.full(width, rng.choice([0.05, 0.3, 1.0, 5.0])))
    if kind == 1:
        values = np.where(rng.random(width) < 0.4, 0, values)
    elif kind == 2:
        values = rng.integers(0, 4, width).astype(float)  # ties and zeros
    elif kind == 3:
        values = np.maximum(values, 1e-13)
    return values / values.sum() if values.sum() > 0 else np.full(width, 1 / width)


def cases(count: int, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, int]]:
    rng = np.random.default_rng(seed)
    for _ in range(count):
        width = int(rng.integers(1, 7))
        p = distribution(rng, width)
        yield p, (p if rng.random() < 0.05 else distribution(rng, width)), int(rng.integers(1, 4))


@pytest.mark.parametrize("sampling", DRAFT_SAMPLINGS)
def test_the_optimum_is_that_of_the_linear_program(sampling: str) -> None:
    for p, q, n in cases(size(150, 1500), seed=DRAFT_SAMPLINGS.index(sampling)):
        optimum, weights = optimal_coupling(p, joint_distribution(q, n, sampling))
        assert optimal_acceptance(p, q, n, sampling) == pytest.approx(optimum, abs=1e-7), (p, q, n)
        assert np.sum(list(weights.values()), axis=0) == pytest.approx(p, abs=1e-7)


def missing_exactly(q: np.ndarray, n: int) -> list[float]:
    """Pr[some draft outside the prefix] in fractions, over all orders."""
    total = sum(map(Fraction, q.tolist()))
    share = [Fraction(x) / total for x in q.tolist()]
    found = []
    for end in range(len(q) + 1):
        inside = Fraction(0)
        for drafts in permutations(range(end), n):
            chance, left = Fraction(1), Fraction(1)
            for x in drafts:
                chance, left = chance * share[x] / left, left - share[x]
            inside += chance
        found.append(float(1 - inside))
    return found


def test_the_integral_without_replacement_is_right_to_the_last_digits() -> None:
    rng = np.random.default_rng(5)
    for _ in range(size(50, 300)):
        width = int(rng.integers(2, 7))
        n = int(rng.integers(1, min(4, width) + 1))
        q = np.maximum(rng.dirichlet(np.full(width, rng.choice([0.02, 0.3, 1, 5]))), 10.0 ** -rng.integers(3, 15))
        q /= q.sum()
        assert missing_without_replacement(q, n) == pytest.approx(missing_exactly(q, n), rel=1e-11, abs=1e-30)


def test_two_drafts_without_replacement_have_a_closed_form() -> None:
    rng = np.random.default_rng(6)
    q = rng.dirichlet(np.full(5000, 0.05)) * 0.9 + 0.1 / 5000
    weight, inside = q / (1 - q), np.cumsum(q)
    both = inside * np.cumsum(weight) - np.cumsum(weight * q)
    assert 1 - missing_without_replacement(q, 2)[1:] == pytest.approx(both, abs=1e-12)


@pytest.mark.parametrize("sampling", DRAFT_SAMPLINGS)
def test_a_large_vocabulary_takes_well_under_a_second(sampling: str) -> None:
    rng = np.random.default_rng(7)
    p, q = rng.dirichlet(np.full(152_000, 0.01)), rng.dirichlet(np.full(152_000, 0.01))
    optimal_acceptance(p[:100] / p[:100].sum(), q[:100] / q[:100].sum(), 4, sampling)
    begun = time.process_time()  # which stands still while the machine does
    found = optimal_acceptance(p, q, 4, sampling)
    assert time.process_time() - begun < (1.0 if LONG else 10.0)  # what takes V² steps takes minutes
    assert np.minimum(p, q).sum() - 1e-9 <= found <= 1


def test_more_drafts_are_accepted_more_often_and_one_draft_is_speculative_decoding() -> None:
    rng = np.random.default_rng(8)
    for _ in range(size(8, 50)):
        p, q = distribution(rng, 20), distribution(rng, 20)
        speculative = np.minimum(p, q).sum()
        for sampling in DRAFT_SAMPLINGS:
            rates = [optimal_acceptance(p, q, n, sampling) for n in range(1, 9)]
            assert rates[0] == pytest.approx(speculative, abs=1e-12)
            if sampling != "greedy":
                assert all(b >= a - 1e-9 for a, b in pairwise(rates))
        for rule in VERIFIERS:
            if rule != "spec-hub":
                assert acceptance_rate(rule, p, q, 1) == pytest.approx(
                    (p * q).sum() if rule == "nss" else speculative, abs=1e-12
                )


def test_no_verifier_exceeds_the_optimum_of_its_drafts() -> None:
    for p, q, n in cases(size(120, 600), seed=9):
        for name, verifier in VERIFIERS.items():
            if name == "spec-hub" and n != 2:
                continue
            assert acceptance_rate(name, p, q, n) <= optimal_acceptance(p, q, n, verifier.sampling) + 1e-9, name
    p, q = np.array([0.5, 0.3, 0.2]), np.array([0.2, 0.3, 0.5])
    assert acceptance_rate("nss", p, q, 2) < optimal_acceptance(p, q, 2, "with_replacement") - 0.1


def recursive_by_hand(p: np.ndarray, q: np.ndarray, n: int) -> float:
    """Without replacement, step by step over all drafts."""
    if n == 0 or q.sum() <= 0:
        return 0.0
    q = q / q.sum()
    accepted = np.minimum(p, q).sum()
    rest = np.maximum(p - q, 0)
    total = accepted
    for x in np.flatnonzero(q > p):
        left = q.copy()
        left[x] = 0
        total += (q[x] - p[x]) * (recursive_by_hand(rest / rest.sum(), left, n - 1) if rest.sum() > 1e-15 else 0)
    return total


def test_recursive_rejection_without_replacement_is_that_of_all_its_paths() -> None:
    for p, q, n in cases(size(200, 400), seed=10):
        assert acceptance_rate("rrs-without-replacement", p, q, n) == pytest.approx(
            recursive_by_hand(p, q, n), abs=1e-9
        )


def test_sampled_paths_of_rejection_come_near_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(11)
    p, q = rng.dirichlet(np.full(40, 0.3)), rng.dirichlet(np.full(40, 0.3))
    exact = acceptance_rate("rrs-without-replacement", p, q, 4)
    monkeypatch.setattr(theory, "MOST_PATHS", 100)
    assert acceptance_rate("rrs-without-replacement", p, q, 4) == pytest.approx(exact, abs=4e-3)
    assert acceptance_rate("rrs-without-replacement", p, q, 4) != exact


def test_tensors_and_arrays_one_position_or_many() -> None:
    rng = np.random.default_rng(12)
    p, q = rng.dirichlet(np.ones(9), 4), rng.dirichlet(np.ones(9), 4)
    for compute in (
        lambda p, q: optimal_acceptance(p, q, 3, "without_replacement"),
        lambda p, q: acceptance_rate("k-seq", p, q, 3),
    ):
        rows = compute(torch.tensor(p), torch.tensor(q))
        assert rows.shape == (4,)
        assert rows == pytest.approx([compute(a, b) for a, b in zip(p, q, strict=True)])
        assert isinstance(compute(torch.tensor(p[0]), q[0]), float)
        assert compute(p[0], q).shape == (4,)


@pytest.mark.parametrize("width", [510, 1000, 50_000])
def test_what_bfloat16_rounds_is_a_distribution(width: int) -> None:
    uniform = torch.full((width,), 1 / width).bfloat16()
    assert abs(uniform.double().sum().item() - 1) > 5e-4
    assert acceptance_rate("rrs", uniform, uniform, 2) == pytest.approx(1)
    assert acceptance_rate("rrs", uniform.float(), uniform.double().tolist(), 2) == pytest.approx(1)


def test_ties_go_to_the_first_token_in_theory_and_in_decoding() -> None:
    rng = np.random.default_rng(5)
    for _ in range(size(100, 300)):
        weights = rng.integers(0, 4, (3, int(rng.integers(2, 90)))) / 4.0
        weights[:, 0] += weights.sum(-1) == 0
        count = int(rng.integers(1, min(8, weights.shape[1]) + 1))
        drafted = likeliest(torch.tensor(weights), count - 1)
        rest = greedy_distribution(torch.tensor(weights), count)
        for row, tokens, law in zip(weights, drafted.tolist(), rest.numpy(), strict=True):
            certain, last = greedy_drafts(row, count)
            assert {token for token in tokens if token >= 0} == {*np.flatnonzero(certain).tolist()}
            order = np.argsort(-row, kind="stable")[: count - 1].tolist()
            assert tokens == [token if row[token] > 0 else -1 for token in order]
            assert law == pytest.approx(last)


def test_what_are_no_distributions_is_refused() -> None:
    good = np.array([0.5, 0.5])
    for bad, told in (
        ([0.5, 0.6], "is not a distribution"),
        ([1.5, -0.5], "is not a distribution"),
        ([[[1.0]]], "shape"),
    ):
        with pytest.raises(InvalidSetting, match=told):
            optimal_acceptance(np.array(bad), good, 2, "greedy")
    for bad in ([[1.0], [0.5, 0.5]], "half", ["0.5", "0.5"], [None, 1.0], [0.5j, 0.5], {"a": 1.0}, [10**400, 0]):
        with pytest.raises(Malformed, match="target_probs"):
            optimal_acceptance(bad, good, 2, "greedy")
        with pytest.raises(Malformed, match="draft_probs"):
            acceptance_rate("rrs", good, bad, 2)
    with pytest.raises(Contradiction):
        acceptance_rate("rrs", good, np.array([0.2, 0.3, 0.5]), 2)
    with pytest.raises(OutOfRange):
        acceptance_rate("rrs", good, good, 0)
    with pytest.raises(IncompatibleOptions, match="couples 2 drafts"):
        acceptance_rate("spec-hub", good, good, 3)
    with pytest.raises(UnknownName):
        acceptance_rate("best", good, good, 2)
    with pytest.raises(UnknownName):
        optimal_acceptance(good, good, 2, "greedily")


P3, Q3 = [0.5, 0.3, 0.2], [0.2, 0.5, 0.3]
P4, Q4 = [0.4, 0.3, 0.2, 0.1], [0.1, 0.2, 0.3, 0.4]
ONE_PARENT_INVALID = [0.5, 0.5, 0.0, 0.0], [0.2, 0.3, 0.1, 0.4]


def widths(p: list[float], q: list[float], drafts: int, confidences: list[float]) -> list[int]:
    chances = acceptance_counts(rejected_shares(np.array(p), np.array(q), drafts))
    return [layer_width(chances, confidence, 1, drafts) for confidence in confidences]


class TestWidth:
    def test_three_drafts(self):
        rejected = rejected_shares(np.array(P3), np.array(Q3), 3)
        chances = acceptance_counts(rejected)
        assert 1 - np.array(rejected) == pytest.approx([0.7, 0.2, 0.2])
        assert chances == pytest.approx([0.192, 0.234, 0.231, 0.343])
        assert chances @ np.arange(4) == pytest.approx(1.725)
        assert widths(P3, Q3, 3, [0.5, 0.7, 0.9]) == [2, 1, 1]

    def test_four_drafts_and_the_subtraction_that_is_made_once(self):
        rejected = rejected_shares(np.array(P4), np.array(Q4), 4)
        assert 1 - np.array(rejected) == pytest.approx([0.6, 0.3, 0.171429, 0.1], abs=1e-6)
        assert acceptance_counts(rejected) == pytest.approx([0.2088, 0.2152, 0.2304, 0.216, 0.1296])
        assert widths(P4, Q4, 4, [0.5]) == [2]
        p, twice = np.array(P4), []
        for _ in range(4):
            residual = (p - np.array(Q4)).clip(0)
            twice.append(residual.sum())
            p = (residual / residual.sum() - np.array(Q4)).clip(0)
            p = p / p.sum()
        faulty = acceptance_counts(twice)
        assert faulty == pytest.approx([0.268, 0.245, 0.197, 0.160, 0.130], abs=1e-3)
        assert layer_width(faulty, 0.5, 1, 4) == 1

    def test_two_beams(self):
        weights = torch.tensor([0.6, 0.3], dtype=torch.float64).log()
        p = joint_law(weights, torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]], dtype=torch.float64))
        q = joint_law(weights, torch.tensor([[0.4, 0.4, 0.2], [0.2, 0.5, 0.3]], dtype=torch.float64))
        assert p.tolist() == pytest.approx([1 / 3, 0.2, 0.4 / 3, 0.1 / 3, 0.2, 0.1])
        assert q.tolist() == pytest.approx([0.8 / 3, 0.8 / 3, 0.4 / 3, 0.2 / 3, 0.5 / 3, 0.1])
        rejected = [float(share) for share in rejected_shares(p, q, 3)]
        assert 1 - np.array(rejected) == pytest.approx([0.9, 0.433333, 0.433333], abs=1e-6)
        assert acceptance_counts(rejected)[::-1].cumsum()[:3] == pytest.approx([0.729, 0.888, 0.967889], abs=1e-6)
        judged = judge_layer(
            p[None], q[None], torch.tensor([[1, 4, 0]]), torch.tensor([2]),
            torch.tensor([[0.9, 0.5, 0.7]], dtype=torch.float64), torch.zeros(1, 2, dtype=torch.float64),
        )  # fmt: skip
        assert judged.atoms.tolist() == [[4, 0]]
        assert judged.drafts.tolist() == [[1, 2]]
        assert judged.accepted.tolist() == [2]

    def test_a_beam_of_weight_zero_has_no_atoms(self):
        law = joint_law(torch.tensor([-torch.inf, -3.0], dtype=torch.float64), torch.tensor([[1.0, 0.0], [0.25, 0.75]]))
        assert law.tolist() == [0, 0, 0.25, 0.75]

    def test_the_same_law_fills_every_layer(self):
        assert widths(P3, P3, 4, [0.5, 1.0]) == [4, 4]
        assert layer_width(acceptance_counts([1.0, 1.0]), 0.9, 1, 2) == 1  # no draft can be accepted: the least


def enumerated(
    p: list[float], q: list[float], drafts: int, width: int, *, replaced: bool = True
) -> tuple[JudgedLayer, np.ndarray]:
    """Judge every draft with every uniform that makes a difference. Return the results and their probabilities."""
    stages, current = [], np.array(p)
    for _ in range(drafts + 1):
        stages.append(current)
        residual = (current - np.array(q)).clip(0)
        current = residual / residual.sum() if residual.sum() > 0 else current

    def cells(borders: np.ndarray) -> list[tuple[float, float]]:
        """Return a point in each cell of [0, 1) between the borders, with the cell's size."""
        inner = borders[(borders > 1e-9) & (borders < 1 - 1e-9)]
        ends = np.unique(np.round([0, *inner, 1], 12))
        return [((low + high) / 2, high - low) for low, high in pairwise(ends)]

    tests = cells(np.concatenate([stage / np.array(q) for stage in stages]))
    fills = cells(np.concatenate([stage.cumsum() for stage in stages]))
    trials = [
        (drawn, tested, filled)
        for drawn in product(range(len(p)), repeat=drafts)
        for tested in product(tests, repeat=drafts)
        for filled in product(fills, repeat=width)
        if replaced or len(set(drawn)) == drafts
    ]
    weights = np.array(
        [
            drawing(q, drawn, replaced=replaced) * np.prod([size for _, size in (*tested, *filled)])
            for drawn, tested, filled in trials
        ]
    )
    judged = judge_layer(
        torch.tensor(p, dtype=torch.float64).expand(len(trials), -1),
        torch.tensor(q, dtype=torch.float64).expand(len(trials), -1),
        torch.tensor([drawn for drawn, _, _ in trials]),
        torch.full((len(trials),), width),
        torch.tensor([[u for u, _ in tested] for _, tested, _ in trials], dtype=torch.float64),
        torch.tensor([[u for u, _ in filled] for _, _, filled in trials], dtype=torch.float64),
    )
    return judged, weights


def drawing(q: list[float], drawn: tuple[int, ...], *, replaced: bool) -> float:
    """Return the probability of drawing these in this order."""
    probability, remaining = 1.0, 1.0
    for token in drawn:
        probability *= q[token] / remaining
        remaining -= 0.0 if replaced else q[token]
    return probability


def ordered(judged: JudgedLayer, weights: np.ndarray, vocabulary: int, width: int) -> np.ndarray:
    """Return the law of the ordered beams, [V^W]."""
    index = np.zeros(len(weights), dtype=np.int64)
    for slot in range(width):
        index = index * vocabulary + judged.atoms[:, slot].numpy()
    return np.bincount(index, weights, minlength=vocabulary**width)


class TestLaw:
    """All draws enumerated: the code's own law, without an error of sampling."""

    @pytest.mark.parametrize(
        ("laws", "drafts", "width"),
        [((P3, Q3), 1, 1), ((P3, Q3), 2, 1), ((P3, Q3), 2, 2), ((P3, Q3), 3, 2),
         pytest.param((P3, Q3), 4, 3, marks=pytest.mark.long), ((P3, Q3), 1, 3), ((P4, Q4), 2, 1), ((P4, Q4), 2, 2),
         (ONE_PARENT_INVALID, 2, 2)],
    )  # fmt: skip
    def test_ordered_beams_are_independent_samples_of_the_target(self, laws, drafts, width):
        p, q = laws
        judged, weights = enumerated(p, q, drafts, width)
        expected = np.array([np.prod(beams) for beams in product(p, repeat=width)])
        assert weights.sum() == pytest.approx(1, abs=1e-12)
        assert np.abs(ordered(judged, weights, len(p), width) - expected).max() < 1e-12

    @pytest.mark.parametrize(("drafts", "width"), [(2, 1), (2, 2), (3, 2), pytest.param(4, 3, marks=pytest.mark.long)])
    def test_a_layer_passes_as_often_as_foretold(self, drafts, width):
        judged, weights = enumerated(P3, Q3, drafts, width)
        passing = weights[judged.accepted.numpy() == width].sum()
        foretold = acceptance_counts(rejected_shares(np.array(P3), np.array(Q3), drafts))[width:].sum()
        assert passing == pytest.approx(foretold, abs=1e-12)

    def test_filling_a_failed_layer_to_another_width_would_tell_whether_drafts_agreed(self):
        """The published program fills it to M, so that its number of beams depends on their content."""
        judged, weights = enumerated(P3, Q3, 2, 1)
        passed = judged.accepted.numpy() == 1
        laws = [np.bincount(judged.atoms[part, 0].numpy(), weights[part], minlength=3) for part in (passed, ~passed)]
        assert laws[0] / laws[0].sum() == pytest.approx([0.342, 0.395, 0.263], abs=1e-3)
        assert laws[1] / laws[1].sum() == pytest.approx([1, 0, 0])
        assert laws[0] + laws[1] == pytest.approx(P3, abs=1e-12)

    def test_drafts_without_replacement_would_bias_the_first_beam(self):
        judged, weights = enumerated(P4, Q4, 2, 1, replaced=False)
        law = np.bincount(judged.atoms[:, 0].numpy(), weights, minlength=4)
        assert law == pytest.approx([0.357, 0.343, 0.2, 0.1], abs=1e-3)
        assert np.abs(law - P4).sum() / 2 == pytest.approx(0.043, abs=1e-3)

    @pytest.mark.parametrize("sampling", ["with_replacement", "without_replacement"])
    def test_drawn_drafts(self, sampling):
        trials, generator = 100_000, torch.Generator().manual_seed(7)
        p, q = (torch.tensor(law, dtype=torch.float64).expand(trials, -1) for law in (P4, Q4))

        def uniforms(count: int) -> Tensor:
            return torch.rand(trials, count, dtype=torch.float64, generator=generator)

        drawn = draw_several(q, uniforms(3), sampling)
        judged = judge_layer(p, q, drawn, torch.full((trials,), 2), uniforms(3), uniforms(2))
        expected = np.outer(P4, P4).ravel() * trials
        chance = chisquare(ordered(judged, np.ones(trials), 4, 2), expected).pvalue
        assert chance > 1e-6 if sampling == "with_replacement" else chance < 1e-30


class TestForest:
    def test_attention_of_two_beams(self):
        forest = Forest(3)
        attention = forest.add([-1, 0, 0, 1])  # parents of the same call
        assert attention.position_ids(4).tolist() == [[3, 4, 4, 5]]
        assert attention.attends_to.int().tolist() == [[1, 0, 0, 0], [1, 1, 0, 0], [1, 0, 1, 0], [1, 1, 0, 1]]
        assert not forest.is_chain

    def test_what_is_kept_and_shared_becomes_prefix(self):
        forest = Forest(3)
        forest.add([-1, 0, 0, 1, 2])
        forest.keep([0, 1, 3], shared=2)
        assert (forest.prefix, forest.is_chain) == (5, True)
        attention = forest.add([0, -1])
        assert attention.position_ids(3).tolist() == [[5, 6, 5]]
        assert attention.attends_to.int().tolist() == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
