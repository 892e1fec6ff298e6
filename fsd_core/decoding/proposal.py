"""What a round drafted for the texts of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.topologies import DraftTree


@dataclass(frozen=True, slots=True)
class DraftProposal:
    """A tree, and how much of it each text takes.

    A text with few remaining tokens drafts fewer than the batch; what lies behind its own tokens is padding.
    """

    tree: DraftTree
    fed: int
    """drafted tokens that a text can keep at most; the target is fed the whole of a tree that branches"""
    own: list[int]
    """of each text, how many of its tokens are fed"""
    judged: list[int]
    """of each text, how many of its positions are judged"""
    written: list[int]
    """of each text, how many tokens of its answer were there before"""


def padded(rows: Sequence[Tensor]) -> Tensor:
    """Rows of different lengths [n], padded with zeros to the longest: [B,N]"""
    width = max(len(row) for row in rows)
    return torch.stack([row if len(row) == width else F.pad(row, (0, width - len(row))) for row in rows])
