"""Grouped linear attention: its formula, by hand and in its three forms, and what no output depends on."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from fsd_core.ops.kernels import Sight, attend, folded, normalised, tree_layout

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
