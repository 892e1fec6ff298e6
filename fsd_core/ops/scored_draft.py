"""The distributions at a number of positions, as acceptance rules see them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.ops.divergences import divergence


@dataclass(frozen=True, slots=True)
class DraftDistribution:
    """The draft's next-token distribution at one position; a copied token is a point mass.

    ``warped``: [B, V] what the drafter samples from. ``raw``: [B, V] plain softmax at temperature 1.
    """

    warped: Tensor
    raw: Tensor


@dataclass(frozen=True, slots=True)
class ScoredDraft:
    """Target and draft at R positions, and the token drafted there.

    tokens [B,R] int64; target, draft: [B,R,V] warped; target_raw, draft_raw: [B,R,V] raw; allowed: bool [B,R,V] or
    ``None``: the tokens that the target's top-k and top-p leave.
    """

    tokens: Tensor
    target: Tensor
    draft: Tensor
    target_raw: Tensor
    draft_raw: Tensor
    allowed: Tensor | None = None

    def of_token(self, probabilities: Tensor) -> Tensor:
        """Probability of each drafted token. [B,R,V] → [B,R]"""
        return probabilities.gather(-1, self.tokens[..., None]).squeeze(-1)

    def divergence(self, name: str, noise: Tensor, top_k: int = 50) -> Tensor:
        """The raw distributions' divergence at each position, [B,R]; see :mod:`fsd_core.ops.divergences`."""
        return divergence(name, self.target_raw, self.draft_raw, noise, top_k)

    def at(self, position: Tensor) -> ScoredDraft:
        """One position of each row of the batch. ``position``: int64 [B] → ScoredDraft with R = 1."""
        batch = torch.arange(position.shape[0], device=position.device)

        def pick(x: Tensor) -> Tensor:
            return x[batch, position][:, None]

        return ScoredDraft(
            pick(self.tokens), pick(self.target), pick(self.draft), pick(self.target_raw), pick(self.draft_raw),
            None if self.allowed is None else pick(self.allowed),
        )  # fmt: skip
