"""Operations against scipy, closed forms, transformers and sums by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import entropy
from torch import Tensor
from transformers import (
    LogitsProcessorList,
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from fsd_core.config import DIVERGENCES, SamplingConfig, divergence_upper_bound
from fsd_core.ops.distributions import UniformStream, allowed, divergence, draw, warp
from fsd_core.ops.kernels import Sight, attend, folded, normalised, tree_layout

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


GROUP, TAPS = 3, 3
QUERIES = ((1, 0), (0, 1), (3, 4), (1, 0), (4, 3))
KEYS = ((1, 0), (3, 4), (0, 1), (4, 3), (1, 0))
VALUES = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
OUTPUTS = ((1.5, 0), (0.25, 1.14), (1.2, 1.49), (2.63, 0.31), (0.84, 2.436))
"""computed by hand from the formula, with groups of 2, a scale of 0.1 and the taps 0.5 and 0.25"""


def vectors(rows: tuple[tuple[int, int], ...]) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)[None, None]


def unit(rows: tuple[tuple[int, int], ...]) -> Tensor:
    return vectors(rows) / vectors(rows).norm(dim=-1, keepdim=True)


def drawn(length: int, heads: int = 4, key_heads: int = 2, size: int = 5) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(length)
    shapes = ((1, heads, length, size), (1, key_heads, length, size), (1, key_heads, length, size))
    queries, keys, values = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in shapes)
    return queries / queries.norm(dim=-1, keepdim=True), keys / keys.norm(dim=-1, keepdim=True), values


SCALE = torch.tensor(0.3, dtype=torch.float64)
KERNEL = torch.tensor([[0.5, -0.2, 0.1], [0.1, 0.4, 0.0], [0.0, 0.0, 0.7], [-0.3, 0.2, 0.2]], dtype=torch.float64)


def whole(queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """The parallel form: all tokens of a text at once."""
    return attend(queries, keys, values, Sight.of_text(queries.shape[2], GROUP, "cpu"), SCALE, KERNEL, None)


def test_the_vector_that_was_computed_by_hand() -> None:
    scale, kernel = torch.tensor(0.1, dtype=torch.float64), torch.tensor([[0.5, 0.25]], dtype=torch.float64)
    outputs = attend(
        unit(QUERIES), unit(KEYS), vectors(VALUES), Sight.of_text(5, 2, torch.device("cpu")), scale, kernel, None
    )
    torch.testing.assert_close(outputs, vectors(OUTPUTS), atol=1e-14, rtol=0)


@pytest.mark.parametrize("length", range(1, 3 * GROUP + 2))
def test_token_by_token_over_a_state_is_the_whole_text(length: int) -> None:
    queries, keys, values = drawn(length)
    expected = whole(queries, keys, values)
    for i in range(length):
        base = max(i - TAPS + 1, 0) // GROUP * GROUP
        state = folded(None, keys[:, :, :base], values[:, :, :base]).double() if base else None
        positions = torch.arange(base, i + 1)
        sight = Sight.of(torch.ones(1, i + 1 - base, dtype=torch.bool), positions[-1:], positions, GROUP)
        part = slice(base, i + 1)
        token = attend(queries[:, :, i : i + 1], keys[:, :, part], values[:, :, part], sight, SCALE, KERNEL, state)
        torch.testing.assert_close(token, expected[:, :, i : i + 1], atol=1e-6, rtol=1e-5)


PARENTS = (-1, -1, 0, 0, 1, 2, 5, 5, 6)
LEVELS = (1, 1, 2, 2, 2, 3, 4, 4, 5)


def paths() -> list[list[int]]:
    """Every node of the tree with the nodes above it."""
    found = []
    for node in range(len(PARENTS)):
        path = [node]
        while PARENTS[path[0]] >= 0:
            path.insert(0, PARENTS[path[0]])
        found.append(path)
    return found


@pytest.mark.parametrize("straight", range(1, 4 * GROUP + 2))
@pytest.mark.parametrize("forgets", [False, True])
def test_each_branch_of_a_tree_is_the_text_that_it_writes(straight: int, forgets: bool) -> None:
    """A control that forgets the group which ends on a branch gives something else, wherever one does."""
    nodes = len(PARENTS)
    queries, keys, values = drawn(straight + nodes)
    depths, visible = tree_layout(straight, torch.tensor(PARENTS), torch.tensor(LEVELS), max(LEVELS))
    sight = Sight.of(visible, depths, depths, GROUP)
    if forgets:
        drafted = torch.arange(straight + nodes) >= straight
        sight = Sight(sight.within, sight.before & ~drafted, sight.distances)
    outputs = attend(queries, keys, values, sight, SCALE, KERNEL, None)
    differing = False
    for path in paths():
        rows = [*range(straight), *(straight + node for node in path)]
        expected = whole(queries[:, :, rows], keys[:, :, rows], values[:, :, rows])[:, :, -1]
        differing |= not torch.allclose(outputs[:, :, rows[-1]], expected, atol=1e-12)
    assert differing == forgets


def test_no_output_depends_on_a_later_token() -> None:
    queries, keys, values = drawn(8)
    before = whole(queries, keys, values)
    for later in range(1, 8):
        others = [part.clone() for part in (queries, keys, values)]
        for part in others:
            part[:, :, later:] = part[:, :, later:].flip(2) * 2
        assert torch.equal(whole(*others)[:, :, :later], before[:, :, :later])


def test_one_group_alone_is_squared_attention_and_the_first_tap_adds_the_value() -> None:
    queries, keys, values = drawn(5)
    nothing, zero = torch.zeros(4, 1, dtype=torch.float64), torch.zeros((), dtype=torch.float64)
    sight = Sight.of_text(5, 8, torch.device("cpu"))
    local = attend(queries, keys, values, sight, zero, nothing, None)
    repeated = [part.repeat_interleave(2, 1) for part in (keys, values)]
    expected = (queries @ repeated[0].mT).relu().square().tril() @ repeated[1]
    torch.testing.assert_close(local, expected)
    torch.testing.assert_close(attend(queries, keys, values, sight, zero, nothing + 1, None), local + repeated[1])


def test_vectors_get_norm_one_in_their_own_type() -> None:
    heads = normalised(torch.randn(2, 3, 4, 8).bfloat16())
    assert heads.dtype == torch.bfloat16
    torch.testing.assert_close(heads.float().norm(dim=-1), torch.ones(2, 3, 4), atol=0.01, rtol=0)
