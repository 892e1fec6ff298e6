"""Weights that only draft: EAGLE heads, drafts on their target's embedding, and tables of tri-grams.

A draft on its target's embedding: layers of its own, and a head over the likeliest tokens only.

Embedding and head are most of a small model. Taken from the target, they cost no bytes and need no training. A head
over the K tokens that make up nearly all text is nearly as good as one over all V, at K/V of its cost. EAGLE-3 (arXiv
2503.01840) and FR-Spec (arXiv 2502.14856) draft this way. There the other tokens have no probability, so every
divergence that divides by q is infinite. Here they share evenly what the target gives them on average, ``rest_share``.

An EAGLE head: one decoder layer that continues from the target's hidden states.

Li et al. 2024 (EAGLE, arXiv 2401.15077; EAGLE-2, 2406.16858, drafts with the same heads), 2025 (EAGLE-3, 2503.01840).
A slot holds a token and the state before it. Slot i holds token i+1 and the target's state of token i. From these the
head predicts the state of token i+1 and so, through the LM head, the distribution of token i+2. Where the target has
not run yet, the head's own state takes the place of the target's.

Generation 1: x = W·[e; f], with f the target's state after its final norm and e the token's embedding. The layer has no
norm before its attention, and the target's LM head gives the logits. Generation 3: f is W·[three states]. Attention
reads [norm(e); norm(f)] and is added to f. A norm and an LM head over a part of the vocabulary give the logits.
:class:`HeadVariant` names what differs among heads of generation 3.

Tables of tri-grams: which tokens followed which two in training texts, and how often.

A table is a folder with ``model.safetensors``: ``keys`` int64 [K], ascending, first · V + second for a vocabulary of V
tokens; ``starts`` int32 [K+1], where the successors of each pair begin; ``tokens`` int32 [E] and ``weights`` float16
[E], the successors and their shares. Its metadata name V and the tokenizer, as JSON.
"""

from __future__ import annotations

import hashlib
import json
import math
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerBase
from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm, LlamaRotaryEmbedding

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.sources import read_object
from fsd_core.ops.kernels import Linear, prepack_linear

_OWNER_KEY = "embedding_of"
"""key of ``config.json`` that names the model whose embedding the draft needs"""


