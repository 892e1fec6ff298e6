"""Search trees: the searches against worked examples, and the tree that is made of what they find."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from fsd_core.config import PromptLookupDrafter, SearchTreeTopology
from fsd_core.config.drafting import continuations
from fsd_core.ops.distributions import DraftDistribution
from fsd_core.topologies import Path, SearchTree, best_first, monte_carlo

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
    for size in range(1, 40):
        text = torch.randint(3, (size,), generator=generator).tolist()
        plain: list[int] = []
        for n in range(min(4, size - 1), 0, -1):
            plain = [i for i in range(size - 1, n - 1, -1) if text[i - n : i] == text[size - n :]]
            if plain:
                break
        assert continuations(text, 4) == plain


def test_its_label_names_its_size_and_another_search() -> None:
    assert SearchTreeTopology().label_parts() == ["search tree 24", ""]
    assert SearchTreeTopology(search="mcts", total_tokens=9).label_parts() == ["search tree 9", "mcts 150"]
