"""What a verification is: what the target is fed of a proposal, and what is written by what it answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from fsd_core.decoding.proposal import DraftProposal
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.sampling import UniformStream
from fsd_core.ops.tree_attention import TreeAttention


class Feed(NamedTuple):
    """What the target is fed: tokens, int64 [B,S], of the last ``logits_to_keep`` of which logits are wanted."""

    tokens: Tensor
    logits_to_keep: int
    tree_attention: TreeAttention | None = None


class Verification(Protocol):
    """Decides which drafted tokens are kept, and what is written behind them. Holds no state of a text."""

    judges_bonus: bool
    """whether the token after a fully accepted draft is drafted and judged like the others"""
    greedy_draft: bool
    """whether the draft proposes its likeliest token whatever the sampling settings"""

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        """What the target is fed. ``uncached``: int64 [B,S], the tokens of the texts that it has not been fed;
        ``cached``: how many it has, of the longest."""
        ...

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        """``logits``: of the target, [B,logits_to_keep,V], as :meth:`feed` asked for them. ``uniforms``: of each
        text, which takes as many as its own positions need."""
        ...


def probability_of(probabilities: Tensor, tokens: Tensor) -> Tensor:
    """[B,R,V], int64 [B,R] → [B,R]"""
    return probabilities.gather(-1, tokens[..., None]).squeeze(-1)
