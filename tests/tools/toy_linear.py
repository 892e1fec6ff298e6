"""A tiny random target with grouped linear attention."""

from __future__ import annotations

import torch
from torch import nn

from fsd_core.models.forwards import LinearLlama, LinearLlamaConfig
from fsd_core.testing import _shape


def toy_linear_model(
    vocabulary: int, seed: int, group: int = 4, taps: int = 3, layers: int = 2, hidden: int = 32, context: int = 256
) -> LinearLlama:
    """Return a random Llama with grouped linear attention, which reads earlier groups and the last values."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        shape = _shape(vocabulary, layers, hidden, context)
        model = LinearLlama(LinearLlamaConfig(**shape, attention_group=group, attention_taps=taps))
        for name, parameter in model.named_parameters():
            if name.endswith("past_scale"):
                nn.init.constant_(parameter, 0.5)
            elif name.endswith("kernel"):
                nn.init.normal_(parameter)
    return model.eval()
