"""The interface of a verification: the target's input for a proposal, and the tokens written from its logits."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from torch import Tensor

from fsd_core.decoding.proposal import DraftProposal
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.sampling import UniformStream
from fsd_core.ops.tree_attention import TreeAttention


class Feed(NamedTuple):
    """Input of the target: tokens, int64 [B,S]. Logits are returned for the last ``logits_to_keep``."""

    tokens: Tensor
    logits_to_keep: int
    tree_attention: TreeAttention | None = None


class Verification(Protocol):
    """Decides which drafted tokens are accepted, and what is written after them. Holds no state of a text."""

    judges_bonus: bool
    """whether the token after a fully accepted draft is drafted and judged like the others"""
    greedy_draft: bool
    """whether the draft proposes its likeliest token whatever the sampling settings"""

    def feed(self, uncached: Tensor, proposal: DraftProposal, cached: int) -> Feed:
        """Return the target's input. ``uncached``: int64 [B,S], the tokens of the texts that it has not been fed.
        ``cached``: how many it has been fed, of the longest text."""
        ...

    def verify(self, proposal: DraftProposal, logits: Tensor, uniforms: Sequence[UniformStream]) -> RoundResult:
        """Return the round's result. ``logits``: of the target, [B,logits_to_keep,V], as :meth:`feed` requested.
        ``uniforms``: one stream for each text, which takes as many as its own positions need."""
        ...


def probability_of(probabilities: Tensor, tokens: Tensor) -> Tensor:
    """Return the probability of each token. [B,R,V], int64 [B,R] → [B,R]"""
    return probabilities.gather(-1, tokens[..., None]).squeeze(-1)
