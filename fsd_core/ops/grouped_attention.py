"""Grouped linear attention with a causal convolution: what replaces softmax attention in a Linearized-LLM.

Source: You et al., ICML 2024, arXiv 2406.07368. With q̂ = q/‖q‖, k̂ = k/‖k‖ after the rotary positions, groups of g
positions, G(i) = ⌊i/g⌋, a learned scale a of a layer and a learned kernel w of K taps for each head:

    out_i = Σ_{j ≤ i, G(j) = G(i)} max(q̂_i·k̂_j, 0)² v_j  +  a · Σ_{G(j) < G(i)} (q̂_i·k̂_j) v_j  +  Σ_{t < K} w_t v_{i−t}

The second sum is a · q̂_iᵀ S with the state S = Σ k̂ vᵀ of finished groups, whose size does not depend on the text.
On a branch of a tree the same holds of the tokens above a token: the group follows the depth, and a group that ends
within the tree is finished for what comes after it on that branch.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True, slots=True)
class Sight:
    """What S queries see of L keys, none of which is in a state.

    within: bool [S,L], keys of the query's own group, up to itself. before: bool [S,L], keys of groups before it.
    distances: int64 [S,L], positions between a key and the query; −1 for a key that is not seen.
    """

    within: Tensor
    before: Tensor
    distances: Tensor

    @staticmethod
    def of(visible: Tensor, queries: Tensor, keys: Tensor, group: int) -> Sight:
        """Return what is seen of keys at positions ``keys`` (int64 [L]) from ``queries`` (int64 [S]).

        visible: bool [S,L], the keys that come before a query on its own branch, itself included.
        """
        same = queries[:, None] // group == keys // group
        distances = (queries[:, None] - keys).masked_fill(~visible, -1)
        return Sight(visible & same, visible & ~same, distances)

    @staticmethod
    def of_text(length: int, group: int, device: torch.device) -> Sight:
        """Return what each of a text's tokens sees of the text."""
        positions = torch.arange(length, device=device)
        return Sight.of(positions <= positions[:, None], positions, positions, group)


def attend(
    queries: Tensor, keys: Tensor, values: Tensor, sight: Sight, scale: Tensor, kernel: Tensor, state: Tensor | None
) -> Tensor:
    """Return the outputs of the formula above, [B,heads,S,d].

    queries: [B,heads,S,d]; keys, values: [B,key heads,L,d]; keys and queries have norm 1. scale: [], a. kernel:
    [heads,K], w. state: float32 [B,key heads,d,d], S of the groups before all keys, or ``None`` if there are none.
    """
    batch, heads, count, size = queries.shape
    key_heads, length = keys.shape[1:3]
    queries = queries.view(batch, key_heads, heads // key_heads, count, size)
    scores = queries @ keys[:, :, None].mT  # [B,key heads,heads per key head,S,L]
    taps = kernel.shape[1]
    near = (sight.distances >= 0) & (sight.distances < taps)
    convolved = torch.where(near, kernel[:, sight.distances.clamp(0, taps - 1)], 0.0)  # [heads,S,L]
    weights = torch.where(sight.within, scores.relu().square(), torch.where(sight.before, scale * scores, 0.0))
    weights = weights + convolved.view(key_heads, -1, count, length)
    mixed = weights.to(values.dtype) @ values[:, :, None]
    if state is not None:
        mixed = mixed + scale * (queries.to(state.dtype) @ state[:, :, None]).to(values.dtype)
    return mixed.reshape(batch, heads, count, size)


def folded(state: Tensor | None, keys: Tensor, values: Tensor) -> Tensor:
    """Return the state S with the sum of k̂ vᵀ over further tokens, float32 [B,key heads,d,d]. keys, values:
    [B,key heads,n,d]"""
    more = keys.float().mT @ values.float()
    return more if state is None else state + more


def normalised(heads: Tensor) -> Tensor:
    """Return vectors of norm 1, [..., d] → [..., d]"""
    return F.normalize(heads.float(), dim=-1).to(heads.dtype)
