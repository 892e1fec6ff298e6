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
    """log-probability of the path to the node, under the draft"""
    parents: Tensor
    """indices among the candidates, −1 for the text"""
    levels: Tensor
    drawn_from: Tensor

    def and_(self, more: _Candidates) -> _Candidates:
        return _Candidates(*(torch.cat(pair) for pair in zip(self, more, strict=True)))


class DynamicTree:
    """EAGLE-2's tree (Li et al. 2024, arXiv 2406.16858, §4.1), for a text that is alone in its batch.

    Expand: take the ``top_k`` likeliest tokens. Then ``length`` − 1 times (their ``depth``) take the ``top_k``
    likeliest after each node of the frontier; the ``top_k`` best by score become the next frontier. Rerank: keep the
    best by score, as many as make ``total_tokens`` with the root. A node's score is the draft's probability of the
    whole path to it, so no child is better than its parent, and if they are equal the parent comes first. Ranks are by
    the raw distribution and nothing is sampled, so the proposed tokens do not depend on chance.
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
        parents = torch.full_like(frontier, -1)  # feeding indices of the frontier's parents
        fed = torch.full_like(frontier, -1)  # feeding index of each candidate
        for level in range(1, depth):
            start = (level - 1) * width
            fed[frontier] = torch.arange(start, start + width, device=fed.device)
            distribution = source.extend_level(candidates.tokens[frontier][None], parents)
            warped.append(distribution.warped)
            raw.append(distribution.raw)
            more = _level(distribution.raw, width, frontier, candidates.scores[frontier], level, start + 1)
            best = more.scores.topk(width).indices
            frontier, parents = len(candidates.tokens) + best, start + best // width
            candidates, fed = candidates.and_(more), F.pad(fed, (0, len(more.tokens)), value=-1)
        return self._rerank(candidates, fed, torch.cat(warped)[None], torch.cat(raw)[None], depth)

    def _rerank(self, candidates: _Candidates, fed: Tensor, warped: Tensor, raw: Tensor, depth: int) -> DraftTree:
        """Return the tree of the best candidates, in their order: level by level, children of one parent by rank."""
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
    """Return the ``width`` likeliest tokens after each of F nodes, or after the text. raw: [F,V]; frontier,
    scores: [F]"""
    values, tokens = raw.log().topk(width, -1)
    rows = torch.arange(len(raw), device=raw.device)
    parents = torch.full_like(rows, -1) if frontier is None else frontier
    values = values if scores is None else values + scores[:, None]

    def of_each(x: Tensor) -> Tensor:
        return x[:, None].expand(-1, width).flatten()

    levels = torch.full_like(of_each(rows), level + 1)
    return _Candidates(tokens.flatten(), values.flatten(), of_each(parents), levels, of_each(rows + first_row))
