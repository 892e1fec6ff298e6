"""From logits to the sampled distribution: temperature, then top-k, then top-p, then min-p.

The order and the treatment of ties match transformers' logits processors, so that
the same settings have the same meaning.
"""

from __future__ import annotations

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig


def restrict(logits: Tensor, top_k: int, top_p: float, min_p: float = 0.0) -> Tensor:
    """Set logits to −inf outside the top k, then outside the nucleus of mass ``top_p``, then for tokens less likely
    than ``min_p`` times the likeliest. [..., V] → [..., V]"""
    if 0 < top_k < logits.shape[-1]:
        kth = logits.topk(top_k, dim=-1).values[..., -1:]
        logits = logits.masked_fill(logits < kth, -torch.inf)
    if top_p < 1:
        ascending, order = logits.sort(dim=-1)
        removed = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
        removed[..., -1] = False
        logits = logits.masked_fill(torch.zeros_like(removed).scatter(-1, order, removed), -torch.inf)
    if min_p > 0:
        p = logits.softmax(-1)
        logits = logits.masked_fill(p < min_p * p.amax(-1, keepdim=True), -torch.inf)
    return logits


def one_hot(tokens: Tensor, vocabulary: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Return distributions with probability 1 on each token. [...] → [..., V]"""
    return torch.zeros(*tokens.shape, vocabulary, dtype=dtype, device=tokens.device).scatter_(-1, tokens[..., None], 1)


def warp(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Return the sampled distribution, one-hot on the likeliest token when greedy. [..., V] → [..., V]"""
    if sampling.greedy:
        return one_hot(logits.argmax(-1), logits.shape[-1], logits.dtype)
    return _restricted(logits, sampling).softmax(-1)


def allowed(logits: Tensor, sampling: SamplingConfig) -> Tensor | None:
    """Return which tokens survive the target's top-k, top-p and min-p; ``None`` if all do. [..., V] → bool [..., V]

    At temperature 0 only one token would survive. The restriction then applies at temperature 1, so that it bounds
    leniency instead of forbidding it.
    """
    return _restricted(logits, sampling) > -torch.inf if sampling.cut else None


def _restricted(logits: Tensor, sampling: SamplingConfig) -> Tensor:
    """Return the restricted logits; temperature 0 counts as 1."""
    return restrict(logits / (sampling.temperature or 1.0), sampling.top_k, sampling.top_p, sampling.min_p)
