"""Products with the weights of a linear layer, as fast as the machine can be brought to do them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

Linear = Callable[[Tensor], Tensor]
"""[..., in] → [..., out]"""

_LEAST = 2**18
"""Values of a float32 weight from which the copy pays. Its call starts some 12 µs later than ``F.linear``'s: measured
on one thread, 1 to 24 tokens, it is at 160 x 160 slower by 1.7 to 4 times, at 864 x 160 even, from 512 x 512 faster."""


def prepack_linear(weight: Tensor) -> Linear:
    """``x`` ↦ ``x · weightᵀ`` for a weight [out, in] that will not change.

    On the CPU the weight is copied into the order in which oneDNN reads it, once, where ``F.linear`` would put it into
    that order at every call: a few tokens then cost little more than the reading of the copy. Elsewhere, for small
    weights, and for dtypes that oneDNN does not multiply here, it is ``F.linear`` itself.
    """
    if not _reorders(weight):
        return partial(F.linear, weight=weight)
    ordered = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), None)

    def product(x: Tensor) -> Tensor:
        return torch.ops.mkldnn._linear_pointwise(x, ordered, None, "none", [], "")

    return product


def _reorders(weight: Tensor) -> bool:
    """Whether :func:`prepack_linear` makes a copy of a weight, which takes its memory once more."""
    if weight.device.type != "cpu" or not torch.backends.mkldnn.is_available():
        return False
    if weight.dtype == torch.bfloat16:
        return torch.ops.mkldnn._is_mkldnn_bf16_supported()
    return weight.dtype == torch.float32 and weight.numel() >= _LEAST
