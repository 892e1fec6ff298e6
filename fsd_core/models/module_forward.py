"""The forward of any decoder through its transformers module, with our cache and masks."""

from __future__ import annotations

import sys
from inspect import getsource, signature
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fsd_core.errors import IncompatibleModels
from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.forward import Forward, cache_name
from fsd_core.models.kv_cache import KVCache, causal_mask
from fsd_core.ops.tree_attention import TreeAttention

FULL, SLIDING = "full_attention", "sliding_attention"
RECURRENT = {"linear_attention": None, "conv": None, "hybrid": FULL, "hybrid_sliding": SLIDING}
"""transformers' kinds of layers with a recurrent state, and the attention that stands beside it in the same layer"""
STATELESS = ("moe", "mlp")
"""kinds of layers that keep nothing of a text"""


def layer_kinds(module: PreTrainedModel) -> list[str]:
    """Return the distinct kinds of attention among a decoder's layers; none if all are alike and unnamed.

    Raises ``IncompatibleModels`` for architectures whose state the cache cannot roll back (encoder-decoders, and layers
    that attend to something else).
    """
    named: set[str] = set(getattr(module.config.get_text_config(decoder=True), "layer_types", None) or ())
    kinds = {RECURRENT.get(kind, kind) for kind in named} - {None, *STATELESS}
    if module.config.is_encoder_decoder or not kinds <= {FULL, SLIDING}:
        raise IncompatibleModels(
            f"A {module.config.model_type} model of this kind is not supported: expected a decoder whose layers "
            "attend to the whole prefix, or to a sliding window of it, or keep a recurrent state. Choose another pair."
        )
    return sorted(kind for kind in kinds if kind is not None)


def recurrent_layers(module: PreTrainedModel) -> list[int]:
    """Return the indices of a decoder's layers that keep a recurrent state."""
    kinds = getattr(module.config.get_text_config(decoder=True), "layer_types", None) or ()
    return [index for index, kind in enumerate(kinds) if kind in RECURRENT]


def _slides(module: PreTrainedModel) -> bool:
    """Whether the code of a model's family reads ``sliding_window``, which any configuration may hold."""
    files = {type(part).__module__ for part in module.modules()}
    return any("sliding_window" in getsource(sys.modules[file]) for file in files if file.startswith("transformers."))


class ModuleForward(Forward):
    """A module, called with positions and masks derived from the cache. Raises like :func:`layer_kinds`."""

    def __init__(self, module: PreTrainedModel) -> None:
        config = module.config.get_text_config(decoder=True)
        self._module, self._kind = module, config.model_type
        self._window: int | None = getattr(config, "sliding_window", None) if _slides(module) else None
        self._kinds = layer_kinds(module)
        self._biased = self._kind == "bloom" or bool(getattr(config, "alibi", False))
        self._recurrent = bool(recurrent_layers(module))
        self._cache_name = cache_name(module)
        # Models of recurrent layers alone take neither positions nor masks.
        self._placed = "position_ids" in signature(module.forward).parameters

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Raises also for a tree, or rows of different lengths, if the model takes no positions."""
        output = self._module(
            input_ids=tokens,
            **self._positions(tokens, cache, tree_attention),
            **{self._cache_name: cache},
            use_cache=True,
            logits_to_keep=logits_to_keep,
            output_hidden_states=aux_hidden_states is not None,
        )
        if aux_hidden_states is not None:
            aux_hidden_states.keep([output.hidden_states[index] for index in aux_hidden_states.layers])
        cache.advance(tokens.shape[1])
        return output.logits[:, -logits_to_keep:]  # some architectures return all, whatever is requested

    def _positions(self, tokens: Tensor, cache: KVCache, tree_attention: TreeAttention | None) -> dict[str, Any]:
        """Reserve cache positions for the tokens. Return their position ids and masks."""
        start, count = cache.length, tokens.shape[1]
        position_ids = cache.reserve(count, tokens.device)
        if self._biased:
            if position_ids is not None or tree_attention is not None:
                raise IncompatibleModels(
                    f"The attention bias of a {self._kind} model supports only one text without branches: "
                    "choose a chain and a batch of 1."
                )
            return {}
        if not self._placed:
            return {}
        if tree_attention is not None:
            position_ids = tree_attention.position_ids(count)
        elif position_ids is None:
            position_ids = torch.arange(start, start + count, device=tokens.device)[None]
        return {
            "position_ids": position_ids,
            "attention_mask": self._masks(position_ids, start + count, tree_attention),
        }

    def _masks(
        self, position_ids: Tensor, end: int, tree_attention: TreeAttention | None
    ) -> Tensor | dict[str, Tensor]:
        """Return complete masks, which transformers passes to the layers unchanged: one, or one per kind of layer.

        The cache keeps every position, so that it can be rolled back. A sliding window is only a mask.
        """
        if self._recurrent:  # no mask for the state, which no padding reaches
            masks: dict[str, Any] = dict.fromkeys(RECURRENT)
            return masks | {
                kind: self._mask(position_ids, end, None, self._window if kind == SLIDING else None)
                for kind in {FULL, *self._kinds}
            }
        if not self._kinds:
            return self._mask(position_ids, end, tree_attention, self._window)
        windows = {kind: self._window if kind == SLIDING else None for kind in self._kinds}
        masks = {kind: self._mask(position_ids, end, tree_attention, window) for kind, window in windows.items()}
        return masks[FULL] if self._kinds == [FULL] else masks

    def _mask(self, position_ids: Tensor, end: int, tree_attention: TreeAttention | None, window: int | None) -> Tensor:
        count = position_ids.shape[1]
        mask = causal_mask(position_ids, end, window) if tree_attention is None else tree_attention.mask(count, window)
        if self._module.config._attn_implementation != "eager":
            return mask
        # transformers' eager attention, which models with capped scores use, adds the mask to the scores.
        dtype = self._module.dtype
        return torch.zeros_like(mask, dtype=dtype).masked_fill_(~mask, torch.finfo(dtype).min)
