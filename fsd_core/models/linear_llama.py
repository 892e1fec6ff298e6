"""A Llama whose attention is grouped linear attention (:mod:`fsd_core.ops.grouped_attention`), for training and use.

Everything else is transformers' Llama: norms, rotary positions, key heads that several query heads share, SwiGLU. The
class is known to transformers by its model type, so that a folder is loaded without code of its own.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, Cache, LlamaConfig, LlamaForCausalLM
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.linear_cache import LinearCache
from fsd_core.ops.grouped_attention import Sight, attend, normalised


class LinearLlamaConfig(LlamaConfig):
    """A Llama's configuration with the size of a group and the number of taps of the convolution."""

    model_type = "linear-llama"
    attention_group: int = 64
    attention_taps: int = 32
    use_cache: bool = False
    """transformers' own caches keep no state"""


class GroupedLinearAttention(LlamaAttention):
    """The attention of a layer. ``past_scale`` and ``kernel`` begin at 0, as published: attention to the own group."""

    def __init__(self, config: LinearLlamaConfig, layer_idx: int) -> None:
        super().__init__(config, layer_idx)
        self.past_scale = nn.Parameter(torch.zeros(()))
        self.kernel = nn.Parameter(torch.zeros(config.num_attention_heads, config.attention_taps))

    def forward(  # pyrefly: ignore[bad-override]
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        sight: Sight | None = None,
        cache: Cache | None = None,
        **kwargs: Any,
    ) -> tuple[Tensor, None]:
        """Return what the layer adds, [B,S,H]. ``sight``: of the tokens that a cache keeps and of the new ones; without
        a cache the tokens are whole texts. ``cache`` is what transformers called ``past_key_values`` before 5.24."""
        cache = past_key_values if cache is None else cache
        assert position_embeddings is not None
        shape = hidden_states.shape[:-1]
        parts = (
            part(hidden_states).view(*shape, -1, self.head_dim) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        queries, keys, values = (part.transpose(1, 2) for part in parts)
        queries, keys = map(normalised, apply_rotary_pos_emb(queries, keys, *position_embeddings))
        state = None
        if cache is not None:
            if not isinstance(cache, LinearCache):
                raise IncompatibleModels(
                    "A linear-llama model goes on over a state, which transformers' caches do not keep: decode with "
                    "this program, or pass use_cache=False."
                )
            keys, values = cache.update(keys, values, self.layer_idx)
            state = cache.states.get(self.layer_idx)
        if sight is None:
            sight = Sight.of_text(shape[1], self.config.attention_group, hidden_states.device)
        mixed = attend(queries, keys, values.to(queries.dtype), sight, self.past_scale, self.kernel, state)
        return self.o_proj(mixed.transpose(1, 2).reshape(*shape, -1)), None


class LinearLlama(LlamaForCausalLM):
    """The model. Without our cache it reads whole texts only. Raises ``ModelUnavailable`` for sizes that no attention
    has."""

    config_class = LinearLlamaConfig

    def __init__(self, config: LinearLlamaConfig) -> None:
        for name in ("attention_group", "attention_taps"):
            if not 1 <= (value := getattr(config, name)) <= config.max_position_embeddings:
                raise ModelUnavailable(
                    f"A linear-llama model's configuration says {name} {value}: expected 1 to "
                    f"{config.max_position_embeddings}. Restore its config.json from where it came."
                )
        super().__init__(config)
        for index, layer in enumerate(self.model.layers):
            layer.self_attn = GroupedLinearAttention(config, index)
        self.post_init()


AutoConfig.register(LinearLlamaConfig.model_type, LinearLlamaConfig)
AutoModelForCausalLM.register(LinearLlamaConfig, LinearLlama)
