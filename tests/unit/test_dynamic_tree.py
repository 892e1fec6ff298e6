"""The shape of a dynamic tree against its definition, and what a judge makes of a node with several children."""

from __future__ import annotations

import math

import pytest
import torch

from fsd_core.config import Fuzzy, FuzzyReducible, SamplingConfig, Speculative
from fsd_core.decoding.verification import SingleDraftNode, verify_tree
from fsd_core.ops.distributions import DraftDistribution, js
from fsd_core.ops.kernels import TreeBuilder, ancestors
from fsd_core.testing import fit
from fsd_core.topologies import DraftTree, DynamicTree, TreeStructure
from tests.tools.sizes import size

VOCABULARY = 6
MANY = size(1000, 6000)


class Table:
    """A drafter whose distribution behind a way is a function of the way alone; remembers what it was fed."""

    def __init__(self, seed: int, flat: bool = False) -> None:
        self.seed, self.flat, self.fed = seed, flat, []

    def distribution(self, way: tuple[int, ...]) -> torch.Tensor:
        if self.flat:
            return torch.full((VOCABULARY,), 1 / VOCABULARY)
        generator = torch.Generator().manual_seed(hash((self.seed, way)) % 2**31)
        return (torch.randn(VOCABULARY, generator=generator) * 2).softmax(-1)

    def first(self) -> DraftDistribution:
        return self.row([()])

    def row(self, ways) -> DraftDistribution:
        distributions = torch.stack([self.distribution(way) for way in ways])
        return DraftDistribution(distributions, distributions)

    def extend(self, token):
        raise AssertionError("a tree is fed level by level")

    def extend_level(self, tokens, parents) -> DraftDistribution:
        ways = [
            ((*self.fed[parent], token) if parent >= 0 else (token,))
            for token, parent in zip(tokens[0].tolist(), parents.tolist(), strict=True)
        ]
        self.fed += ways
        return self.row(ways)


def ways_of(tree: DraftTree) -> list[tuple[int, ...]]:
    assert tree.structure is not None
    found: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens[0].tolist(), tree.structure.parents.tolist(), strict=True):
        found.append((*found[parent], token) if parent >= 0 else (token,))
    return found


def reference(table: Table, length: int, top_k: int, nodes: int) -> list[tuple[int, ...]]:
    """The definition, in Python: expand the best of the frontier, then rerank all."""
    score = {}

    def children(way):
        ranked = sorted(range(VOCABULARY), key=lambda x: -float(table.distribution(way)[x]))[:top_k]
        for x in ranked:
            score[(*way, x)] = score.get(way, 0.0) + math.log(float(table.distribution(way)[x]))
        return [(*way, x) for x in ranked]

    frontier = children(())
    for _ in range(length - 1):
        found = [way for parent in frontier for way in children(parent)]
        frontier = sorted(found, key=lambda way: -score[way])[:top_k]
    return sorted(score, key=lambda way: (-score[way], len(way)))[:nodes]


@pytest.mark.parametrize(("length", "top_k", "total"), [(1, 3, 3), (3, 2, 5), (4, 3, 14), (4, 6, 60), (6, 4, 256)])
def test_it_holds_the_ways_that_the_definition_finds(length, top_k, total):
    for seed in range(8):
        table = Table(seed)
        tree = DynamicTree(length, top_k, total).grow(table.first(), table, length, torch.zeros(1, 0), False)
        assert tree is not None
        assert tree.structure is not None
        ways = ways_of(tree)
        assert set(ways) == set(reference(table, length, top_k, total - 1))
        assert len(ways) == len(set(ways)) <= total - 1
        assert tree.structure.levels.tolist() == [len(way) for way in ways]
        rows = zip(tree.structure.parents.tolist(), tree.structure.drawn_from.tolist(), strict=True)
        for i, (parent, row) in enumerate(rows):
            assert parent < i
            torch.testing.assert_close(tree.raw[0, row], table.distribution(ways[i][:-1]))
        for parent in {way[:-1] for way in ways}:
            chances = [float(table.distribution(parent)[way[-1]]) for way in ways if way[:-1] == parent]
            assert chances == sorted(chances, reverse=True)
        assert tree.structure.fed is not None
        for i, place in enumerate(tree.structure.fed.tolist()):
            assert place < 0 or table.fed[place] == ways[i]
            if i in tree.structure.parents.tolist():
                assert place >= 0


