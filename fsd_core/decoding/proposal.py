"""The drafts of a round for the texts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.topologies import DraftTree


@dataclass(frozen=True, slots=True)
class DraftProposal:
    """A tree, and how much of it each text uses.

    A text with few remaining tokens drafts fewer than the batch. The tokens after its own are padding.
    """

    tree: DraftTree
    fed: int
    """maximum number of drafted tokens that a text can accept; of a branching tree the target is fed all nodes"""
    drafted: list[int]
    """for each text, how many of its tokens are fed"""
    judged: list[int]
    """for each text, how many of its positions are judged"""
    strict: list[int]
    """for each text, how many of its next tokens the strict test judges, whatever the rule"""


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Return rows of different lengths [n], padded with zeros to the longest: [B,N]"""
    width = max(len(row) for row in rows)
    return torch.stack([row if len(row) == width else F.pad(row, (0, width - len(row))) for row in rows])
