"""Forwards of models: one class for each way to run one.

Llama's forward with as few operations as possible.

At batch size 1 a small model spends its time on launching operations, not on computing them. transformers' forward
launches about fifty per layer, this one about twenty. On the CPU the weights are stored in the order in which they are
multiplied. The result is the same up to rounding, which a test verifies. Any other architecture, or a Llama with
anything unusual, runs through transformers.

A Llama whose attention is grouped linear attention (:mod:`fsd_core.ops.kernels`), for training and use.

Everything else is transformers' Llama: norms, rotary positions, key heads that several query heads share, SwiGLU. The
class is known to transformers by its model type, so that a folder is loaded without code of its own.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from inspect import getsource, signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig, AutoModelForCausalLM, Cache, LlamaConfig, LlamaForCausalLM, PreTrainedModel
from transformers.activations import SiLUActivation
from transformers.models.llama import modeling_llama
from transformers.models.llama.modeling_llama import LlamaAttention, apply_rotary_pos_emb

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.caches import KVCache, LinearCache, RecurrentCache, causal_mask
from fsd_core.models.forward import AuxHiddenStates, FixedInputs, Forward, cache_name
from fsd_core.ops.kernels import Compiled, Linear, Sight, TreeAttention, attend, normalised, prepack_linear

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


class RecurrentForward(Forward):
    """A module with recurrent layers, called for one text that does not branch.

    A rollback restores the checkpoint before the round's drafts. The next forward feeds the accepted tokens after it
    again, then copies the state, then feeds the new tokens.

    ``at_once``: whether the module continues a state by several tokens in one call. Mamba's module does not: it starts
    several tokens from an empty state. A check sets this (:func:`fsd_core.models.loading.check_cache`). Without a
    check, tokens after the first call are fed one by one, as every module can.
    """

    one_text = True

    def __init__(self, module: PreTrainedModel) -> None:
        config = module.config.get_text_config(decoder=True)
        self._run, self._kind = ModuleForward(module), config.model_type
        self._recurrent = recurrent_layers(module)
        self._num_states: int = getattr(config, "number_of_conv_states", 1)
        self.at_once = False

    def new_cache(self, layers: int, capacity: int, rows: int) -> RecurrentCache:
        if rows > 1:
            raise IncompatibleModels(
                f"A {self._kind} model keeps a recurrent state, which is of one text: feed it one text at a time."
            )
        return RecurrentCache(layers, capacity, self._num_states)

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Raises for a tree, and for a module whose state is not in the cache."""
        assert isinstance(cache, RecurrentCache)
        if tree_attention is not None:
            raise IncompatibleModels(
                f"A {self._kind} model keeps a recurrent state, which follows one chain: choose the topology chain."
            )
        missing = cache.missing()
        if missing is not None:
            self._feed(missing, cache, 1)
        parts: list[AuxHiddenStates] = []
        known = tokens.shape[1] - logits_to_keep
        if known > logits_to_keep:  # a prompt is fed by itself, so that no rollback reaches into it
            parts += self._feed(tokens[:, :known], cache, 1, aux_hidden_states)[1]
            cache.rollback(cache.length)
            tokens = tokens[:, known:]
        cache.checkpoint()
        logits, last_parts = self._feed(tokens, cache, logits_to_keep, aux_hidden_states)
        if aux_hidden_states is not None:
            aux_hidden_states.keep_joined([*parts, *last_parts])
        return logits

    def _feed(
        self, tokens: Tensor, cache: RecurrentCache, logits_to_keep: int, aux: AuxHiddenStates | None = None
    ) -> tuple[Tensor, list[AuxHiddenStates]]:
        """Append ``tokens``. Return logits of the last ``logits_to_keep``, and the hidden states of the layers that
        ``aux`` names, of one piece of the tokens after the other."""
        is_first = not cache.length
        logits, parts = [], []
        for piece in [tokens] if is_first or self.at_once else tokens.split(1, 1):
            if aux is not None:
                parts.append(AuxHiddenStates(aux.layers))
            cache.record(piece)
            logits.append(
                self._run(piece, cache, min(logits_to_keep, piece.shape[1]), None, parts[-1] if parts else None)
            )
        if is_first and not all(map(cache.has_previous_state, self._recurrent)):
            raise IncompatibleModels(
                f"A {self._kind} model of this kind is not supported: it keeps its recurrent state in the module, not "
                "in the cache, so rejected tokens cannot be taken back. Choose another pair."
            )
        return torch.cat(logits, 1)[:, -logits_to_keep:], parts


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

_PIECE = 4
"""groups of a prompt that are fed at once: the time of a prompt grows with its length, and not with the square"""


class LinearForward(Forward):
    """A :class:`LinearLlama`, called for one text, which may branch."""

    one_text = True

    def __init__(self, module: LinearLlama) -> None:
        self._module, self._group, self._taps = module, module.config.attention_group, module.config.attention_taps
        self._cache_name = cache_name(module)

    def new_cache(self, layers: int, capacity: int, rows: int) -> LinearCache:
        if rows > 1:
            raise IncompatibleModels(
                "A model with linear attention keeps the state of one text: feed it one at a time."
            )
        return LinearCache(layers, capacity, self._group, self._taps)

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        assert isinstance(cache, LinearCache)
        if (missing := cache.missing()) is not None:
            self._feed(missing, cache, 1)
        parts: list[AuxHiddenStates] = []
        piece, known = _PIECE * self._group, tokens.shape[1] - logits_to_keep
        while tree_attention is None and known > piece:  # part of a prompt, which no rollback reaches
            parts += self._feed(tokens[:, :piece], cache, 1, aux_hidden_states)[1]
            cache.rollback(cache.length)
            tokens, known = tokens[:, piece:], known - piece
        logits, last = self._feed(tokens, cache, logits_to_keep, aux_hidden_states, tree_attention)
        if aux_hidden_states is not None:
            aux_hidden_states.keep_joined([*parts, *last])
        return logits

    def _feed(
        self,
        tokens: Tensor,
        cache: LinearCache,
        logits_to_keep: int,
        aux: AuxHiddenStates | None = None,
        tree: TreeAttention | None = None,
    ) -> tuple[Tensor, list[AuxHiddenStates]]:
        """Append ``tokens``. Return the last logits, and the hidden states of the layers that ``aux`` names."""
        start, count = cache.length, tokens.shape[1]
        cache.fold(None if tree is None else tree.prefix)
        cache.record(tokens)
        keys = torch.arange(cache.base, start + count, device=tokens.device)
        if tree is None:
            queries = keys[-count:]
            visible = keys <= queries[:, None]
        else:
            queries = tree.position_ids(count)[0]
            keys = torch.cat([keys[: tree.prefix - cache.base], tree.prefix + tree.depths])
            visible = tree.mask(count)[0, 0, :, cache.base :]
        output = self._module(
            input_ids=tokens,
            position_ids=queries[None],
            **{self._cache_name: cache},
            use_cache=True,
            logits_to_keep=logits_to_keep,
            output_hidden_states=aux is not None,
            sight=Sight.of(visible, queries, keys, self._group),
        )
        parts = []
        if aux is not None:
            part = AuxHiddenStates(aux.layers)
            part.keep([output.hidden_states[index] for index in aux.layers])
            parts.append(part)
        cache.advance(count)
        return output.logits, parts
