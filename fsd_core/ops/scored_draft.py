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

    ``warped``: [B, V], sampled by the drafter. ``raw``: [B, V], plain softmax at temperature 1.
    """

    warped: Tensor
    raw: Tensor


@dataclass(frozen=True, slots=True)
class ScoredDraft:
    """Target and draft distributions at R positions, and the token drafted at each.

    tokens [B,R] int64; target, draft: [B,R,V] warped; target_raw, draft_raw: [B,R,V] raw; allowed: bool [B,R,V] or
    ``None``: the tokens that the target's top-k and top-p leave. The drafted tokens were drawn from ``draft``, which
    is a point mass if they were not sampled.
    """

    tokens: Tensor
    target: Tensor
    draft: Tensor
    target_raw: Tensor
    draft_raw: Tensor
    allowed: Tensor | None = None
    logits: Tensor | None = None
    """of the target, [B,R,V]; ``None`` if unavailable"""
    greedy: bool = False
    """whether the temperature is 0, so that ``target`` is a point mass"""
    lengths: Tensor | None = None
    """number of positions that belong to each text, int64 [B]; ``None`` if all do"""
    undrawn: Tensor | None = None
    """the draft's warped distribution, [B,R,V], if ``draft`` is a point mass for lack of sampling, as on a tree"""

    @property
    def graded_target(self) -> Tensor:
        """p for rules that rate other tokens: the warped one, or at temperature 0 the raw one. [B,R,V]"""
        return self.target_raw if self.greedy else self.target

    @property
    def draft_distribution(self) -> Tensor:
        """q, warped, whether or not the tokens were drawn from it. [B,R,V]"""
        return self.draft if self.undrawn is None else self.undrawn

    def of_token(self, probabilities: Tensor) -> Tensor:
        """Return the probability of each drafted token. [B,R,V] → [B,R]"""
        return probabilities.gather(-1, self.tokens[..., None]).squeeze(-1)

    def divergence(self, name: str, noise: Tensor, top_k: int = 50) -> Tensor:
        """Return the raw distributions' divergence at each position, [B,R]. See :mod:`fsd_core.ops.divergences`."""
        return divergence(name, self.target_raw, self.draft_raw, noise, top_k)

    @property
    def graded_entropy(self) -> Tensor:
        """Entropy of :attr:`graded_target` at each position, in nats. [B,R]"""
        return entropy(self.graded_target)

    @property
    def raw_entropies(self) -> tuple[Tensor, Tensor]:
        """Entropies of the raw target and draft distributions, in nats. [B,R] each"""
        return entropy(self.target_raw), entropy(self.draft_raw)

    @property
    def variation(self) -> Tensor:
        """Total variation of the two warped distributions. [B,R]"""
        return (self.target - self.draft_distribution).abs().sum(-1) / 2

    def mentored(self, budget: float) -> Tensor:
        """Return the distribution within ``budget`` nats of the target's that overlaps most with the draft's, [B,R,V].
        See :mod:`fsd_core.ops.mentoring`."""
        return mentored(self.target, self.draft, budget)

    def at(self, position: Tensor) -> ScoredDraft:
        """Return one position of each row of the batch. ``position``: int64 [B] → ScoredDraft with R = 1."""
        batch = torch.arange(position.shape[0], device=position.device)

        def pick(x: Tensor) -> Tensor:
            return x[batch, position][:, None]

        def pick_known(x: Tensor | None) -> Tensor | None:
            return None if x is None else pick(x)

        return ScoredDraft(
            pick(self.tokens), pick(self.target), pick(self.draft), pick(self.target_raw), pick(self.draft_raw),
            pick_known(self.allowed), pick_known(self.logits), self.greedy, undrawn=pick_known(self.undrawn),
        )  # fmt: skip
