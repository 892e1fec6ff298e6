"""Optimal acceptance and the verifiers' own, against linear programs, enumeration and simulation."""

from __future__ import annotations

import time
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise, permutations

import numpy as np
import pytest
import torch

from fsd_core import theory
from fsd_core.errors import Contradiction, IncompatibleOptions, InvalidSetting, Malformed, OutOfRange, UnknownName
from fsd_core.ops.distributions import greedy_distribution, likeliest
from fsd_core.rules import VERIFIERS
from fsd_core.rules.rates import acceptance_rate
from fsd_core.theory import (
    DRAFT_SAMPLINGS,
    greedy_drafts,
    joint_distribution,
    missing_without_replacement,
    optimal_acceptance,
    optimal_coupling,
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
