"""Writing a token without a draft."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.decoding.verification.base import probability_of
from fsd_core.decoding.verification.result import RoundResult
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.warping import warp


def write_one(logits: Tensor, sampling: SamplingConfig, uniforms: Sequence[UniformStream]) -> RoundResult:
    """Write one token of each text, drawn from the model's warped next-token distribution. logits: [B,1,V]"""
    weights, raw = warp(logits, sampling), logits.softmax(-1)
    emitted = draw(weights[:, 0], torch.stack([stream.take(1)[0] for stream in uniforms]))[:, None]
    details = raw.new_zeros(len(emitted), 4, 0)
    return RoundResult(emitted[:, :0], emitted.new_zeros(len(emitted)), emitted, probability_of(raw, emitted), details)
