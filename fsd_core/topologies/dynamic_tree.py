"""A tree that is wide where the draft hesitates and deep where it is sure."""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import DecodingConfig, DynamicTreeTopology
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.topologies.base import DraftTree, Source, TreeStructure


class _Candidates(NamedTuple):
    """Nodes that may become part of the tree, [C] each; C grows level by level."""

    tokens: Tensor
    scores: Tensor
    """logarithm of the draft's probability of the way to the node"""
    parents: Tensor
    """among the candidates, −1 for the text"""
    levels: Tensor
    drawn_from: Tensor

    def and_(self, more: _Candidates) -> _Candidates:
        return _Candidates(*(torch.cat(pair) for pair in zip(self, more, strict=True)))


class DynamicTree:
    """EAGLE-2's (Li et al. 2024, arXiv 2406.16858, §4.1), for a text that stands alone in its batch.

    Expand: the ``top_k`` likeliest tokens; then ``length`` − 1 times (their ``depth``) the ``top_k`` likeliest behind
    each node of the frontier, of which the ``top_k`` best by score become the next frontier. Rerank: the best by score,
    as many as make ``total_tokens`` with the root. A node's score is the draft's probability of the whole way to it, so
    that no child is better than its parent; where they are equal the parent comes first. Ranks are by the raw
    distribution, and nothing is drawn: which tokens are proposed does not depend on chance.
    """

    side_by_side: ClassVar[bool] = False
    num_uniforms, drafts_bonus = 0, False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> DynamicTree:
        assert isinstance(config.topology, DynamicTreeTopology)
        return cls(config.topology.length, config.topology.top_k, config.topology.total_tokens)

    def __init__(self, length: int, top_k: int, total_tokens: int) -> None:
        self.length, self._top_k, self._nodes = length, top_k, total_tokens - 1

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        if first is None:
            return None
        candidates = _level(first.raw, min(self._top_k, first.raw.shape[-1]))
        warped, raw, width = [first.warped], [first.raw], len(candidates.tokens)
        frontier = torch.arange(width, device=candidates.tokens.device)  # among the candidates
        parents = torch.full_like(frontier, -1)  # of the frontier, among what was fed
        fed = torch.full_like(frontier, -1)  # of each candidate, its place among what was fed
        for level in range(1, depth):
            start = (level - 1) * width
            fed[frontier] = torch.arange(start, start + width, device=fed.device)
            row = source.extend_level(candidates.tokens[frontier][None], parents)
            warped.append(row.warped)
            raw.append(row.raw)
            more = _level(row.raw, width, frontier, candidates.scores[frontier], level, start + 1)
            best = more.scores.topk(width).indices
            frontier, parents = len(candidates.tokens) + best, start + best // width
            candidates, fed = candidates.and_(more), F.pad(fed, (0, len(more.tokens)), value=-1)
        return self._reranked(candidates, fed, torch.cat(warped)[None], torch.cat(raw)[None], depth)

    def _reranked(self, candidates: _Candidates, fed: Tensor, warped: Tensor, raw: Tensor, depth: int) -> DraftTree:
        """The best of the candidates, in their order: level by level, children of one parent by rank."""
        best = candidates.scores.sort(descending=True, stable=True).indices[: self._nodes].sort().values
        order = torch.arange(len(best), device=best.device)
        new_indices = torch.full_like(candidates.parents, -1).scatter(0, best, order)
        parents = candidates.parents[best]
        parents = torch.where(parents < 0, -1, new_indices[parents])
        structure = TreeStructure(parents, candidates.levels[best], candidates.drawn_from[best], fed[best])
        return DraftTree(candidates.tokens[best][None], depth, warped, raw, structure)


def _level(
    raw: Tensor,
    width: int,
    frontier: Tensor | None = None,
    scores: Tensor | None = None,
    level: int = 0,
    first_row: int = 0,
) -> _Candidates:
    """The ``width`` likeliest tokens behind each of F nodes, or behind the text. raw: [F,V]; frontier, scores: [F]"""
    values, tokens = raw.log().topk(width, -1)
    rows = torch.arange(len(raw), device=raw.device)
    parents = torch.full_like(rows, -1) if frontier is None else frontier
    values = values if scores is None else values + scores[:, None]

    def of_each(x: Tensor) -> Tensor:
        return x[:, None].expand(-1, width).flatten()

    levels = torch.full_like(of_each(rows), level + 1)
    return _Candidates(tokens.flatten(), values.flatten(), of_each(parents), levels, of_each(rows + first_row))
