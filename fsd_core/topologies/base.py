"""The structure of a proposal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from fsd_core.config import DecodingConfig
from fsd_core.ops.scored_draft import DraftDistribution


class Source(Protocol):
    """A drafter, as a topology uses it."""

    def extend(self, token: Tensor) -> DraftDistribution | None:
        """Feed the chosen token, int64 [B]. Return the distribution after it, or ``None`` at the end."""
        ...

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        """Feed n more nodes of a tree on one text, int64 [1,n]. Return the n distributions after them. ``parents``:
        int64 [n], their parents' indices in feeding order, −1 for the text."""
        ...


class Lookup(Protocol):
    """A drafter that knows what may follow a path without being fed it."""

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return the tokens that may follow the text and the tokens of ``path``, with their probabilities, the
        likeliest first."""
        ...


@dataclass(frozen=True, slots=True)
class TreeStructure:
    """How a tree of N nodes branches. Parents come before their children, and children are in the order of their rank.

    parents: int64 [N], −1 for the text itself, −2 for a missing node. levels: int64 [N], from 1. drawn_from: int64 [N],
    the index of the tree's distribution that each node was drawn from. fed: int64 [N], each node's index among those
    fed to the drafter; meaningless for a node that was not fed, which has no children. chains: int64 [depth,n], for n
    drafts per position, the node that each draft passes at each level. A node that k drafts pass was drafted k times.
    """

    parents: Tensor
    levels: Tensor
    drawn_from: Tensor
    fed: Tensor
    chains: Tensor | None = None


@dataclass(frozen=True, slots=True)
class DraftTree:
    """Drafted tokens as a tree whose root is the last accepted token; N nodes without the root.

    tokens: int64 [B,N]. depth: number of levels. warped, raw: [B,R,V], the distributions that nodes were drawn from;
    for several drafts drawn together, that of the last. structure: ``None`` for a chain, where R = N; else B = 1.
    lengths: for a chain that ends by itself, how many of its N tokens each text has; ``None`` if all have N.
    """

    tokens: Tensor
    depth: int
    warped: Tensor
    raw: Tensor
    structure: TreeStructure | None = None
    lengths: Sequence[int] | None = None

    @property
    def size(self) -> int:
        return self.tokens.shape[1]

    def cut(self, count: int) -> DraftTree:
        """Return a chain's first ``count`` tokens, those of it that any text uses."""
        if count == self.size:
            return self
        tokens, warped, raw = (part[:, :count] for part in (self.tokens, self.warped, self.raw))
        return DraftTree(tokens, count, warped, raw, lengths=self.lengths)


class DraftTopology(Protocol):
    """Grows a tree from a drafter's distributions."""

    side_by_side: ClassVar[bool]
    """whether it drafts for several texts at once"""
    length: int
    """nodes on the longest path"""
    num_uniforms: int
    """uniforms that a level takes"""
    drafts_bonus: bool
    """whether it can also draft the token after the longest path, for a rule that judges it"""

    @classmethod
    def for_method(cls, config: DecodingConfig) -> DraftTopology:
        """Return the topology of a method whose configuration names it."""
        ...

    def grow(
        self, first: DraftDistribution | None, source: Source, depth: int, uniforms: Tensor, greedy: bool
    ) -> DraftTree | None:
        """Return a tree of at most ``depth`` levels, or ``None`` if nothing can be proposed.

        ``first``: the distribution after the root. ``uniforms``: float64 [B,depth · ``self.num_uniforms``].
        ``greedy``: take the likeliest token instead of sampling.
        """
        ...
