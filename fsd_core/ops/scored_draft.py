"""The distributions at a number of positions, as acceptance rules see them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.ops.divergences import divergence, entropy
from fsd_core.ops.mentoring import mentored


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
    ``None``: the tokens that the target's top-k and top-p leave. The drafted tokens were drawn from ``draft``; it is a
    point mass where they were bound to be drafted.
    """

    tokens: Tensor
    target: Tensor
    draft: Tensor
    target_raw: Tensor
    draft_raw: Tensor
    allowed: Tensor | None = None
    logits: Tensor | None = None
    """of the target, [B,R,V]; ``None`` where nobody has them"""
    greedy: bool = False
    """whether the temperature is 0, so that ``target`` is a point mass"""
    lengths: Tensor | None = None
    """how many positions are each text's own, int64 [B]; ``None`` where all are"""
    undrawn: Tensor | None = None
    """the draft's warped distribution, [B,R,V], where ``draft`` is a point mass for want of drawing, as on a tree"""

    @property
    def graded_target(self) -> Tensor:
        """p for rules that ask how likely other tokens are: the warped one, or at temperature 0 the raw. [B,R,V]"""
        return self.target_raw if self.greedy else self.target

    @property
    def draft_distribution(self) -> Tensor:
        """q, warped, whether the tokens were drawn from it or not. [B,R,V]"""
        return self.draft if self.undrawn is None else self.undrawn

    def of_token(self, probabilities: Tensor) -> Tensor:
        """Probability of each drafted token. [B,R,V] → [B,R]"""
        return probabilities.gather(-1, self.tokens[..., None]).squeeze(-1)

    def divergence(self, name: str, noise: Tensor, top_k: int = 50) -> Tensor:
        """The raw distributions' divergence at each position, [B,R]; see :mod:`fsd_core.ops.divergences`."""
        return divergence(name, self.target_raw, self.draft_raw, noise, top_k)

    @property
    def graded_entropy(self) -> Tensor:
        """Of :attr:`graded_target` at each position, in nats. [B,R]"""
        return entropy(self.graded_target)

    @property
    def raw_entropies(self) -> tuple[Tensor, Tensor]:
        """Of the target and of the draft, raw, in nats. [B,R] each"""
        return entropy(self.target_raw), entropy(self.draft_raw)

    @property
    def variation(self) -> Tensor:
        """Total variation of the two warped distributions. [B,R]"""
        return (self.target - self.draft_distribution).abs().sum(-1) / 2

    def mentored(self, budget: float) -> Tensor:
        """The distribution within ``budget`` nats of the target's that overlaps most with the draft's, [B,R,V]; see
        :mod:`fsd_core.ops.mentoring`."""
        return mentored(self.target, self.draft, budget)

    def at(self, position: Tensor) -> ScoredDraft:
        """One position of each row of the batch. ``position``: int64 [B] → ScoredDraft with R = 1."""
        batch = torch.arange(position.shape[0], device=position.device)

        def pick(x: Tensor) -> Tensor:
            return x[batch, position][:, None]

        def pick_known(x: Tensor | None) -> Tensor | None:
            return None if x is None else pick(x)

        return ScoredDraft(
            pick(self.tokens), pick(self.target), pick(self.draft), pick(self.target_raw), pick(self.draft_raw),
            pick_known(self.allowed), pick_known(self.logits), self.greedy, undrawn=pick_known(self.undrawn),
        )  # fmt: skip
