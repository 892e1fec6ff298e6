"""What one round came to, before the host has read it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fsd_core.ops.tree_attention import AcceptedPath


@dataclass(frozen=True, slots=True)
class RoundResult:
    """On the device. R = drafted tokens that a text can keep at most, plus one."""

    drafted: Tensor
    """int64 [B,R−1]; of several drafts per position those that were judged last"""
    count: Tensor
    """drafted tokens kept, the closing one included; int64 [B]"""
    emitted: Tensor
    """int64 [B,R]: the kept ones, then the correction or bonus, then leftovers"""
    emitted_probability: Tensor
    """[B,R] under the raw target"""
    details: Tensor
    """strict (0/1), divergence, p(x), q(x) of each judged position, [B,4,J]; J = 0 if nothing was drafted"""
    reach: Tensor | None = None
    """how many tokens were drafted on the way that was taken, int64 [B]; ``None`` where all ways are of one length"""
    way: AcceptedPath | None = None
    """the way that was taken through a tree that branches"""
