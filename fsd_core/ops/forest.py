"""A forest behind a straight prefix: nodes of several texts that share a beginning, each kept once."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.ops.tree_attention import TreeAttention


class Forest:
    """Nodes behind ``prefix`` positions, in feeding order. Parents come before their children."""

    def __init__(self, prefix: int) -> None:
        self.prefix = prefix
        self._depths: list[int] = []
        self._attends_to = torch.zeros(0, 0, dtype=torch.bool)

    @property
    def is_chain(self) -> bool:
        """Whether every node follows the one before it, so that no tree attention is needed."""
        return self._depths == list(range(len(self._depths)))

    def add(self, parents: Sequence[int], device: torch.device | str = "cpu") -> TreeAttention:
        """Add nodes and return the attention. ``parents``: in feeding order, −1 for the prefix's last token. A parent
        may be one of the nodes added by the same call."""
        start, count = len(self._depths), len(parents)
        self._attends_to = F.pad(self._attends_to, (0, count, 0, count))
        for node, parent in enumerate(parents, start):
            if parent >= 0:
                self._attends_to[node] = self._attends_to[parent]
            self._attends_to[node, node] = True
            self._depths.append(self._depths[parent] + 1 if parent >= 0 else 0)
        return TreeAttention(self.prefix, self._tensor(self._depths).to(device), self._attends_to.to(device))

    def keep(self, nodes: Sequence[int], shared: int) -> None:
        """Drop all nodes but these, ascending; their parents must be among them. The first ``shared`` of them, on the
        path to every other one, become part of the prefix."""
        rows = self._tensor(nodes[shared:])
        self._attends_to = self._attends_to[rows][:, rows]
        self._depths = [self._depths[node] - shared for node in nodes[shared:]]
        self.prefix += shared

    @staticmethod
    def _tensor(values: Sequence[int]) -> Tensor:
        return torch.tensor(values, dtype=torch.int64)
