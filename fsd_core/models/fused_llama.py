"""Llama's forward with as few operations as possible.

At batch size 1 a small model spends its time on launching operations, not on computing them. transformers' forward
launches about fifty per layer, this one about twenty. On the CPU the weights are stored in the order in which they are
multiplied. The result is the same up to rounding, which a test verifies. Any other architecture, or a Llama with
anything unusual, runs through transformers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama

from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.cuda_graphs import FixedInputs
from fsd_core.models.forward import Forward
from fsd_core.models.kv_cache import KVCache, causal_mask
from fsd_core.ops.compiled import Compiled
from fsd_core.ops.linear import Linear, prepack_linear
from fsd_core.ops.tree_attention import TreeAttention

_PLAIN = {
    nn.Embedding, nn.Linear, nn.ModuleList, SiLUActivation, modeling_llama.LlamaModel, modeling_llama.LlamaDecoderLayer,
    modeling_llama.LlamaAttention, modeling_llama.LlamaMLP, modeling_llama.LlamaRMSNorm,
    modeling_llama.LlamaRotaryEmbedding,
}  # fmt: skip
"""modules whose arithmetic is done here"""
STATIC_ROPE = ("default", "linear", "llama3")
"""types of rotary positions whose tables do not depend on the text"""


@dataclass(frozen=True, slots=True)
class _Layer:
    """Weights of a layer, projections of the same input fused row-wise."""

    qkv: Linear
    """H → (query heads + 2 key heads) x head size"""
    out: Linear
    mlp_norm: Tensor
    gate_up: Linear
    """H → 2 x intermediate"""
    down: Linear


def _fuse(*linears: Any) -> Tensor:
    """Return one matrix of the weights' rows. The modules' weights become views of it, so nothing is stored twice."""
    fused = torch.cat([part.weight.data for part in linears])
    for part, rows in zip(linears, fused.split([part.weight.shape[0] for part in linears]), strict=True):
        part.weight.data = rows
    return fused


def rotated(heads: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions (Su et al. 2021). heads: [B,S,heads,d]; cos, sin: [B or 1,S,1,d], the first half of sin
    negated → [B,S,heads,d]"""
    return torch.addcmul(heads * cos, heads.roll(heads.shape[-1] // 2, -1), sin)


def added(x: Tensor, more: Tensor, weight: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """Return x + more, and its norm (Zhang and Sennrich 2019). [B,S,H] each; weight: [H]"""
    x = x + more
    return x, F.rms_norm(x, weight.shape, weight, epsilon)


def gated(gate_up: Tensor) -> Tensor:
    """Return silu(gate)·up (Shazeer 2020). [B,S,2·I] → [B,S,I]"""
    gate, up = gate_up.chunk(2, -1)
    return F.silu(gate) * up


class FusedLlama(Forward):
    """The forward of a Llama whose weights are in memory. Check :meth:`supports` first."""

    def __init__(self, module: PreTrainedModel, context: int) -> None:
        config, model = module.config, module.model
        self._queries, self._keys = config.num_attention_heads, config.num_key_value_heads
        self._size = model.layers[0].self_attn.head_dim
        self._epsilon: float = config.rms_norm_eps
        self._rotated, self._added, self._gated = (Compiled(part, module.device) for part in (rotated, added, gated))
        self._embedding = model.embed_tokens.weight.data
        # Of each layer before its attention, then of the last state.
        self._norms = [*(layer.input_layernorm.weight.data for layer in model.layers), model.norm.weight.data]
        self._head = prepack_linear(module.lm_head.weight.data)
        # A head with a reduced vocabulary (models.reduced_vocab) expands its logits to all tokens.
        self._expand_logits = getattr(module.lm_head, "expand_logits", lambda logits: logits)
        self._layers = [
            _Layer(
                prepack_linear(_fuse(layer.self_attn.q_proj, layer.self_attn.k_proj, layer.self_attn.v_proj)),
                prepack_linear(layer.self_attn.o_proj.weight.data),
                layer.post_attention_layernorm.weight.data,
                prepack_linear(_fuse(layer.mlp.gate_proj, layer.mlp.up_proj)),
                prepack_linear(layer.mlp.down_proj.weight.data),
            )
            for layer in model.layers
        ]
        positions = torch.arange(context, device=module.device)[None]
        with torch.no_grad():
            cos, sin = model.rotary_emb(self._embedding, position_ids=positions)  # [1,context,size] each
        # rotate_half(x)·sin is a roll by half times sin with its first half negated: one operation instead of four.
        half = self._size // 2
        sin = torch.cat([-sin[..., :half], sin[..., half:]], -1)
        self._cos, self._sin = cos[0, :, None].contiguous(), sin[0, :, None].contiguous()  # [context,1,size]

    @staticmethod
    def supports(module: PreTrainedModel) -> bool:
        """Whether a module is a plain Llama: on one device, unquantised, without biases, adapters, hooks or moving
        rotary tables."""
        config = module.config
        rope = getattr(config, "rope_parameters", None) or {}
        devices = {(parameter.device, parameter.dtype) for parameter in module.parameters()}
        return (
            config.model_type == "llama"
            and not config.attention_bias
            and not config.mlp_bias
            and config.hidden_act == "silu"
            and rope.get("rope_type", "default") in STATIC_ROPE
            and len(devices) == 1
            and not getattr(module, "is_quantized", False)
            and all(type(part) in _PLAIN for part in module.model.modules())
            and (type(module.lm_head) is nn.Linear or hasattr(module.lm_head, "expand_logits"))
            and not any(part._forward_hooks or part._forward_pre_hooks for part in module.modules())
        )

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        start, count = cache.length, tokens.shape[1]
        position_ids = cache.reserve(count, tokens.device)
        if tree_attention is not None:
            mask, position_ids = tree_attention.mask(count), tree_attention.position_ids(count)
        elif count == 1 and position_ids is None:  # one token, which attends to all
            mask = None
        else:
            queries = torch.arange(start, start + count, device=tokens.device)[None]
            mask = causal_mask(queries if position_ids is None else position_ids, start + count)
        logits = self._forward(tokens, mask, cache, logits_to_keep, position_ids, aux_hidden_states)
        cache.advance(count)
        return logits

    def at_fixed_positions(self, inputs: FixedInputs, cache: KVCache) -> Tensor:
        """Return logits [R,S,V] of inputs for which the cache has reserved places. Reads nothing else that changes, as
        ``models.cuda_graphs`` requires."""
        count = inputs.tokens.shape[1]
        return self._forward(inputs.tokens, inputs.visible, cache, count, inputs.position_ids, inputs.aux)

    def _forward(
        self,
        tokens: Tensor,
        mask: Tensor | None,
        cache: KVCache,
        logits_to_keep: int,
        position_ids: Tensor | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Return logits of the last ``logits_to_keep`` positions, [B,logits_to_keep,V].

        tokens: int64 [B,S], appended to the cache. mask: bool [B or 1,1,S,L] over all L = length + S positions, or
        ``None`` if all are visible (S = 1). position_ids: int64 [B,S], or ``None`` if they follow the cache's length
        in all rows.
        """
        batch, count = tokens.shape
        if position_ids is None:
            positions: slice | Tensor = slice(cache.length, cache.length + count)
        else:
            positions = position_ids.clamp_max(len(self._cos) - 1)
        cos, sin = self._cos[positions], self._sin[positions]
        groups = self._queries // self._keys
        x = F.embedding(tokens, self._embedding)
        if mask is not None:
            mask = mask.expand(-1, groups, -1, -1).reshape(len(mask), 1, groups * count, -1)
            # Added to the scores. Every layer's attention would make this of the booleans.
            mask = torch.zeros(mask.shape, dtype=x.dtype, device=x.device).masked_fill_(~mask, -math.inf)
        aux_layers, states = () if aux_hidden_states is None else aux_hidden_states.layers, {}
        h = F.rms_norm(x, self._norms[0].shape, self._norms[0], self._epsilon)
        for index, layer in enumerate(self._layers):
            if index in aux_layers:
                states[index] = x
            heads = layer.qkv(h).view(batch, count, -1, self._size)
            qk, value = heads.split([self._queries + self._keys, self._keys], 2)
            query, key = self._rotated(qk, cos, sin).transpose(1, 2).split([self._queries, self._keys], 1)
            keys, values = cache.update(key, value.transpose(1, 2), index)
            # Queries that share a key head are stacked as further positions of that head.
            query = query.reshape(batch, self._keys, groups * count, self._size)
            mixed = F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)
            mixed = mixed.reshape(batch, self._queries, count, self._size).transpose(1, 2).reshape(batch, count, -1)
            x, h = self._added(x, layer.out(mixed), layer.mlp_norm, self._epsilon)
            x, h = self._added(x, layer.down(self._gated(layer.gate_up(h))), self._norms[index + 1], self._epsilon)
        if aux_hidden_states is not None:
            aux_hidden_states.keep([(states | {len(self._layers): h})[index] for index in aux_layers])
        return self._expand_logits(self._head(h[:, -logits_to_keep:]))
