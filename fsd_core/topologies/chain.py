"""One candidate per position: the structure of the original speculative decoding."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.config import ChainTopology, DecodingConfig
from fsd_core.ops.sampling import draw
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.topologies.base import DraftTree, Source


class Chain:
    """A tree with one child per node."""

    side_by_side: ClassVar[bool] = True
    num_uniforms, drafts_bonus = 1, True

    @classmethod
    def for_method(cls, config: DecodingConfig) -> Chain:
        assert isinstance(config.topology, ChainTopology)
        return cls(config.topology.length)

    def __init__(self, length: int) -> None:
        self.length = length

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        distributions, tokens, distribution = [], [], first
        while distribution is not None:
            token = distribution.warped.argmax(-1) if greedy else draw(distribution.warped, uniforms[:, len(tokens)])
            distributions.append(distribution)
            tokens.append(token)
            if len(tokens) == depth:
                break
            distribution = source.extend(token)
        if not tokens:
            return None
        return DraftTree(
            tokens=torch.stack(tokens, 1),
            depth=len(tokens),
            warped=torch.stack([distribution.warped for distribution in distributions], 1),
            raw=torch.stack([distribution.raw for distribution in distributions], 1),
        )
