"""Check at load time that a model's logits through our cache equal those of an uncached forward."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from fsd_core.errors import FsdError, IncompatibleModels

if TYPE_CHECKING:
    from fsd_core.models.language_model import LanguageModel

PROVEN = frozenset({"gemma2", "llama", "mistral", "qwen2", "qwen3"})
"""families that tests cover, and that are not checked again"""
TOLERANCE = {torch.float32: 0.01, torch.float64: 0.01}
OTHER_TOLERANCE = 0.2
"""for 16-bit floats, whose rounding depends on how many tokens are fed at once"""
STATE_TOLERANCE = {torch.float32: 0.001, torch.float64: 0.001}
OTHER_STATE_TOLERANCE = 0.02
"""the same of the first recurrent layer's state, whose inputs are equal. One that was lost differs by 0.06 or more."""
_passed: WeakKeyDictionary[PreTrainedModel, bool] = WeakKeyDictionary()
"""modules that were checked already, and whether they continue a state at once: transformers' ``generate`` passes the
same ones at every call"""


@torch.inference_mode()
def check_cache(model: LanguageModel) -> None:
    """Raise ``IncompatibleModels`` if a model's logits through our cache differ from those without a cache.

    Twelve tokens are fed in pieces, some of them rejected, and then as one text. At each position the
    relative distance is ‖cached − uncached‖ / ‖uncached‖. Its median must be below a tolerance, since rounding alone
    may make a mixture of experts route one token elsewhere. This rejects models that look ahead, keep a state that
    cannot be rolled back, or need more than tokens. For a model with recurrent layers it also decides whether its state
    is continued by several tokens at once.
    """
    adapted = getattr(model.module, "_hf_peft_config_loaded", False)  # an adapter lay beside the weights
    if model.module in _passed or (model.kind in PROVEN and not adapted):
        if model.recurrent is not None:
            model.recurrent.at_once = _passed.get(model.module, False)
        return
    most = tolerance(model.dtype)
    distance = _distance(model)
    if not distance <= most:
        raise _refusal(model, f"its logits {apart(distance)}")
    if model.recurrent is not None:
        state_tolerance = STATE_TOLERANCE.get(model.dtype, OTHER_STATE_TOLERANCE)
        model.recurrent.at_once = _state_distance(model) <= state_tolerance and _distance(model) <= most
    _passed[model.module] = model.recurrent is not None and model.recurrent.at_once


def _distance(model: LanguageModel) -> float:
    """Return the median relative distance of a text's logits in pieces from those of the whole."""
    vocabulary = min(model.vocabulary, model.model_vocab_size)
    tokens = _tokens(model)
    try:
        uncached = model.module(input_ids=tokens, use_cache=False).logits[..., :vocabulary].float()
        cached = _in_pieces(model, tokens)[..., :vocabulary]
    except FsdError:
        raise
    except Exception as error:  # architectures fail in many ways on a cache or a mask that they do not know
        raise _refusal(model, f"it fails with {type(error).__name__}") from error
    return relative_distance(cached, uncached)


def tolerance(dtype: torch.dtype) -> float:
    """Return the largest :func:`relative_distance` of logits that are equal up to rounding."""
    return TOLERANCE.get(dtype, OTHER_TOLERANCE)


def apart(distance: float) -> str:
    """Return a :func:`relative_distance` as text, such as ``differ by 40 %``."""
    return f"differ by {100 * distance:.0f} %" if math.isfinite(distance) else "are no finite numbers"


def relative_distance(found: Tensor, expected: Tensor) -> float:
    """Return the median over positions of ‖found − expected‖ / ‖expected‖, 0 where both are 0. [1,S,V], [1,S,V]"""
    difference, size = (found - expected).norm(dim=-1), expected.norm(dim=-1)
    return torch.where(difference == 0, 0, difference / size).median().item()


@torch.inference_mode()
def logits_of_twelve(module: nn.Module, model: PreTrainedModel) -> Tensor:
    """Return float32 logits [1,12,V] of the check's tokens by a ``module`` around ``model``."""
    size = model.config.get_text_config(decoder=True).vocab_size
    return module(input_ids=_twelve(size, model.device), use_cache=False).logits.float()


def _state_distance(model: LanguageModel) -> float:
    """Return the relative distance of the first recurrent state, after eight tokens and two more at once, from that
    after the two one by one. It is large if a module starts the two from an empty state, even where logits hardly
    depend on the state. Leaves the model feeding at once."""
    assert model.recurrent is not None
    states = []
    for model.recurrent.at_once in (False, True):
        cache = model.recurrent.new_cache(model.layers, 10, rows=1)
        model.forward(_tokens(model)[:, :8], cache)
        model.forward(_tokens(model)[:, 8:10], cache)
        states.append(cache.first_state())
    stepped, fed_at_once = states
    return ((fed_at_once - stepped).norm() / stepped.norm()).item()


def _tokens(model: LanguageModel) -> Tensor:
    """Return the twelve tokens of the check, int64 [1,12]."""
    return _twelve(min(model.vocabulary, model.model_vocab_size), model.device)


def _twelve(vocabulary: int, device: torch.device) -> Tensor:
    return (torch.arange(12, device=device)[None] * 7919 + 11) % vocabulary


def _in_pieces(model: LanguageModel, tokens: Tensor) -> Tensor:
    """Return logits [1,S,V] of a prompt, a half-accepted draft, the next tokens and a single token."""
    cache = model.new_cache(16)
    first = model.forward(tokens[:, :3], cache)
    accepted = model.forward(tokens[:, [3, 4, 3, 2]], cache)[:, :2]
    cache.rollback(5)
    rest = model.forward(tokens[:, 5:11], cache), model.forward(tokens[:, 11:], cache)
    return torch.cat([first, accepted, *rest], dim=1)


def _refusal(model: LanguageModel, reason: str) -> IncompatibleModels:
    return IncompatibleModels(
        f"A {model.kind} model of this kind is not supported: a text fed in pieces, with rollbacks, does not give the "
        f"logits of the whole text ({reason}). Expected a causal decoder whose layers attend to the prefix. Choose "
        "another pair."
    )
