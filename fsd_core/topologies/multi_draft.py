"""Several candidates per position: chains side by side."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, MultiDraftTopology, Verifier
from fsd_core.ops.sampling import draw, draw_several, greedy_distribution, likeliest
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.topologies.base import DraftTree, Source, TreeStructure


class MultiDraft:
    """``width`` chains for a text that stands alone in its batch. Their first tokens come about together, as
    ``sampling`` says; then each goes on by itself.

    Hu et al. 2025 (arXiv 2502.18779). Chains that begin alike are one way of the tree as far as they do: what follows
    is as many drafts of the position behind, each counted as often as it was drawn. On the CPU what they share is fed
    to the target once; elsewhere the host would have to wait to learn how much that is, and it is fed as drawn.
    """

    side_by_side: ClassVar[bool] = False
    drafts_bonus = False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> MultiDraft:
        """Drafts come about as the method's verifier asks."""
        assert isinstance(config.topology, MultiDraftTopology)
        assert isinstance(config.acceptance, Verifier)
        return cls(config.topology.length, config.topology.drafts, config.acceptance.sampling)

    def __init__(self, length: int, drafts: int, sampling: str) -> None:
        self.length, self.num_uniforms, self._sampling = length, drafts, sampling

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        if first is None:
            return None
        width = self.num_uniforms
        levels = uniforms.view(1, depth, width)
        tokens = self._first(first, levels[:, 0], greedy)  # [1,n]
        distribution = greedy_distribution(first.warped, width) if self._sampling == "greedy" else first.warped
        chains = torch.arange(width, device=tokens.device)
        there, above = tokens[0] >= 0, torch.full_like(chains, -1)
        drawn, parents = [tokens.clamp_min(0)], [torch.where(there, -1, -2)]
        warped, raw = [distribution.expand(width, -1)], [first.raw.expand(width, -1)]
        for level in range(1, depth):
            row = source.extend_level(drawn[-1], above)
            nodes = (level - 1) * width + _first_alike(parents[-1], drawn[-1])
            above = (level - 1) * width + chains
            drawn.append((row.warped.argmax(-1) if greedy else draw(row.warped, levels[0, level]))[None])
            parents.append(torch.where(there, nodes, -2))
            warped.append(row.warped)
            raw.append(row.raw)
        same = [level * width + _first_alike(*alike) for level, alike in enumerate(zip(parents, drawn, strict=True))]
        nodes, structure = _merged(torch.cat(parents), torch.cat(same), width)
        return DraftTree(torch.cat(drawn, 1)[:, nodes], depth, torch.cat(warped)[None], torch.cat(raw)[None], structure)

    def _first(self, first: DraftDistribution, uniforms: Tensor, greedy: bool) -> Tensor:
        """int64 [1,n], −1 where nothing is left to draw."""
        if not greedy:
            return draw_several(first.warped, uniforms, self._sampling)
        if self._sampling == "with_replacement":
            return first.raw.argmax(-1, keepdim=True).expand(-1, self.num_uniforms)
        return likeliest(first.raw, self.num_uniforms)


def _first_alike(parents: Tensor, tokens: Tensor) -> Tensor:
    """Of a level's nodes, which is the first that begins and ends as each. int64 [n], [1,n] → int64 [n]"""
    alike = (parents[:, None] == parents) & (tokens == tokens.T)
    return alike.long().argmax(1)


def _merged(parents: Tensor, same: Tensor, width: int) -> tuple[Tensor, TreeStructure]:
    """Which of the nodes that were drawn make the tree, and its structure. parents, same: int64 [depth·n], of each node
    what it follows, and the first that is the same."""
    every = torch.arange(len(parents), device=parents.device)
    if parents.device.type != "cpu":
        return every, TreeStructure(parents, 1 + every // width, every, every, every.view(-1, width))
    nodes = (same == every).nonzero()[:, 0]
    new_indices = torch.full_like(every, -1).scatter(0, nodes, torch.arange(len(nodes)))
    above = parents[nodes]
    above = torch.where(above < 0, above, new_indices[above.clamp_min(0)])
    return nodes, TreeStructure(above, 1 + nodes // width, nodes, nodes, new_indices[same].view(-1, width))
