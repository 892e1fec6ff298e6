"""Trees that grow as drafts do: searched and dynamic shapes against their definitions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch

from fsd_core.config import Fuzzy, FuzzyReducible, PromptLookupDrafter, SamplingConfig, SearchTreeTopology, Speculative
from fsd_core.config.drafting import continuations
from fsd_core.decoding.verification import SingleDraftNode, verify_tree
from fsd_core.ops.distributions import DraftDistribution, js
from fsd_core.ops.kernels import TreeBuilder, ancestors
from fsd_core.testing import fit
from fsd_core.topologies import DraftTree, DynamicTree, Path, SearchTree, TreeStructure, best_first, monte_carlo
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


TABLE = {
    (1, 2): {3: 0.6, 4: 0.4}, (2, 3): {5: 0.7, 6: 0.3}, (2, 4): {5: 0.5, 7: 0.5}, (3, 5): {8: 1.0},
    (3, 6): {8: 0.5, 9: 0.5}, (4, 5): {9: 1.0}, (4, 7): {8: 1.0},
}  # fmt: skip
FOUND = {"3": .6, "35": .42, "358": .42, "4": .4, "45": .2, "47": .2, "459": .2, "478": .2, "36": .18, "368": .09,
         "369": .09}  # fmt: skip


def after(path: Sequence[int]) -> list[tuple[int, float]]:
    """What may follow 1 2 and a path."""
    pair = [1, 2, *path][-2:]
    return list(TABLE.get((pair[0], pair[1]), {}).items())


def written(paths: dict[Path, float] | dict[Path, int]) -> dict[str, float]:
    return {"".join(map(str, path)): value for path, value in paths.items()}


def test_best_first_takes_the_largest_products() -> None:
    found = written(best_first(after, 3, 20))
    assert found == pytest.approx(FOUND)
    assert list(found) == list(FOUND)
    for nodes in range(1, 12):
        assert list(written(best_first(after, 3, nodes))) == list(FOUND)[:nodes]
    assert list(written(best_first(after, 2, 20))) == ["3", "35", "4", "45", "47", "36"]
    assert best_first(lambda path: (), 3, 20) == {}


def test_monte_carlo_visits_in_proportion_to_probability() -> None:
    visits = {"3": 92, "35": 68, "358": 67, "4": 58, "45": 29, "47": 29, "478": 29, "459": 28, "36": 23, "368": 12,
              "369": 11}  # fmt: skip
    assert written(monte_carlo(after, 3, 20, 150)) == visits
    assert written(monte_carlo(after, 3, 3, 8)) == {"3": 5, "35": 3, "4": 3}
    assert {*monte_carlo(after, 3, 8, 500)} == {*best_first(after, 3, 8)}
    assert monte_carlo(lambda path: (), 3, 20, 9) == {}


class Looked:
    """A drafter that knows a table alone."""

    def successors(self, path: Sequence[int]) -> list[tuple[int, float]]:
        return after(path)

    def extend(self, token: torch.Tensor) -> None:
        raise AssertionError("a search tree is fed to the target alone")

    def extend_level(self, tokens: torch.Tensor, parents: torch.Tensor) -> DraftDistribution:
        raise AssertionError("a search tree is fed to the target alone")


@pytest.mark.parametrize("search", ["best-first", "mcts"])
def test_a_tree_is_what_was_found_level_by_level_and_by_rank(search: str) -> None:
    topology = SearchTree(SearchTreeTopology.checked(search=search, total_tokens=10))
    first = DraftDistribution(torch.eye(10)[3:4], torch.eye(10)[3:4])
    tree = topology.grow(first, Looked(), 3, torch.zeros(1, 0), False)
    assert tree is not None
    assert tree.structure is not None
    structure = tree.structure
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens[0].tolist(), structure.parents.tolist(), strict=True):
        paths.append((*paths[parent], token) if parent >= 0 else (token,))
    assert ["".join(map(str, path)) for path in paths] == ["3", "4", "35", "36", "45", "47", "358", "459", "478"]
    assert structure.levels.tolist() == [1, 1, 2, 2, 2, 2, 3, 3, 3]
    assert structure.fed.tolist() == [*range(9)]
    assert tree.depth == 3
    assert tree.raw is tree.warped
    for path, row in zip(paths, structure.drawn_from.tolist(), strict=True):
        expected = dict(after(path[:-1]))
        assert tree.raw[0, row].tolist() == pytest.approx([expected.get(token, 0.0) for token in range(10)])
    shallow = topology.grow(first, Looked(), 1, torch.zeros(1, 0), False)
    assert shallow is not None
    assert (shallow.depth, shallow.tokens.tolist()) == (1, [[3, 4]])
    assert topology.grow(None, Looked(), 3, torch.zeros(1, 0), False) is None


def test_prompt_lookup_counts_what_followed_the_longest_ngram() -> None:
    drafter = PromptLookupDrafter()
    text = [1, 2, 3, 4, 1, 2, 3, 5, 9, 2, 3, 7, 1, 2, 3]
    assert list(drafter.successors(text)) == [(5, 0.5), (4, 0.5)]  # of equally frequent ones the latest
    assert list(drafter.successors([3, 8, 3, 7, 3, 7, 3])) == [(7, 1.0)]
    assert list(drafter.successors([1, 2, 1, 3, 1, 2, 1])) == [(3, 1.0)]
    assert list(PromptLookupDrafter(max_ngram=1).successors([1, 2, 1, 3, 1, 2, 1])) == [(2, 2 / 3), (3, 1 / 3)]
    assert list(drafter.successors([1, 2, 3])) == list(drafter.successors([1])) == []


def test_continuations_are_those_of_a_plain_search() -> None:
    generator = torch.Generator().manual_seed(0)
    for length in range(1, 40):
        text = torch.randint(3, (length,), generator=generator).tolist()
        plain: list[int] = []
        for n in range(min(4, length - 1), 0, -1):
            plain = [i for i in range(length - 1, n - 1, -1) if text[i - n : i] == text[length - n :]]
            if plain:
                break
        assert continuations(text, 4) == plain


def test_its_label_names_its_size_and_another_search() -> None:
    assert SearchTreeTopology().label_parts() == ["search tree 24", ""]
    assert SearchTreeTopology(search="mcts", total_tokens=9).label_parts() == ["search tree 9", "mcts 150"]