class ReducedHead(nn.Module):
    """Logits over all V tokens, computed for the K ``tokens`` and equal for the others.

    weight [K,H]; tokens int64 [K], all different; tail_mass: the total probability of the others, 0 ≤ tail_mass < 1.
    """

    tokens: Tensor

    def __init__(self, weight: Tensor, tokens: Tensor, vocabulary: int, tail_mass: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.register_buffer("tokens", tokens)
        self.vocabulary, self.tail_mass = vocabulary, tail_mass
        num_others = vocabulary - len(tokens)
        self.covers_all = tail_mass > 0 or not num_others
        self._other_offset = (
            math.log(tail_mass / (1 - tail_mass) / num_others) if tail_mass > 0 and num_others else -math.inf
        )
        self._product: Linear | None = None

    def prepack(self) -> None:
        """Copy the weight, now fixed, into the order in which it is multiplied."""
        self._product = prepack_linear(self.weight.data)

    def reduced_logits(self, hidden: Tensor) -> Tensor:
        """Return logits of ``tokens``. [..., H] → [..., K]"""
        return F.linear(hidden, self.weight) if self._product is None else self._product(hidden)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return logits over all tokens. [..., H] → [..., V]"""
        return self.expand_logits(self.reduced_logits(hidden))

    def expand_logits(self, logits: Tensor) -> Tensor:
        """Expand logits to all tokens. [..., K] → [..., V]. Softmax gives each other token tail_mass / (V − K)."""
        other_logit = logits.float().logsumexp(-1, keepdim=True) + self._other_offset
        full = other_logit.to(logits.dtype).expand(*logits.shape[:-1], self.vocabulary)
        return full.index_copy(-1, self.tokens, logits)


def draft_config(target: PreTrainedModel, owner: str, layers: int, head_tokens: int, tail_mass: float) -> LlamaConfig:
    """Return the configuration of a draft of ``layers`` layers on the embedding of ``target``, the Llama ``owner``."""
    settings = target.config.to_dict() | {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": layers,
        "tie_word_embeddings": False,
        "head_tokens": head_tokens,
        "rest_share": tail_mass,
        _OWNER_KEY: owner,
    }
    settings.pop("_model_name_or_path", None)  # the target's
    return LlamaConfig.from_dict(settings)


def assemble(config: LlamaConfig, target: PreTrainedModel, tokens: Tensor) -> LlamaForCausalLM:
    """Return the module: untrained layers between the target's embedding and rows of its head. tokens: int64 [K]."""
    module = LlamaForCausalLM(config)
    embedding, head = target.get_input_embeddings(), cast(nn.Linear, target.get_output_embeddings())
    module.set_input_embeddings(embedding.requires_grad_(False))
    settings: Any = config
    tokens = tokens.to(head.weight.device)
    cast(Any, module).lm_head = ReducedHead(head.weight.data[tokens], tokens, settings.vocab_size, settings.rest_share)
    return cast(Any, module).to(device=embedding.weight.device, dtype=embedding.weight.dtype)


def owner_of(folder: Path) -> str | None:
    """Return the model whose embedding the draft in a folder needs; ``None`` for a complete model."""
    owner = read_object(folder / "config.json").get(_OWNER_KEY)
    return owner if isinstance(owner, str) else None


def save(module: LlamaForCausalLM, folder: Path) -> None:
    """Save the draft's own weights, in bfloat16, and the tokens of its head."""
    module.config.save_pretrained(folder)
    weights = {name: value.bfloat16().contiguous() for name, value in _draft_weights(module).items()}
    tokens: Any = module.lm_head.tokens
    save_file(weights | {"lm_head.tokens": tokens.int()}, folder / "model.safetensors", {"format": "pt"})


def load(folder: Path, target: PreTrainedModel) -> LlamaForCausalLM:
    """Return the draft in ``folder`` on a loaded target, in its dtype and on its device.

    Raises ``IncompatibleModels`` for a target of another width or vocabulary, ``ModelUnavailable`` for broken files.
    """
    try:
        config: Any = LlamaConfig.from_pretrained(folder, local_files_only=True)
        weights = load_file(folder / "model.safetensors")
        tokens = weights.pop("lm_head.tokens").long()
        for size in ("hidden_size", "vocab_size"):
            expected, actual = getattr(config, size), getattr(target.config, size)
            if expected != actual:
                raise IncompatibleModels(
                    f"The draft in {folder} was trained on the embedding of {getattr(config, _OWNER_KEY)}, whose "
                    f"{size} is {expected}; that of the target is {actual}. Choose the target it was made for."
                )
        module = assemble(config, target, tokens)
        if weights.keys() != _draft_weights(module).keys():
            raise KeyError("tensors of other names")
        module.load_state_dict(weights, strict=False)
    except IncompatibleModels:
        raise
    except Exception as error:  # safetensors, transformers and torch raise any exception
        raise ModelUnavailable(
            f"The draft in {folder} cannot be loaded ({type(error).__name__}): expected config.json and an intact "
            "model.safetensors. Restore the folder from where it came."
        ) from error
    return module


def _draft_weights(module: LlamaForCausalLM) -> dict[str, Tensor]:
    """Return the weights that are not the target's."""
    shared = ("model.embed_tokens.", "lm_head.")
    return {name: value for name, value in module.state_dict().items() if not name.startswith(shared)}


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


_FILE = "model.safetensors"
_ABOUT = "trigrams"
_MADE_BY = "make one with `train trigrams`"


@dataclass(frozen=True, eq=False)
class TrigramCounts:
    """The heaviest successors of pairs of tokens, in the tensors that the module describes."""

    vocabulary: int
    keys: Tensor
    starts: Tensor
    tokens: Tensor
    weights: Tensor

    def following(self, pair: tuple[int, int]) -> dict[int, float]:
        """Return the successors of a pair with their shares; empty for a pair that never occurred."""
        key, keys = pair[0] * self.vocabulary + pair[1], self.keys.numpy()
        index = bisect_left(keys, key)
        if index == len(keys) or keys[index] != key:
            return {}
        successors = slice(int(self.starts[index]), int(self.starts[index + 1]))
        return dict(zip(self.tokens[successors].tolist(), self.weights[successors].tolist(), strict=True))


def count(texts: Iterable[Sequence[int]], vocabulary: int, most_successors: int = 12, least: int = 1) -> TrigramCounts:
    """Return the table of some texts, the ``most_successors`` commonest of each pair, of equal ones the lower ids.

    Tri-grams that occur less than ``least`` times are left out.
    """
    found: defaultdict[int, Counter[int]] = defaultdict(Counter)
    for text in texts:
        for first, second, token in zip(text, text[1:], text[2:], strict=False):
            found[first * vocabulary + second][token] += 1
    kept = {key: [item for item in tokens.items() if item[1] >= least] for key, tokens in found.items()}
    keys = sorted(key for key, items in kept.items() if items)
    heaviest = [sorted(kept[key], key=lambda item: (-item[1], item[0]))[:most_successors] for key in keys]
    ends = torch.tensor([0, *(len(successors) for successors in heaviest)]).cumsum(0)
    shares = [times / found[key].total() for key, each in zip(keys, heaviest, strict=True) for _, times in each]
    tokens = [token for each in heaviest for token, _ in each]
    return TrigramCounts(
        vocabulary, torch.tensor(keys, dtype=torch.int64), ends.int(), torch.tensor(tokens).int(),
        torch.tensor(shares).half(),
    )  # fmt: skip


def save_trigrams(counts: TrigramCounts, folder: Path, tokenizer: PreTrainedTokenizerBase) -> None:
    """Write a table of texts of this tokenizer."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {name: getattr(counts, name).contiguous() for name in ("keys", "starts", "tokens", "weights")}
    about = json.dumps({"vocabulary": counts.vocabulary, "tokenizer": _digest(tokenizer)})
    save_file(tensors, folder / _FILE, {_ABOUT: about})  # one entry: several come in any order


def load_trigrams(folder: Path, tokenizer: PreTrainedTokenizerBase) -> TrigramCounts:
    """Return the table in ``folder``. Raises ``ModelUnavailable`` for a damaged one, ``IncompatibleModels`` for one of
    another tokenizer."""
    try:
        with safe_open(folder / _FILE, "pt") as file:
            about = json.loads((file.metadata() or {})[_ABOUT])
            counts = TrigramCounts(
                int(about["vocabulary"]), *(file.get_tensor(name) for name in ("keys", "starts", "tokens", "weights"))
            )
    except (OSError, SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ModelUnavailable(
            f"The table of tri-grams in {folder} cannot be read ({type(error).__name__}): {_MADE_BY}."
        ) from error
    if about.get("tokenizer") != _digest(tokenizer):
        raise IncompatibleModels(
            f"The table of tri-grams in {folder} was made for another tokenizer than the target's: {_MADE_BY}."
        )
    if not _is_whole(counts):
        raise ModelUnavailable(f"The table of tri-grams in {folder} is damaged: {_MADE_BY}.")
    return counts


def _is_whole(counts: TrigramCounts) -> bool:
    keys, starts, tokens, weights = counts.keys, counts.starts, counts.tokens, counts.weights
    sizes = [list(part.shape) for part in (keys, starts, tokens, weights)]
    if sizes != [[len(keys)], [len(keys) + 1], [len(tokens)], [len(tokens)]]:
        return False
    if [part.dtype for part in (keys, starts, tokens, weights)] != [torch.int64, torch.int32, torch.int32, torch.half]:
        return False
    ascending = bool((keys.diff() > 0).all() and (starts.diff() > 0).all())
    covers = starts[0] == 0 and starts[-1] == len(tokens)
    tops = (keys, counts.vocabulary**2), (tokens, counts.vocabulary)
    known = all(bool(((part >= 0) & (part < top)).all()) for part, top in tops)
    return ascending and bool(covers) and known and bool(((weights > 0) & (weights <= 1)).all())


def _digest(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return 16 hex digits of the SHA-256 of a tokenizer's tokens and their ids."""
    return hashlib.sha256(json.dumps(sorted(tokenizer.get_vocab().items())).encode()).hexdigest()[:16]
