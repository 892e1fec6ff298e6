"""Whether a model answers through our cache as it answers for a whole text: tried when it is loaded."""

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
"""families that tests hold to this, and that are not tried again"""
TOLERANCE = {torch.float32: 0.01, torch.float64: 0.01}
OTHER_TOLERANCE = 0.2
"""of 16-bit floats, whose rounding depends on how many tokens are fed at once"""
_passed: WeakSet[PreTrainedModel] = WeakSet()
"""modules that were tried already: transformers' door gives the same ones at every call"""


@torch.inference_mode()
def check_cache(model: LanguageModel) -> None:
    """Feeds twelve tokens in pieces, four of them rejected and fed again, and as one text without a cache.

    Compared are the logits of every position by their relative distance ‖ours − theirs‖ / ‖theirs‖, of which the
    median must be below a tolerance: a mixture of experts may send one token elsewhere for the sake of rounding.
    Raises ``IncompatibleModels`` for models that look ahead, keep a state that cannot be rolled back, or want more than
    tokens.
    """
    if model.kind in PROVEN or model.module in _passed:
        return
    vocabulary = min(model.vocabulary, model.model_vocab_size)
    tokens = (torch.arange(12, device=model.device)[None] * 7919 + 11) % vocabulary
    try:
        theirs = model.module(input_ids=tokens, use_cache=False).logits[..., :vocabulary].float()
        ours = _in_pieces(model, tokens)[..., :vocabulary]
    except FsdError:
        raise
    except Exception as error:  # whatever an architecture does with a cache or a mask that it does not know
        raise _refusal(model, f"it fails with {type(error).__name__}") from error
    distance = ((ours - theirs).norm(dim=-1) / theirs.norm(dim=-1)).median().item()
    if not distance <= TOLERANCE.get(model.dtype, OTHER_TOLERANCE):
        raise _refusal(model, f"its logits differ by {100 * distance:.0f} %")
    _passed.add(model.module)


def _in_pieces(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Logits [1,S,V]: a prompt, a draft that is rejected and drafted again, a single token."""
    cache = model.new_cache(16)
    first = model.forward(tokens[:, :5], cache)
    model.forward(tokens[:, [7, 6, 5, 4]], cache)
    cache.rollback(5)
    return torch.cat([first, model.forward(tokens[:, 5:11], cache), model.forward(tokens[:, 11:], cache)], dim=1)


def _refusal(model: LanguageModel, how: str) -> IncompatibleModels:
    return IncompatibleModels(
        f"A {model.kind} model of this kind is not supported: a text fed in pieces, with rollbacks, does not give the "
        f"logits of the whole text ({how}). Expected a causal decoder whose layers attend to the prefix. Choose "
        "another pair."
    )
