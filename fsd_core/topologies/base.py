"""The shape of a proposal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from fsd_core.config import DecodingConfig
from fsd_core.ops.scored_draft import DraftDistribution


class Source(Protocol):
    """What a topology asks a drafter for."""

    def extend(self, token: Tensor) -> DraftDistribution | None:
        """Feeds the chosen token, int64 [B], and answers with the distribution behind it, or ``None`` at the end."""
        ...

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        """Feeds n more nodes of a tree on one text, int64 [1,n], and answers with the rows behind them, n of them.
        ``parents``: int64 [n], the nodes that they follow in the order of feeding, −1 for the text."""
        ...


@dataclass(frozen=True, slots=True)
class TreeStructure:
    """How a tree of N nodes branches. Parents come before their children, and children in the order of their rank.

    parents: int64 [N], −1 for the text itself, −2 for a node that there is not. levels: int64 [N], from 1. drawn_from:
    int64 [N], which of the tree's rows each node was drawn from. fed: int64 [N], which it was of those that the drafter
    was fed; of no meaning for a node that it was not, which has no children. chains: int64 [depth,n], of n drafts per
    position, the node that each passes at each level: one that several pass was drafted as often.
    """

    parents: Tensor
    levels: Tensor
    drawn_from: Tensor
    fed: Tensor
    chains: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafted tokens as a tree whose root is the last accepted token; N nodes without the root.

    tokens: int64 [B,N]. depth: levels. warped, raw: [B,R,V], the distributions that nodes were drawn from; of several
    drafts that come about together, that of the last. structure: ``None`` for a chain, whose R is N; else B = 1.
    """

    tokens: Tensor
    depth: int
    warped: Tensor
    raw: Tensor
    structure: TreeStructure | None = None

    @property
    def size(self) -> int:
        return self.tokens.shape[1]


class DraftTopology(Protocol):
    """Grows a tree from a drafter's answers."""

    side_by_side: ClassVar[bool]
    """whether it grows for several texts at once"""
    length: int
    """nodes on the longest path"""
    num_uniforms: int
    """that a level takes"""
    drafts_bonus: bool
    """whether it can draft, for a rule that judges it, the token behind the longest path too"""

    @classmethod
    def for_method(cls, config: DecodingConfig) -> DraftTopology:
        """The topology of a method whose configuration names it."""
        ...

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        """A tree of at most ``depth`` levels, or ``None`` if there is nothing to propose.

        ``first``: the distribution behind the root. ``uniforms``: float64 [B,depth · ``self.num_uniforms``].
        ``greedy``: take the likeliest token instead of sampling.
        """
        ...
