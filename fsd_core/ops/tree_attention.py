"""Tree attention: position ids and mask of tokens that are fed at once but do not all follow one another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class TreeAttention:
    """S tokens after a linear ``prefix`` of a text that is alone in its batch. The last of them are fed now.

    depths: int64 [S], positions of the tokens after the prefix, from 0. attends_to: bool [S,S], the tokens that each
    token attends to, itself included.
    """

    prefix: int
    depths: Tensor
    attends_to: Tensor

    def position_ids(self, count: int) -> Tensor:
        """Return the positions of the last ``count`` tokens, int64 [1,count]."""
        return self.prefix + self.depths[None, -count:]

    def mask(self, count: int, window: int | None = None) -> Tensor:
        """Return the tokens of prefix and tree that the last ``count`` tokens attend to, among the last ``window``
        positions if given; bool [1,1,count,prefix + S]."""
        attended = F.pad(self.attends_to[-count:], (self.prefix, 0), value=True)
        if window is not None:
            prefix_positions = torch.arange(self.prefix, device=self.depths.device)
            keys = torch.cat([prefix_positions, self.prefix + self.depths])
            attended = attended & (keys > self.position_ids(count)[0][:, None] - window)
        return attended[None, None]


@dataclass(frozen=True, slots=True)
class AcceptedPath:
    """A path down a tree: the node of each level and its index among those fed to the drafter, int64 [D] each."""

    nodes: Tensor
    fed: Tensor


class TreeBuilder:
    """A tree that is fed level by level after a linear ``prefix``."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self._attention: TreeAttention | None = None

    def add(self, parents: Tensor) -> TreeAttention:
        """Add n nodes and return the attention. parents: int64 [n], in feeding order, −1 for the prefix's last
        token."""
        diagonal = torch.eye(len(parents), dtype=torch.bool, device=parents.device)
        if self._attention is None:
            self._attention = TreeAttention(self.prefix, torch.zeros_like(parents), diagonal)
            return self._attention
        depths, attends_to = self._attention.depths, self._attention.attends_to
        # The extra last row stands for no parent: it is one above the first level, and attends to nothing.
        depths = torch.cat([depths, F.pad(depths, (0, 1), value=-1)[parents] + 1])
        rows = torch.cat([F.pad(attends_to, (0, 0, 0, 1))[parents], diagonal], 1)
        self._attention = TreeAttention(self.prefix, depths, torch.cat([F.pad(attends_to, (0, len(parents))), rows]))
        return self._attention


def ancestors(parents: Tensor, depth: int) -> Tensor:
    """Return each node's ancestors, itself included, in a tree of at most ``depth`` levels. parents: int64 [N], −1 for
    none → bool [N,N]"""
    count = len(parents)
    attends_to = torch.eye(count, dtype=torch.bool, device=parents.device)
    for _ in range(depth - 1):
        above = F.pad(attends_to, (0, 0, 0, 1))  # the extra last row stands for no parent: it attends to nothing
        attends_to = attends_to | above[parents]
    return attends_to


def tree_layout(straight: int, parents: Tensor, levels: Tensor, depth: int) -> tuple[Tensor, Tensor]:
    """Return depths and attention of ``straight`` tokens of the text and of a tree on the last of them, as
    :class:`TreeAttention` takes them.

    parents, levels: int64 [N], see :func:`ancestors`; levels count from 1. → int64 [S], bool [S,S]; S = straight + N.
    """
    device = parents.device
    trunk = torch.arange(straight, device=device)
    depths = torch.cat([trunk, straight - 1 + levels])
    attends_to = F.pad(ancestors(parents, depth), (straight, 0), value=True)
    first = F.pad(trunk[None] <= trunk[:, None], (0, len(parents)))
    return depths, torch.cat([first, attends_to])
