"""The shape of a proposal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fsd_core.ops.rows import DraftRow

Extend = Callable[[Tensor], DraftRow | None]
"""Feeds the chosen token, int64 [B], and answers with the distribution behind it, or ``None`` at the end."""


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafted tokens as a tree whose root is the last accepted token; N nodes without the root, parents first.

    tokens: int64 [B,N]. parents: index of each node's parent, −1 for the root. warped, raw: [B,N,V], the distribution
    that each node was drawn from, independently of its siblings.
    """

    tokens: Tensor
    parents: tuple[int, ...]
    warped: Tensor
    raw: Tensor

    @property
    def size(self) -> int:
        return len(self.parents)


class DraftTopology(Protocol):
    """Grows a tree from a drafter's answers."""

    length: int
    """nodes on the longest path"""

    def grow(
        self, first: DraftRow | None, extend: Extend, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        """A tree of at most ``depth`` levels, or ``None`` if there is nothing to propose.

        ``first``: the distribution behind the root. ``uniforms``: float64 [B,depth]. ``greedy``: take the likeliest
        token instead of sampling.
        """
        ...
