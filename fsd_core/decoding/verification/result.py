"""The result of one round, before the host has read it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from fsd_core.ops.tree_attention import AcceptedPath


@dataclass(frozen=True, slots=True)
class RoundResult:
    """A round's result on the device. R = maximum number of drafted tokens that a text can accept, plus one."""

    drafted: Tensor
    """int64 [B,R−1]; for several drafts per position those judged last"""
    count: Tensor
    """accepted drafted tokens, the closing one included; int64 [B]"""
    emitted: Tensor
    """int64 [B,R]: the accepted ones, then the recovered or bonus token, then leftovers"""
    emitted_probability: Tensor
    """[B,R] under the raw target"""
    details: Tensor
    """strict (0/1), divergence, p(x), q(x) of each judged position, [B,4,J]; J = 0 if nothing was drafted"""
    reach: Tensor | None = None
    """number of drafted tokens along the path taken, int64 [B]; ``None`` if all paths have the same length"""
    path: AcceptedPath | None = None
    """the path taken through a branching tree"""
