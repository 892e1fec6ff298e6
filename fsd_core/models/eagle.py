"""An EAGLE head: one decoder layer that continues from the target's hidden states.

Li et al. 2024 (EAGLE, arXiv 2401.15077; EAGLE-2, 2406.16858, drafts with the same heads), 2025 (EAGLE-3, 2503.01840).
A slot holds a token and the state before it. Slot i holds token i+1 and the target's state of token i. From these the
head predicts the state of token i+1 and so, through the LM head, the distribution of token i+2. Where the target has
not run yet, the head's own state takes the place of the target's.

Generation 1: x = W·[e; f], with f the target's state after its final norm and e the token's embedding. The layer has no
norm before its attention, and the target's LM head gives the logits. Generation 3: f is W·[three states]. Attention
reads [norm(e); norm(f)] and is added to f. A norm and an LM head over a part of the vocabulary give the logits.
:class:`HeadVariant` names what differs among heads of generation 3.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from fsd_core.models.reduced_vocab import ReducedHead
from fsd_core.ops.linear import prepack_linear

Generation = Literal[1, 3]
Attend = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(queries [B,heads,S,d], keys and values [B,key heads,S,d], of the fed slots) → mixed values [B,heads,S,d]"""


@dataclass(frozen=True)
class HeadVariant:
    """Differences among heads of generation 3. The defaults are EAGLE-3's own; ``fc_norm`` and ``norm_output`` are
    EAGLE 3.1's."""

    aux_hidden_state_layers: tuple[int, ...] | None = None
    """the hidden states it reads, as ``AuxHiddenStates`` counts them; ``None``: :func:`aux_hidden_state_layers`"""
    norm_before_residual: bool = False
    """attention is added to norm(f) in place of f"""
    norm_before_fc: bool = False
    """the target's states are normed together before W"""
    fc_norm: bool = False
    """each of the target's states is normed before W, with a weight of its own"""
    norm_output: bool = False
    """the head goes on from its state behind the last norm"""

    @property
    def num_states(self) -> int:
        """How many of the target's hidden states it reads."""
        return len(self.aux_hidden_state_layers or range(3))


PLAIN = HeadVariant()


