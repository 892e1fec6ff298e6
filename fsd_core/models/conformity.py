"""Check at load time that a model's logits through our cache equal those of an uncached forward."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakSet

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fsd_core.errors import FsdError, IncompatibleModels

if TYPE_CHECKING:
    from fsd_core.models.language_model import LanguageModel

PROVEN = frozenset({"gemma2", "llama", "mistral", "qwen2", "qwen3"})
"""families that tests cover, and that are not checked again"""
TOLERANCE = {torch.float32: 0.01, torch.float64: 0.01}
OTHER_TOLERANCE = 0.2
"""for 16-bit floats, whose rounding depends on how many tokens are fed at once"""
_passed: WeakSet[PreTrainedModel] = WeakSet()
"""modules that were checked already: transformers' ``generate`` passes the same ones at every call"""


@torch.inference_mode()
def check_cache(model: LanguageModel) -> None:
    """Raise ``IncompatibleModels`` if a model's logits through our cache differ from those without a cache.

    Twelve tokens are fed in pieces, four of them rejected and fed again, and then as one text. At each position the
    relative distance is ‖cached − uncached‖ / ‖uncached‖. Its median must be below a tolerance, since rounding alone
    may make a mixture of experts route one token elsewhere. This rejects models that look ahead, keep a state that
    cannot be rolled back, or need more than tokens.
    """
    adapted = getattr(model.module, "_hf_peft_config_loaded", False)  # an adapter lay beside the weights
    if model.module in _passed or (model.kind in PROVEN and not adapted):
        return
    vocabulary = min(model.vocabulary, model.model_vocab_size)
    tokens = (torch.arange(12, device=model.device)[None] * 7919 + 11) % vocabulary
    try:
        uncached = model.module(input_ids=tokens, use_cache=False).logits[..., :vocabulary].float()
        cached = _in_pieces(model, tokens)[..., :vocabulary]
    except FsdError:
        raise
    except Exception as error:  # architectures fail in many ways on a cache or a mask that they do not know
        raise _refusal(model, f"it fails with {type(error).__name__}") from error
    distance = ((cached - uncached).norm(dim=-1) / uncached.norm(dim=-1)).median().item()
    if not distance <= TOLERANCE.get(model.dtype, OTHER_TOLERANCE):
        raise _refusal(model, f"its logits differ by {100 * distance:.0f} %")
    _passed.add(model.module)


def _in_pieces(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return logits [1,S,V] of a prompt, a draft that is rejected and drafted again, and a single token."""
    cache = model.new_cache(16)
    first = model.forward(tokens[:, :5], cache)
    model.forward(tokens[:, [7, 6, 5, 4]], cache)
    cache.rollback(5)
    return torch.cat([first, model.forward(tokens[:, 5:11], cache), model.forward(tokens[:, 11:], cache)], dim=1)


def _refusal(model: LanguageModel, reason: str) -> IncompatibleModels:
    return IncompatibleModels(
        f"A {model.kind} model of this kind is not supported: a text fed in pieces, with rollbacks, does not give the "
        f"logits of the whole text ({reason}). Expected a causal decoder whose layers attend to the prefix. Choose "
        "another pair."
    )
