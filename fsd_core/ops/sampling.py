"""Sampling with randomness passed in by the caller, so that runs repeat."""

from __future__ import annotations

import torch
from torch import Tensor

from fsd_core.ops.transfer import to_device

_BELOW_ONE = 1 - 2.0**-40


def draw(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return tokens drawn by inverting the cumulative sum. The weights need not sum to one.

    ``weights``: [..., V], not negative, not all zero. ``uniforms``: [...] float64 in [0, 1). Returns int64 [...].
    Sums are float64: float32 would lose the tail of a vocabulary of 150,000.
    """
    cumulative = weights.double().cumsum(-1)
    height = uniforms.double()[..., None] * _BELOW_ONE * cumulative[..., -1:]
    return torch.searchsorted(cumulative, height, right=True).squeeze(-1).clamp_max(weights.shape[-1] - 1)


def draw_several(weights: Tensor, uniforms: Tensor, sampling: str) -> Tensor:
    """Return several tokens of one distribution, in the order of drawing. weights: [R,V]; uniforms: [R,n] → int64 [R,n]

    ``sampling``: ``with_replacement``; ``without_replacement``, each from what remains; ``greedy``, the likeliest n − 1
    and one drawn from the rest. If the distribution has fewer tokens, the missing ones are −1.
    """
    count = uniforms.shape[1]
    if sampling == "with_replacement":
        return draw(weights[:, None].expand(-1, count, -1), uniforms)
    if sampling == "greedy":
        last = _draw_or_none(greedy_distribution(weights, count), uniforms[:, -1])
        return torch.cat([likeliest(weights, count - 1), last[:, None]], 1)
    remaining, tokens = weights.double(), []
    for i in range(count):
        tokens.append(_draw_or_none(remaining, uniforms[:, i]))
        remaining = remaining.scatter(1, tokens[-1][:, None].clamp_min(0), 0)
    return torch.stack(tokens, 1)


def _draw_or_none(weights: Tensor, uniforms: Tensor) -> Tensor:
    """Return tokens as :func:`draw` does, and −1 where all weights are zero."""
    return torch.where(weights.sum(-1) > 0, draw(weights, uniforms), -1)


def likeliest(weights: Tensor, count: int) -> Tensor:
    """Return the tokens of the ``count`` largest weights, largest first, −1 for a zero weight. [R,V] → int64 [R,n]"""
    tokens = _largest(weights, count)
    return torch.where(weights.gather(1, tokens) > 0, tokens, -1)


def _largest(weights: Tensor, count: int) -> Tensor:
    """Return the tokens of the ``count`` largest weights, largest first. Among equal weights the first tokens win, as
    in ``fsd_core.theory``; ``topk`` does not define which it takes. [R,V] → int64 [R,n]"""
    if count == 0:
        return weights.new_zeros(len(weights), 0, dtype=torch.int64)
    threshold = weights.topk(count, -1).values[:, -1:]
    above, equal = weights > threshold, weights == threshold
    taken = above | (equal & (equal.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
    indices = torch.arange(weights.shape[1], device=weights.device).expand_as(weights)
    tokens = indices.masked_fill(~taken, weights.shape[1]).topk(count, -1, largest=False).values
    return tokens.gather(1, weights.gather(1, tokens).argsort(dim=-1, descending=True, stable=True))


def greedy_distribution(weights: Tensor, count: int) -> Tensor:
    """Return the distribution of the last of ``count`` greedy drafts. It lacks the ``count`` − 1 likeliest tokens,
    and is all zero if nothing remains. [R,V] → [R,V]"""
    rest = weights.scatter(1, _largest(weights, count - 1), 0)
    return rest / rest.sum(-1, keepdim=True).clamp_min(1e-30)


class UniformStream:
    """Uniforms in [0, 1) from one seed, the same on every device: drawn on the CPU, in blocks.

    ``take(*shape)`` returns float64 [*shape]. The sequence of values depends only on the seed, not on the shapes taken.
    """

    def __init__(self, seed: int, device: torch.device | str = "cpu", block: int = 4096) -> None:
        self._generator = torch.Generator().manual_seed(seed)
        self._device, self._block, self._index = torch.device(device), block, 0
        self._values = torch.empty(0, dtype=torch.float64, device=device)

    def take(self, *shape: int) -> Tensor:
        count = 1
        for size in shape:
            count *= size
        if self._index + count > self._values.numel():
            fresh = torch.rand(max(self._block, count), generator=self._generator, dtype=torch.float64)
            self._values = torch.cat([self._values[self._index :], to_device(fresh, self._device)])
            self._index = 0
        self._index += count
        return self._values[self._index - count : self._index].view(shape)