def aux_hidden_state_layers(generation: Generation, layers: int) -> tuple[int, ...]:
    """Return which hidden states of a target with ``layers`` layers a head reads, as ``AuxHiddenStates`` counts them:
    an early, a middle and a late one, or the last."""
    return (layers,) if generation == 1 else (2, layers // 2, layers - 3)


def attention_sizes(config: LlamaConfig) -> tuple[int, int, int]:
    """Return the size of one head, of all query heads and of all key heads."""
    size: int = config.head_dim or config.hidden_size // config.num_attention_heads
    return size, config.num_attention_heads * size, (config.num_key_value_heads or config.num_attention_heads) * size


class _Attention(nn.Module):
    def __init__(self, config: LlamaConfig, inputs: int, bias: bool) -> None:
        super().__init__()
        self.size, queries, keys = attention_sizes(config)
        self.q_proj = nn.Linear(inputs, queries, bias=bias)
        self.k_proj = nn.Linear(inputs, keys, bias=bias)
        self.v_proj = nn.Linear(inputs, keys, bias=bias)
        self.o_proj = nn.Linear(queries, config.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, attend: Attend) -> Tensor:
        """x: [B,S,inputs]; cos, sin: [B or 1,S,d] → [B,S,H]"""
        query, key, value = (
            part(x).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = attend(_rotate(query, cos, sin), _rotate(key, cos, sin), value)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


def _rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary positions (Su et al. 2021). [B,heads,S,d]"""
    left, right = x.chunk(2, -1)
    return x * cos[:, None] + torch.cat([-right, left], -1) * sin[:, None]


class _Prepacked(nn.Module):
    """A linear layer without a bias and with a fixed weight, [out,in]: ``ops.linear``'s product with it."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self._product = linear.weight, prepack_linear(linear.weight.data)

    def forward(self, x: Tensor) -> Tensor:
        """[...,in] → [...,out]"""
        return self._product(x)


class _HeadLayer(nn.Module):
    def __init__(self, config: LlamaConfig, generation: Generation, bias: bool) -> None:
        super().__init__()
        width, epsilon = config.hidden_size, config.rms_norm_eps
        self.self_attn = _Attention(config, width if generation == 1 else 2 * width, bias)
        self.mlp = LlamaMLP(config)
        self.post_attention_layernorm = LlamaRMSNorm(width, epsilon)
        if generation == 3:
            self.input_layernorm = LlamaRMSNorm(width, epsilon)
            self.hidden_norm = LlamaRMSNorm(width, epsilon)


class EagleHead(nn.Module):
    """Drafts for the target whose ``embedding`` (float [V,H]) it receives.

    config: a Llama's, for the layer. head: maps states to logits over all V tokens. state_width: the size of one of the
    target's states, H'. bias, fc_bias: whether the attention's projections, and the first map, have a bias. owns: which
    of embedding and head are not the target's, as the names of their tensors in files.
    """

    def __init__(
        self,
        config: LlamaConfig,
        generation: Generation,
        embedding: Tensor,
        head: ReducedHead,
        *,
        state_width: int,
        bias: bool = False,
        fc_bias: bool = False,
        variant: HeadVariant = PLAIN,
        owns: frozenset[str] = frozenset(),
    ) -> None:
        super().__init__()
        self.generation: Generation = generation
        self.variant, self.owns = variant, owns
        self.config, width, epsilon = config, config.hidden_size, config.rms_norm_eps
        self.embedding = embedding
        num_states = variant.num_states
        self.fc = nn.Linear(2 * width if generation == 1 else num_states * state_width, width, bias=fc_bias)
        self.layers = nn.ModuleList([_HeadLayer(config, generation, bias)])
        if generation == 3:
            self.norm = LlamaRMSNorm(width, epsilon)
        if variant.norm_before_fc:
            self.input_norm = LlamaRMSNorm(num_states * state_width, epsilon)
        if variant.fc_norm:
            self.fc_norm = nn.ModuleList(LlamaRMSNorm(state_width, epsilon) for _ in range(num_states))
        self.lm_head = head
        self.rotary = LlamaRotaryEmbedding(config)

    @property
    def covers_all(self) -> bool:
        """Whether every token can be drafted. Otherwise a divergence that divides by q is infinite."""
        return self.lm_head.covers_all

    def aux_layers(self, layers: int) -> tuple[int, ...]:
        """Return which hidden states of a target with ``layers`` layers it reads, as ``AuxHiddenStates`` counts."""
        return self.variant.aux_hidden_state_layers or aux_hidden_state_layers(self.generation, layers)

    def begin(self, states: Tensor) -> Tensor:
        """Return the target's states, [B,S,·], as :meth:`forward` takes them: [B,S,H]."""
        if self.generation == 1:
            return states
        if self.variant.norm_before_fc:
            states = self.input_norm(states)
        if self.variant.fc_norm:
            parts = states.chunk(len(self.fc_norm), -1)
            states = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], -1)
        return self.fc(states)

    def forward(self, states: Tensor, tokens: Tensor, position_ids: Tensor, attend: Attend) -> Tensor:
        """Return the next states, [B,S,H].

        states: [B,S,H] before the tokens, the head's own or from :meth:`begin`; tokens: int64 [B,S]; position_ids: the
        slots' positions, int64 [B or 1,S].
        """
        layer: Any = self.layers[0]
        embedded = F.embedding(tokens, self.embedding)
        cos, sin = self.rotary(embedded, position_ids)
        if self.generation == 1:
            x = attention_input = self.fc(torch.cat([embedded, states], -1))
        else:
            normed = layer.hidden_norm(states)
            x = normed if self.variant.norm_before_residual else states
            attention_input = torch.cat([layer.input_layernorm(embedded), normed], -1)
        x = x + layer.self_attn(attention_input, cos, sin, attend)
        x = x + layer.mlp(layer.post_attention_layernorm(x))
        return self.norm(x) if self.variant.norm_output else x

    def reduced_logits(self, states: Tensor) -> Tensor:
        """Return logits over the reduced vocabulary. [...,H] → [...,K]"""
        is_normed = self.generation == 1 or self.variant.norm_output
        return self.lm_head.reduced_logits(states if is_normed else self.norm(states))

    def logits(self, states: Tensor) -> Tensor:
        """Return logits over all tokens. [...,H] → float32 [...,V]"""
        return self.lm_head.expand_logits(self.reduced_logits(states).float())

    def for_drafting(self) -> EagleHead:
        """Freeze the head, put its weights into the order in which they are multiplied, and return it."""
        self.eval().requires_grad_(False)
        for module in list(self.modules()):
            for name, part in module.named_children():
                if isinstance(part, nn.Linear) and part.bias is None:
                    module.register_module(name, _Prepacked(part))
        self.lm_head.prepack()
        return self
