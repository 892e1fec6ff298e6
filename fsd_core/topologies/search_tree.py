"""A tree of the likeliest paths, by what a drafter has looked up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, cast

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, SearchTreeTopology
from fsd_core.config.drafting.search_tree_topology import MCTS
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.transfer import to_device
from fsd_core.topologies.base import DraftTree, Lookup, Source, TreeStructure
from fsd_core.topologies.tree_search import Path, best_first, monte_carlo


class SearchTree:
    """Adaptix' tree (Liu et al. 2025, arXiv 2407.12021), for a text that is alone in its batch.

    The tree depends on the text and on what the drafter has looked up before, not on chance. So it is verified like
    any tree whose nodes were chosen, and a lossless rule is lossless at every temperature. (The published check draws a
    token for each path and keeps the longest match, which favours the drafted tokens.)
    """

    side_by_side: ClassVar[bool] = False
    num_uniforms, drafts_bonus = 0, False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> SearchTree:
        assert isinstance(config.topology, SearchTreeTopology)
        return cls(config.topology)

    def __init__(self, settings: SearchTreeTopology) -> None:
        self.length, self._settings = settings.length, settings

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        if first is None:
            return None
        lookup, known = cast(Lookup, source), dict[Path, Sequence[tuple[int, float]]]()

        def successors(path: Path) -> Sequence[tuple[int, float]]:
            if path not in known:
                known[path] = lookup.successors(path)
            return known[path]

        nodes = self._settings.max_fed_tokens
        if self._settings.search == MCTS:
            found = [*monte_carlo(successors, depth, nodes, self._settings.iterations)]
        else:
            found = [*best_first(successors, depth, nodes)]
        ranks: dict[Path, int] = {
            (*path, token): rank for path, after in known.items() for rank, (token, _) in enumerate(after)
        }
        paths = sorted(found, key=lambda path: (len(path), path[:-1], ranks[path]))
        return _tree(paths, known, first.raw)


def _tree(paths: Sequence[Path], known: dict[Path, Sequence[tuple[int, float]]], like: Tensor) -> DraftTree | None:
    """Return the tree of ``paths``, which come level by level and siblings by rank. ``like``: a distribution, [1,V]."""
    if not paths:
        return None
    index = {path: i for i, path in enumerate(paths)}
    parents = [path[:-1] for path in paths]
    rows = {path: row for row, path in enumerate(dict.fromkeys(parents))}
    entries = [(row, *successor) for path, row in rows.items() for successor in known[path]]
    of_row, tokens, probabilities = zip(*entries, strict=True)
    numbers = [
        (path[-1], index.get(parent, -1), len(path), rows[parent]) for path, parent in zip(paths, parents, strict=True)
    ]
    drafted, above, levels, drawn_from = to_device(torch.tensor(numbers), like.device).unbind(1)
    distributions = like.new_zeros(1, len(rows), like.shape[-1])
    places = to_device(torch.tensor([of_row, tokens]), like.device)
    distributions[0, places[0], places[1]] = to_device(torch.tensor(probabilities, dtype=like.dtype), like.device)
    structure = TreeStructure(above, levels, drawn_from, torch.arange(len(paths), device=like.device))
    return DraftTree(drafted[None], len(paths[-1]), distributions, distributions, structure)
