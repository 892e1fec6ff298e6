"""Models of real shapes with random weights, to time the loop when the real weights are unavailable."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig

from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.memory import copies, free_bytes

_LLAMA3: dict[str, Any] = {"vocab_size": 128_256, "rope_parameters": {"rope_type": "default", "rope_theta": 500_000.0}}
_SMOL: dict[str, Any] = {"vocab_size": 49_152, "tie_word_embeddings": True}


def _shape(hidden: int, layers: int, heads: int, kv_heads: int, inner: int, **more: Any) -> LlamaConfig:
    return LlamaConfig(
        hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads, num_key_value_heads=kv_heads,
        intermediate_size=inner, max_position_embeddings=4096, **more,
    )  # fmt: skip


RANDOM_PAIR_SHAPES = {
    "llama-8b/1b": (
        _shape(4096, 32, 32, 8, 14_336, **_LLAMA3),
        _shape(2048, 16, 32, 8, 8192, tie_word_embeddings=True, **_LLAMA3),
    ),
    "smollm2-1.7b/135m": (_shape(2048, 24, 32, 32, 8192, **_SMOL), _shape(576, 30, 9, 3, 1536, **_SMOL)),
}
"""target/draft with the sizes of Llama 3.1 8B and 3.2 1B, and of SmolLM2 1.7B and 135M"""


def synthetic_pair(name: str, device: torch.device, dtype: torch.dtype) -> tuple[LanguageModel, LanguageModel]:
    """Return target and draft of a shape in ``RANDOM_PAIR_SHAPES``, with random weights that repeat on every call.

    Raises ``UnknownName`` for another name, ``ModelUnavailable`` with the numbers if they do not fit.
    """
    if name not in RANDOM_PAIR_SHAPES:
        raise UnknownName(f"There is no synthetic pair '{name}': expected one of {', '.join(RANDOM_PAIR_SHAPES)}.")
    with torch.device("meta"):
        empty = [AutoModelForCausalLM.from_config(config) for config in RANDOM_PAIR_SHAPES[name]]
    bytes_per_weight = dtype.itemsize * copies("llama", device)
    needed = bytes_per_weight * sum(parameter.numel() for model in empty for parameter in model.parameters())
    if (free := free_bytes(device)) < needed:
        raise ModelUnavailable(
            f"The synthetic pair '{name}' needs {needed / 1e9:.1f} GB on {device}, which has {free / 1e9:.1f} GB free: "
            f"choose another of {', '.join(RANDOM_PAIR_SHAPES)}, or the dtype bfloat16."
        )
    torch.manual_seed(0)
    with torch.device(device):
        target, draft = (AutoModelForCausalLM.from_config(config, dtype=dtype) for config in RANDOM_PAIR_SHAPES[name])
    return LanguageModel(target), LanguageModel(draft)
