"""Several candidates per position: parallel chains."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, MultiDraftTopology, Verifier
from fsd_core.ops.sampling import draw, draw_several, greedy_distribution, likeliest
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.topologies.base import DraftTree, Source, TreeStructure


class MultiDraft:
    """``width`` chains for a text that is alone in its batch. Their first tokens are drawn together, as ``sampling``
    says. Then each chain continues independently.

    Hu et al. 2025 (arXiv 2502.18779). Chains with a common prefix share one path of the tree. After it come as many
    drafts of the next position, each counted as often as it was drawn. On the CPU the shared part is fed to the target
    once. On other devices the host would have to wait to learn its length, so every chain is fed whole.
    """

    side_by_side: ClassVar[bool] = False
    drafts_bonus = False

    @classmethod
    def for_method(cls, config: DecodingConfig) -> MultiDraft:
        """Return the topology. The method's verifier chooses how drafts are sampled."""
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
        exists, fed_parents = tokens[0] >= 0, torch.full_like(chains, -1)
        sampled, parents = [tokens.clamp_min(0)], [torch.where(exists, -1, -2)]
        warped, raw = [distribution.expand(width, -1)], [first.raw.expand(width, -1)]
        for level in range(1, depth):
            draft = source.extend_level(sampled[-1], fed_parents)
            nodes = (level - 1) * width + _first_equal(parents[-1], sampled[-1])
            fed_parents = (level - 1) * width + chains
            sampled.append((draft.warped.argmax(-1) if greedy else draw(draft.warped, levels[0, level]))[None])
            parents.append(torch.where(exists, nodes, -2))
            warped.append(draft.warped)
            raw.append(draft.raw)
        same = [level * width + _first_equal(*pair) for level, pair in enumerate(zip(parents, sampled, strict=True))]
        nodes, structure = _merge(torch.cat(parents), torch.cat(same), width)
        return DraftTree(
            torch.cat(sampled, 1)[:, nodes], depth, torch.cat(warped)[None], torch.cat(raw)[None], structure
        )

    def _first(self, first: DraftDistribution, uniforms: Tensor, greedy: bool) -> Tensor:
        """Return the chains' first tokens, int64 [1,n], −1 if nothing remains to draw."""
        if not greedy:
            return draw_several(first.warped, uniforms, self._sampling)
        if self._sampling == "with_replacement":
            return first.raw.argmax(-1, keepdim=True).expand(-1, self.num_uniforms)
        return likeliest(first.raw, self.num_uniforms)


def _first_equal(parents: Tensor, tokens: Tensor) -> Tensor:
    """Return for each node of a level the first with the same parent and token. int64 [n], [1,n] → int64 [n]"""
    equal = (parents[:, None] == parents) & (tokens == tokens.T)
    return equal.long().argmax(1)


def _merge(parents: Tensor, same: Tensor, width: int) -> tuple[Tensor, TreeStructure]:
    """Return which drawn nodes make up the tree, and its structure. parents, same: int64 [depth·n], each node's parent,
    and the first node equal to it."""
    drawn = torch.arange(len(parents), device=parents.device)
    if parents.device.type != "cpu":
        return drawn, TreeStructure(parents, 1 + drawn // width, drawn, drawn, drawn.view(-1, width))
    nodes = (same == drawn).nonzero()[:, 0]
    new_indices = torch.full_like(drawn, -1).scatter(0, nodes, torch.arange(len(nodes)))
    tree_parents = parents[nodes]
    tree_parents = torch.where(tree_parents < 0, tree_parents, new_indices[tree_parents.clamp_min(0)])
    return nodes, TreeStructure(tree_parents, 1 + nodes // width, nodes, nodes, new_indices[same].view(-1, width))
