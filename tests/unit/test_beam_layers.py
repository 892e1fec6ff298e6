"""The joint law of beams, the width of a layer, and the law of the beams that drafts and samples make of it."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest
import torch
from scipy.stats import chisquare
from torch import Tensor

from fsd_core.ops.distributions import JudgedLayer, draw_several, joint_law, judge_layer
from fsd_core.ops.kernels import Forest
from fsd_core.theory import acceptance_counts, layer_width, rejected_shares

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
