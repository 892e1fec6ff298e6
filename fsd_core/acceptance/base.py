"""What an acceptance rule is: pure functions over rows of distributions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from fsd_core.ops.rows import Rows


@dataclass(frozen=True, slots=True)
class Verdict:
    """Judgement of each position as if all before it had been accepted. All tensors [B,R].

    ``accepted``: whether the drafted token is kept. ``strict``: whether lossless speculative decoding would have
    kept it with the same uniform. ``divergence``: the rule's own, or Jensen-Shannon where it has none.
    """

    accepted: Tensor
    strict: Tensor
    divergence: Tensor


class AcceptanceRule(Protocol):
    """Which drafted tokens are kept, and what is written in place of the first that is not.

    A rule is exact for drafted tokens that were sampled independently from ``rows.draft`` (a point mass included).
    """

    lossless: ClassVar[bool]
    """whether the output is distributed exactly as the target's"""
    judges_bonus: ClassVar[bool]
    """Whether the token after a fully accepted draft is drafted and judged like the others. Without it that token
    comes from the target, which makes a lossy rule's output depend on the draft length."""
    greedy_draft: ClassVar[bool]
    """whether the draft proposes its likeliest token whatever the sampling settings"""

    def judge(self, rows: Rows, uniforms: Tensor, noise: Tensor) -> Verdict:
        """``uniforms``: [B,R] in [0,1) for the acceptance tests; ``noise``: [B,R] for the ``random`` divergence."""
        ...

    def correction(self, row: Rows, divergence: Tensor) -> Tensor:
        """Weights from which the token in place of a rejected one is drawn.

        ``row``: Rows with R = 1 at the rejected position; ``divergence``: [B,1]. Returns [B,1,V], not negative, with a
        positive sum.
        """
        ...
