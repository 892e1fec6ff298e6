"""Tree attention: position ids and mask of tokens that are fed at once though not all of them follow one another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class TreeAttention:
    """S tokens behind a straight ``prefix`` of a text that stands alone in its batch, the last of which are fed now.

    depths: int64 [S], positions of the tokens behind the prefix, from 0. attends_to: bool [S,S], to which of the S each
    of them attends, itself included.
    """

    prefix: int
    depths: Tensor
    attends_to: Tensor

    def position_ids(self, count: int) -> Tensor:
        """Positions of the last ``count`` tokens, int64 [1,count]."""
        return self.prefix + self.depths[None, -count:]

    def mask(self, count: int, window: int | None = None) -> Tensor:
        """To what of prefix and tree the last ``count`` tokens attend, among the last ``window`` positions if given;
        bool [1,1,count,prefix + S]."""
        attended = F.pad(self.attends_to[-count:], (self.prefix, 0), value=True)
        if window is not None:
            ahead = torch.arange(self.prefix, device=self.depths.device)
            keys = torch.cat([ahead, self.prefix + self.depths])
            attended = attended & (keys > self.position_ids(count)[0][:, None] - window)
        return attended[None, None]


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """A way down a tree: the node of each level, int64 [D], and which these were of what the drafter was fed."""

    nodes: Tensor
    fed: Tensor


class TreeBuilder:
    """A tree that is fed level by level behind a straight ``prefix``."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self._attention: TreeAttention | None = None

    def add(self, parents: Tensor) -> TreeAttention:
        """With n more nodes. parents: int64 [n], in the order of feeding, −1 for the prefix's last token."""
        own = torch.eye(len(parents), dtype=torch.bool, device=parents.device)
        if self._attention is None:
            self._attention = TreeAttention(self.prefix, torch.zeros_like(parents), own)
            return self._attention
        depths, attends_to = self._attention.depths, self._attention.attends_to
        # The row behind the last is that of no parent: it is one above the first level, and attends to nothing.
        depths = torch.cat([depths, F.pad(depths, (0, 1), value=-1)[parents] + 1])
        rows = torch.cat([F.pad(attends_to, (0, 0, 0, 1))[parents], own], 1)
        self._attention = TreeAttention(self.prefix, depths, torch.cat([F.pad(attends_to, (0, len(parents))), rows]))
        return self._attention


def ancestors(parents: Tensor, depth: int) -> Tensor:
    """Each node with all nodes above it, in a tree of at most ``depth`` levels. parents: int64 [N], −1 for none →
    bool [N,N]"""
    count = len(parents)
    attends_to = torch.eye(count, dtype=torch.bool, device=parents.device)
    for _ in range(depth - 1):
        above = F.pad(attends_to, (0, 0, 0, 1))  # the row behind the last is that of no parent: it attends to nothing
        attends_to = attends_to | above[parents]
    return attends_to


def tree_layout(straight: int, parents: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Depths and attention of ``straight`` tokens of the text itself and of a tree on the last of them, as
    :class:`TreeAttention` takes them.

    parents, levels: int64 [N], see :func:`ancestors`; levels count from 1. → int64 [S], bool [S,S]; S = straight + N.
    """
    device = parents.device
    trunk = torch.arange(straight, device=device)
    depths = torch.cat([trunk, straight - 1 + levels])
    attends_to = F.pad(ancestors(parents, depth), (straight, 0), value=True)
    first = F.pad(trunk[None] <= trunk[:, None], (0, len(parents)))
    return depths, torch.cat([first, attends_to])
