"""Divergences against scipy and closed forms, warping against transformers, sampling against its weights."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from fsd_core.config import DIVERGENCES, SamplingConfig, divergence_upper_bound
from fsd_core.ops.distributions import UniformStream, allowed, divergence, draw, warp

GENERATOR = torch.Generator().manual_seed(0)
P, Q = torch.rand(2, 6, 50, generator=GENERATOR, dtype=torch.float64).pow(4).unbind(0)
P, Q = P / P.sum(-1, keepdim=True), Q / Q.sum(-1, keepdim=True)
ZERO = torch.zeros(6)


def test_divergences_are_those_of_scipy():
    p, q, m = P.numpy(), Q.numpy(), ((P + Q) / 2).numpy()
    expected = {
        "kl": entropy(q, p, axis=-1),
        "reverse-kl": entropy(p, q, axis=-1),
        "js": jensenshannon(p, q, axis=-1) ** 2,
        "tv": np.abs(p - q).sum(-1) / 2,
        "ag": (entropy(m, p, axis=-1) + entropy(m, q, axis=-1)) / 2,
    }
    for name, value in expected.items():
        np.testing.assert_allclose(divergence(name, P, Q, ZERO).numpy(), value, rtol=1e-9, err_msg=name)


def test_the_published_js_is_ag_and_runs_away_where_js_is_bounded():
    """Bernoulli(ε) against Bernoulli(1−ε): js stays under ln 2, what was published under its name does not."""
    p = torch.tensor([1e-4, 1 - 1e-4], dtype=torch.float64)
    assert divergence("js", p, p.flip(0), ZERO[0]) < math.log(2)
    assert divergence("ag", p, p.flip(0), ZERO[0]) > 3


@pytest.mark.parametrize("name", DIVERGENCES)
def test_ranges_hold_and_equal_distributions_do_not_diverge(name):
    one, other = torch.eye(4)[:2]
    far = divergence(name, one, other, torch.tensor(0.999), top_k=2).item()
    if name != "random":
        assert divergence(name, P.float(), P.float(), ZERO).max().item() < 1e-6
        assert far == pytest.approx(divergence_upper_bound(name))
    assert far <= divergence_upper_bound(name) * (1 + 1e-6)


@pytest.mark.parametrize("name", [n for n in DIVERGENCES if n.startswith("top-k-")])
def test_top_k_divergences_are_coarser_and_exact_when_k_is_the_vocabulary(name):
    whole = divergence(name.removeprefix("top-k-"), P, Q, ZERO)
    torch.testing.assert_close(divergence(name, P, Q, ZERO, top_k=50), whole)
    assert (divergence(name, P, Q, ZERO, top_k=5) <= whole + 1e-12).all()  # no merging of outcomes tells more apart


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p", "min_p"),
    [
        (1.0, 0, 1.0, 0.0), (0.7, 5, 1.0, 0.0), (1.3, 0, 0.8, 0.0), (0.9, 10, 0.6, 0.0), (1.0, 0, 1.0, 0.3),
        (0.7, 10, 0.9, 0.2), (1.0, 0, 1.0, 1.0),
    ],
)  # fmt: skip
def test_warping_is_that_of_transformers(temperature, top_k, top_p, min_p):
    logits = torch.randn(7, 40, generator=GENERATOR).round(decimals=1)  # with ties
    processors = [TemperatureLogitsWarper(temperature)] if temperature != 1 else []
    processors += [TopKLogitsWarper(top_k)] if top_k else []
    processors += [TopPLogitsWarper(top_p)] if top_p < 1 else []
    processors += [MinPLogitsWarper(min_p)] if min_p else []
    theirs = LogitsProcessorList(processors)(torch.zeros(7, 1, dtype=torch.long), logits).softmax(-1)
    sampling = SamplingConfig(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    torch.testing.assert_close(warp(logits, sampling), theirs)
    mask = allowed(logits, sampling)
    assert mask is None if not top_k and top_p == 1 and not min_p else torch.equal(mask, theirs > 0)


def test_greedy_is_one_hot_and_its_guard_is_the_nucleus_at_temperature_one():
    logits = torch.tensor([[0.0, 3.0, 2.0, -5.0]])
    assert warp(logits, SamplingConfig()).tolist() == [[0, 1, 0, 0]]
    assert allowed(logits, SamplingConfig(top_p=0.9)).tolist() == [[False, True, True, False]]


def test_draw_never_picks_what_has_no_weight_and_inverts_the_cumulative_sum():
    weights = torch.tensor([0.0, 2.0, 0.0, 1.0, 1.0, 0.0])
    u = torch.linspace(0, 1, 10_001, dtype=torch.float64)
    counts = torch.bincount(draw(weights.expand(10_001, -1), u), minlength=6)
    assert counts.tolist() == pytest.approx([0, 5000, 0, 2500, 2501, 0], abs=2)


def test_uniforms_depend_on_the_seed_and_not_on_how_they_are_cut():
    whole = UniformStream(3).take(100)
    stream = UniformStream(3, block=7)
    pieces = torch.cat([stream.take(2, 5).flatten(), stream.take(1), stream.take(89)])
    assert torch.equal(pieces, whole)
    assert not torch.equal(UniformStream(4).take(100), whole)
    assert whole.min() >= 0 and whole.max() < 1 and math.isclose(whole.mean().item(), 0.5, abs_tol=0.1)  # noqa: PT018


def test_a_divergence_over_the_top_is_0_where_the_rest_differs_in_its_parts_alone() -> None:
    """So that a threshold of 0 is not lossless there, and with the others is."""
    p, q = torch.tensor([0.5, 0.3, 0.2]), torch.tensor([0.5, 0.2, 0.3])
    none = torch.zeros(())
    for name in ("kl", "reverse-kl", "js", "tv", "ag"):
        assert divergence(f"top-k-{name}", p, q, none, top_k=1) == 0
        assert divergence(name, p, q, none) > 0.01
