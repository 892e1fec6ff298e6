"""One candidate per position: the structure of the original speculative decoding."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.config import ChainTopology, DecodingConfig
from fsd_core.config.drafting.topologies import LAST_TOKEN, WHOLE_CHAIN
from fsd_core.ops.sampling import draw
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.transfer import to_host
from fsd_core.topologies.base import DraftTree, Source


class Chain:
    """A tree with one child per node.

    With ``length_by`` ``token`` a text stops drafting after the first token xᵢ with q(xᵢ) < ``least_probability``. With
    ``chain`` it stops after the first with q(x₁) ··· q(xᵢ) < ``least_probability``. q is raw, so it tells as much at
    temperature 0. xᵢ stays in the draft: whether xᵢ₊₁ is drafted depends on x₁ … xᵢ alone, the verification of these
    is the same either way, and the token after xᵢ comes from the target. So a lossless rule stays lossless. (Were
    xᵢ left out too, position i would be verified only for some of its tokens, and the law would be another.)

    Each drafted token's probability is then read by the host. On a CPU that costs nothing. On a GPU the host waits for
    the draft at each position, where a chain of fixed length waits once a round.
    """

    side_by_side: ClassVar[bool] = True
    num_uniforms, drafts_bonus = 1, True

    @classmethod
    def for_method(cls, config: DecodingConfig) -> Chain:
        assert isinstance(config.topology, ChainTopology)
        by, least = config.topology.length_by, config.topology.least_probability
        return cls(config.topology.length, by == WHOLE_CHAIN, least if by in (LAST_TOKEN, WHOLE_CHAIN) else None)

    def __init__(self, length: int, whole_chain: bool = False, least_probability: float | None = None) -> None:
        self.length, self._whole_chain, self._least = length, whole_chain, least_probability

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        distributions, tokens, distribution = [], [], first
        endings = None if self._least is None else _Endings(self._whole_chain, self._least)
        while distribution is not None:
            token = distribution.warped.argmax(-1) if greedy else draw(distribution.warped, uniforms[:, len(tokens)])
            distributions.append(distribution)
            tokens.append(token)
            if len(tokens) == depth or (endings is not None and endings.all_end_with(token, distribution.raw)):
                break
            distribution = source.extend(token)
        if not tokens:
            return None
        return DraftTree(
            tokens=torch.stack(tokens, 1),
            depth=len(tokens),
            warped=torch.stack([distribution.warped for distribution in distributions], 1),
            raw=torch.stack([distribution.raw for distribution in distributions], 1),
            lengths=None if endings is None else [length or len(tokens) for length in endings.lengths],
        )


class _Endings:
    """Where the drafts of B texts end. ``lengths``: their tokens, 0 for one that has not ended."""

    def __init__(self, whole_chain: bool, least: float) -> None:
        self._whole_chain, self._least = whole_chain, least
        self._probability: Tensor | None = None  # of the chains so far, [B]
        self._drafted = 0
        self.lengths: list[int] = []

    def all_end_with(self, token: Tensor, raw: Tensor) -> bool:
        """Return whether each text's draft ends with its ``token``, or has ended. int64 [B], raw: [B,V]"""
        probability = raw.gather(-1, token[:, None])[:, 0]
        if self._whole_chain and self._probability is not None:
            probability = probability * self._probability
        self._probability, self._drafted = probability, self._drafted + 1
        lengths = self.lengths or [0] * len(token)
        ends = [value < self._least for value in to_host(probability)]
        self.lengths = [length or (self._drafted if end else 0) for length, end in zip(lengths, ends, strict=True)]
        return all(self.lengths)