def test_where_all_is_equal_no_child_loses_its_parent():
    table = Table(0, flat=True)
    tree = DynamicTree(5, 4, 30).grow(table.first(), table, 5, torch.zeros(1, 0), False)
    assert tree is not None
    assert len(ways_of(tree)) == 29


def test_growth_sees_what_the_parents_tell():
    builder = TreeBuilder(7)
    builder.add(torch.tensor([-1, -1]))
    builder.add(torch.tensor([1, 0]))
    tree_attention = builder.add(torch.tensor([3, 2, 3]))
    parents = torch.tensor([-1, -1, 1, 0, 3, 2, 3])
    assert torch.equal(tree_attention.attends_to, ancestors(parents, 3))
    assert tree_attention.position_ids(7).tolist() == [[7, 7, 8, 8, 9, 9, 9]]


def _node(p: torch.Tensor, q: torch.Tensor, children: list[int]) -> tuple[DraftTree, TreeStructure, torch.Tensor]:
    """A tree of one level, and logits of a target that says ``p`` everywhere."""
    count = len(children)
    zeros = torch.zeros(count, dtype=torch.int64)
    structure = TreeStructure(zeros - 1, zeros + 1, zeros, zeros - 1)
    tree = DraftTree(torch.tensor([children]), 1, q[None, None], q[None, None], structure)
    return tree, structure, p.log().expand(1, count + 1, -1)


def _emitted(p, q, children, rule, temperature: float = 1.0, count: int = MANY) -> tuple[torch.Tensor, float]:
    """First tokens that are written, and how often they were drafted."""
    tree, structure, logits = _node(p, q, children)
    sampling = SamplingConfig(temperature=temperature)
    verifier, uniforms = SingleDraftNode(rule, sampling), torch.rand(count, 2, 3, dtype=torch.float64)
    outcomes = [verify_tree(tree, structure, logits, verifier, sampling, u) for u in uniforms]
    return torch.stack([o.emitted[0, 0] for o in outcomes]), sum(int(o.count) for o in outcomes) / count


def _siblings(p: torch.Tensor, children: list[int]) -> float:
    """Chance that one of the children is kept by the walk along them: accept with p, else p(x) ← 0 and renormalise."""
    left, passed = p.double().clone(), 1.0
    for x in children:
        passed *= 1 - float(left[x])
        left[x] = 0
        left /= left.sum()
    return 1 - passed


@pytest.mark.wide
def test_at_a_node_with_several_children_the_distribution_is_the_targets():
    """χ²; what is kept agrees with the walk along the siblings."""
    torch.manual_seed(0)
    p, q = (torch.randn(VOCABULARY) * 1.5).softmax(-1), (torch.randn(VOCABULARY) * 1.5).softmax(-1)
    children = q.argsort(descending=True)[:3].tolist()
    tokens, kept = _emitted(p, q, children, Speculative())
    assert fit(tokens, p) > 1e-4
    assert kept == pytest.approx(_siblings(p, children), abs=2 / MANY**0.5)
    assert _siblings(p, children) == pytest.approx(float(p[children].sum()))
    lossy, _ = _emitted(p, q, children, Fuzzy(threshold=0.69))
    assert fit(lossy, p) < 1e-9


@pytest.mark.parametrize("rule", [Fuzzy, FuzzyReducible])
def test_a_fuzzy_rule_gates_a_node_by_its_own_divergence(rule):
    torch.manual_seed(1)
    p, q = (torch.randn(VOCABULARY) * 1.5).softmax(-1), (torch.randn(VOCABULARY) * 1.5).softmax(-1)
    d, best = float(js(p, q)), q.argsort(descending=True)[:3].tolist()
    near, kept = _emitted(p, q, best, rule(threshold=d * 1.01), count=200)
    assert set(near.tolist()) == {best[0]}
    assert kept == 1.0
    far, _ = _emitted(p, q, best, rule(threshold=d * 0.99))
    assert fit(far, p) > 1e-4
