"""The shape of a proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fsd_core.ops.rows import DraftRow


class Source(Protocol):
    """What a topology asks a drafter for."""

    def extend(self, token: Tensor) -> DraftRow | None:
        """Feeds the chosen token, int64 [B], and answers with the distribution behind it, or ``None`` at the end."""
        ...

    def extend_level(self, tokens: Tensor) -> DraftRow:
        """Feeds the next token of each of n chains of one text, int64 [1,n]; the rows behind them, n of them."""
        ...


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafted tokens as a tree whose root is the last accepted token; N nodes without the root, parents first.

    tokens: int64 [B,N], level by level, ``width`` nodes each. parents: index of each node's parent, negative for the
    root. warped, raw: [B,N,V], the distribution that each node was drawn from; of several drafts that come about
    together, that of the last. valid: bool [B,N], which nodes there are, or ``None`` for all.
    """

    tokens: Tensor
    parents: tuple[int, ...]
    warped: Tensor
    raw: Tensor
    valid: Tensor | None = None
    width: int = 1

    @property
    def size(self) -> int:
        return len(self.parents)


class DraftTopology(Protocol):
    """Grows a tree from a drafter's answers."""

    length: int
    """nodes on the longest path"""
    width: int
    """nodes of a level"""

    def grow(
        self, first: DraftRow | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        """A tree of at most ``depth`` levels, or ``None`` if there is nothing to propose.

        ``first``: the distribution behind the root. ``uniforms``: float64 [B,depth·width]. ``greedy``: take the
        likeliest token instead of sampling.
        """
        ...
