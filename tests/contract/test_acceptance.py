"""Every acceptance rule: what it writes is distributed as it promises, and only then."""

from __future__ import annotations

import math

import pytest
import torch

from fsd_core.config import Fuzzy, FuzzyReducible, Speculative
from fsd_core.ops.distributions import divergence, one_hot, tv
from fsd_core.rules import AcceptanceResult, Knob, Rule
from fsd_core.testing import (
    CASES,
    Q_FAR,
    Q_NEAR,
    ROUNDING,
    P,
    accepted_share,
    check_rule,
    fit,
    is_lossless,
    judging_rules,
    try_position,
    written_distribution,
)
from tests.tools.sizes import size

N = size(20_000, 300_000)
TOLD_APART = size(50, 5) / 1000
"""the total variation from which on N tokens tell two distributions apart"""
name = str  # a case is shown as its own text


@pytest.mark.parametrize("config", [c for c in CASES if is_lossless(c)], ids=name)
@pytest.mark.parametrize("q", [Q_NEAR, Q_FAR, P], ids=["near", "far", "same"])
def test_a_lossless_rule_writes_as_the_target_does(config, q):
    """Computed without a draw, and drawn through the code that the loop runs."""
    torch.testing.assert_close(written_distribution(config, P, q), P.double(), atol=ROUNDING, rtol=0)
    assert fit(try_position(config, P, q, N, seed=1).emitted, P) > 1e-4


@pytest.mark.parametrize("config", [c for c in CASES if not is_lossless(c)], ids=name)
def test_a_lossy_rule_is_told_from_the_target(config):
    """The negative control: the same tests fail where what a rule writes is not p."""
    emitted = try_position(config, P, Q_NEAR, N, seed=1).emitted
    own = written_distribution(config, P, Q_NEAR)
    assert fit(emitted, own) > 1e-4
    apart = tv(own, P).item()
    if not 0.005 < apart < TOLD_APART:
        assert (fit(emitted, P) < 1e-9) == (apart > 0.005)


@pytest.mark.parametrize("kind", [Fuzzy, FuzzyReducible])
@pytest.mark.parametrize("threshold", [0.0, 0.02, 0.2, math.log(2)])
@pytest.mark.parametrize("q", [Q_NEAR, Q_FAR], ids=["near", "far"])
def test_fuzzy_output_distribution_is_the_draft_where_near_and_the_target_elsewhere(kind, threshold, q):
    rule = kind(divergence="js", threshold=threshold)
    near = divergence("js", P, q, torch.zeros(())) <= threshold
    assert fit(try_position(rule, P, q, N, seed=2).emitted, q if near else P) > 1e-4


def test_random_divergence_mixes_draft_and_target_in_proportion_to_its_threshold():
    for kind in (Fuzzy, FuzzyReducible):
        rule = kind(divergence="random", threshold=0.3)
        assert fit(try_position(rule, P, Q_FAR, N, seed=3).emitted, 0.3 * Q_FAR + 0.7 * P) > 1e-4


@pytest.mark.parametrize("threshold", [0.0, 0.02, 0.2])
@pytest.mark.parametrize("q", [Q_NEAR, Q_FAR], ids=["near", "far"])
def test_reducible_accepts_at_least_as_much_as_fsd_by_the_stated_amount(threshold, q):
    near = float(divergence("js", P, q, torch.zeros(())) <= threshold)
    assert accepted_share(Fuzzy(threshold=threshold), P, q) == pytest.approx(near, abs=ROUNDING)
    expected = near + (1 - near) * (1 - tv(P, q).item())
    assert accepted_share(FuzzyReducible(threshold=threshold), P, q) == pytest.approx(expected, abs=ROUNDING)


def test_strict_acceptance_is_the_overlap_of_the_two_distributions():
    assert accepted_share(Speculative(), P, Q_FAR) == pytest.approx(torch.minimum(P, Q_FAR).sum().item(), abs=ROUNDING)


@pytest.mark.parametrize("config", CASES, ids=name)
def test_a_token_the_strict_test_keeps_is_marked_so_by_every_rule(config):
    drafted = one_hot(Q_NEAR.argmax(), len(Q_NEAR)) if config.greedy_draft else Q_NEAR
    strict = try_position(Speculative(), P, drafted, N, seed=6).accepted
    assert torch.equal(try_position(config, P, Q_NEAR, N, seed=6).strict, strict)


def test_off_is_speculative_decoding_token_for_token():
    strict = try_position(Speculative(), P, Q_FAR, N, seed=7)
    for kind in (Fuzzy, FuzzyReducible):
        off = try_position(kind(threshold=None), P, Q_FAR, N, seed=7)
        assert torch.equal(off.emitted, strict.emitted)
        assert torch.equal(off.accepted, strict.accepted)


def test_the_guard_never_keeps_what_the_target_would_cut():
    """Its distribution is q on the allowed set, and p for the share of q outside it."""
    allowed = torch.tensor([True, True, True, False, False, False, False, False])
    p = P * allowed / (P * allowed).sum()
    rule = FuzzyReducible(divergence="tv", threshold=1.0)
    trial = try_position(rule, p, Q_NEAR, N, seed=8, allowed=allowed)
    kept = Q_NEAR * allowed
    assert fit(trial.emitted, kept + (1 - kept.sum()) * p) > 1e-4
    loose = FuzzyReducible(divergence="tv", threshold=1.0, guard=False)
    assert fit(try_position(loose, p, Q_NEAR, N, seed=8, allowed=allowed).emitted, Q_NEAR) > 1e-4


def test_the_test_itself_can_fail():
    assert fit(torch.multinomial(Q_NEAR, N, replacement=True, generator=torch.Generator().manual_seed(9)), P) < 1e-9


@pytest.mark.parametrize("kind", judging_rules())
def test_every_rule_keeps_the_contract(kind):
    check_rule(judging_rules()[kind])


class Careless(Rule):
    """Accepts the more the smaller its knob is, and corrects from the target whatever was refused."""

    title, explanation, knob = "Careless", "Breaks the contract.", Knob("level", (0.1, 0.5), is_off=False)
    kind: str = "careless"
    level: float = 0.1

    def judge(self, rows, uniforms, noise):
        strict = Speculative().judge(rows, uniforms, noise)
        return AcceptanceResult(uniforms > self.level, strict.strict, strict.divergence)

    def correction(self, row, result):
        return row.target


class Pretender(Careless):
    title, lossless, knob = "Pretender", True, None


@pytest.mark.parametrize(("rule", "told"), [(Careless, "less with a larger level"), (Pretender, "another distr")])
def test_a_rule_that_breaks_the_contract_is_told_of_it(rule, told):
    with pytest.raises(AssertionError, match=told):
        check_rule(rule)
