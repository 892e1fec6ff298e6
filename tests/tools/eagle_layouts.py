"""EAGLE heads with random weights, written in each published layout, and their distributions in plain torch."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional as F

LAYERS, VOCABULARY, WIDTH, DRAFTED = 8, 40, 32, 24
"""of the target, and how many tokens a head with a reduced vocabulary drafts"""
HEADS, KEY_HEADS, SIZE = 4, 2, 8

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": WIDTH, "intermediate_size": 48, "num_attention_heads": HEADS,
    "num_key_value_heads": KEY_HEADS, "head_dim": SIZE, "num_hidden_layers": 1, "hidden_act": "silu",
    "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": None, "max_position_embeddings": 256,
    "vocab_size": VOCABULARY, "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False,
    "bos_token_id": 0, "eos_token_id": 39, "torch_dtype": "bfloat16", "transformers_version": "4.53.2",
    "use_cache": True, "initializer_range": 0.02,
}  # fmt: skip
"""the layer, as a flat ``config.json`` describes it"""
EAGLE_3 = LLAMA | {"architectures": ["LlamaForCausalLMEagle3"], "draft_vocab_size": DRAFTED}


def speculators(kind: str, layer: dict[str, Any] | None = None, **own: Any) -> dict[str, Any]:
    """Return ``config.json`` of a ``kind`` ("eagle", "eagle3") as speculators writes it."""
    return {
        "architectures": ["Eagle3DraftModel" if kind == "eagle3" else "EagleSpeculator"],
        "auto_map": {"": "config.Eagle3SpeculatorConfig"},
        "base_model_ep_plan": None,
        "dtype": "bfloat16",
        "has_no_defaults_at_init": False,
        "model_type": "speculator_model",
        "speculators_config": {"algorithm": kind, "verifier": {"name_or_path": "someone/target"}},
        "speculators_model_type": kind,
        "speculators_version": "0.4.0",
        "transformer_layer_config": {k: v for k, v in LLAMA.items() if k != "num_hidden_layers"} | (layer or {}),
        **own,
    }


@dataclass(frozen=True)
class Layout:
    """A published layout. ``inputs``: the layers whose inputs the head reads, [n]; L: the state after the last norm."""

    config: dict[str, Any]
    inputs: tuple[int, ...]
    generation: int = 3
    prefix: str = "midlayer."
    renamed: dict[str, str] = field(default_factory=dict[str, str])
    """beginnings of names of tensors, here → in the file"""
    norm_before_residual: bool = False
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_output: bool = False
    fc_bias: bool = False
    own: bool = True
    """whether it has an embedding of its own"""
    tied: bool = False
    """whether that is its LM head, over all tokens"""
    width: int = WIDTH
    """of the head's own states, H"""

    def weights(self, seed: int = 0) -> dict[str, Tensor]:
        """Return random weights that bfloat16 holds exactly, under plain names."""
        generator = torch.Generator().manual_seed(seed)
        count, first, width = len(self.inputs), self.generation == 1, self.width
        reads, keys, queries = width if first else 2 * width, KEY_HEADS * SIZE, HEADS * SIZE
        shapes: dict[str, tuple[int, ...]] = {
            "fc.weight": (width, 2 * width if first else count * WIDTH),
            "layer.self_attn.q_proj.weight": (queries, reads), "layer.self_attn.k_proj.weight": (keys, reads),
            "layer.self_attn.v_proj.weight": (keys, reads), "layer.self_attn.o_proj.weight": (width, queries),
            "layer.mlp.gate_proj.weight": (48, width), "layer.mlp.up_proj.weight": (48, width),
            "layer.mlp.down_proj.weight": (width, 48), "layer.post_attention_layernorm.weight": (width,),
        }  # fmt: skip
        if not first:
            shapes |= {"layer.input_layernorm.weight": (width,), "layer.hidden_norm.weight": (width,)}
            shapes |= {"norm.weight": (width,)} | ({} if self.tied else {"lm_head.weight": (DRAFTED, width)})
        shapes |= {"fc.bias": (width,)} if self.fc_bias else {}
        shapes |= {"embed_tokens.weight": (VOCABULARY, width)} if self.own else {}
        shapes |= {"input_norm.weight": (count * WIDTH,)} if self.norm_before_fc else {}
        shapes |= {f"fc_norm.{i}.weight": (WIDTH,) for i in range(count)} if self.fc_norm else {}
        drawn = {name: torch.randn(shape, generator=generator) * 0.3 for name, shape in shapes.items()}
        weights = {name: (1 + x if x.ndim == 1 else x).bfloat16().float() for name, x in drawn.items()}
        if not first and not self.tied:
            chosen = torch.randperm(VOCABULARY, generator=generator)[:DRAFTED].sort().values
            known = torch.zeros(VOCABULARY, dtype=torch.bool)
            known[chosen] = True
            weights |= {"d2t": chosen - torch.arange(DRAFTED), "t2d": known}
        return weights

    def write(self, folder: Path, seed: int = 0) -> Path:
        """Write the head into ``folder`` and return it."""
        names = {"layer.": self.prefix, **self.renamed}
        tensors: dict[str, Tensor] = {}
        for name, value in self.weights(seed).items():
            start = next((start for start in names if name.startswith(start)), "")
            tensors[names.get(start, "") + name.removeprefix(start)] = value
        return write(folder, self.config, tensors)

    def distributions(
        self, weights: dict[str, Tensor], states: Tensor, embedding: Tensor, lm_head: Tensor, tokens: list[int]
    ) -> list[Tensor]:
        """Return what the head drafts behind a text, and behind each of the ``tokens`` drafted after it: [V] each.

        states: the target's, of all tokens of the text but the last, [T−1,n·H]. tokens: those of the text but the
        first, then the drafted ones. embedding, lm_head: [V,H], the target's.
        """
        w, found, count = weights, list[Tensor](), len(states)
        embedding = w.get("embed_tokens.weight", embedding)
        if self.norm_before_fc:
            states = _norm(states, w["input_norm.weight"])
        if self.fc_norm:
            parts = states.split(WIDTH, -1)
            states = torch.cat([_norm(part, w[f"fc_norm.{i}.weight"]) for i, part in enumerate(parts)], -1)
        f = states if self.generation == 1 else states @ w["fc.weight"].T
        for end in range(count, len(tokens) + 1):
            last = self._layer(w, f, embedding[torch.tensor(tokens[:end])])[-1]
            if self.generation == 1:
                following, logits = last, lm_head @ last
            else:
                normed = _norm(last, w["norm.weight"])
                following = normed if self.norm_output else last
                if self.tied:
                    logits = embedding @ normed
                else:
                    logits = torch.full((VOCABULARY,), -torch.inf)
                    logits[torch.arange(DRAFTED) + w["d2t"]] = w["lm_head.weight"] @ normed
            found.append(logits.softmax(-1))
            f = torch.cat([f, following[None]])
        return found

    def _layer(self, w: dict[str, Tensor], f: Tensor, e: Tensor) -> Tensor:
        """f, e: [S,H] → [S,H]"""
        if self.generation == 1:
            x = read = torch.cat([e, f], -1) @ w["fc.weight"].T + w.get("fc.bias", torch.zeros(self.width))
        else:
            normed = _norm(f, w["layer.hidden_norm.weight"])
            x = normed if self.norm_before_residual else f
            read = torch.cat([_norm(e, w["layer.input_layernorm.weight"]), normed], -1)
        q, k, v = ((read @ w[f"layer.self_attn.{part}_proj.weight"].T).view(len(e), -1, SIZE) for part in "qkv")
        q, k = _rotate(q), _rotate(k)
        k, v = (part.repeat_interleave(HEADS // KEY_HEADS, 1) for part in (k, v))
        scores = torch.einsum("ihd,jhd->hij", q, k) / SIZE**0.5
        mask = torch.ones(len(e), len(e)).tril() == 0
        mixed = torch.einsum("hij,jhd->ihd", scores.masked_fill(mask, -torch.inf).softmax(-1), v).flatten(1)
        x = x + mixed @ w["layer.self_attn.o_proj.weight"].T
        h = _norm(x, w["layer.post_attention_layernorm.weight"])
        gated = F.silu(h @ w["layer.mlp.gate_proj.weight"].T) * (h @ w["layer.mlp.up_proj.weight"].T)
        return x + gated @ w["layer.mlp.down_proj.weight"].T


def write(folder: Path, config: dict[str, Any], tensors: dict[str, Tensor]) -> Path:
    """Write ``config.json`` and ``model.safetensors`` into ``folder`` and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors")
    return folder


def _norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * weight


def _rotate(x: Tensor) -> Tensor:
    """[S,heads,d] at positions 0 to S − 1."""
    angles = torch.arange(len(x))[:, None] * 10000.0 ** (-torch.arange(0, SIZE, 2) / SIZE)
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)


_MODELOPT = {
    "use_aux_hidden_state": True, "use_input_layernorm_in_first_layer": True, "use_last_layernorm": True,
    "use_mtp_layernorm": False, "next_layer_regular": True, "parallel_draft_step": 1,
    "parallel_draft_heads_num_layers": None,
}  # fmt: skip
LAYOUTS = {
    "eagle-3": Layout(EAGLE_3, (2, 4, 5)),
    "specforge": Layout(
        EAGLE_3 | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 4, 6]}, "max_window_layers": 36,
                   "sliding_window": None, "use_sliding_window": False}, (2, 5, 7), own=False,
    ),
    "sglang, eagle 3.1": Layout(
        EAGLE_3 | {"fc_norm": True, "norm_output": True, "num_aux_hidden_states": 3}, (2, 4, 5),
        prefix="model.midlayer.", renamed={"fc": "model.fc", "norm": "model.norm"}, fc_norm=True, norm_output=True,
    ),
    "modelopt": Layout(
        EAGLE_3 | {"eagle_config": _MODELOPT | {"eagle_aux_hidden_state_layer_ids": [1, 3, 4]}}, (2, 4, 5),
        prefix="layers.0.",
    ),
    "modelopt, inputs": Layout(
        EAGLE_3 | {"eagle_config": _MODELOPT | {"eagle_aux_hidden_state_layer_ids": [2, 4, 5], "norm_before_fc": True}},
        (2, 4, 5), prefix="layers.0.", norm_before_fc=True,
    ),
    "vllm": Layout(
        EAGLE_3 | {"architectures": ["Eagle3LlamaForCausalLM"], "eagle_aux_hidden_state_layer_ids": [2, 3, 7],
                   "norm_before_residual": True, "target_hidden_size": WIDTH}, (2, 3, 7), prefix="layers.0.",
        norm_before_residual=True,
    ),
    "narrower than its target": Layout(
        EAGLE_3 | {"hidden_size": 16, "target_hidden_size": WIDTH}, (2, 4, 5), width=16,
    ),
    "tied to its embedding": Layout(
        EAGLE_3 | {"draft_vocab_size": None, "tie_word_embeddings": True}, (2, 4, 5), tied=True,
    ),
    "four states": Layout(EAGLE_3 | {"eagle_aux_hidden_state_layer_ids": [0, 3, 5, 7]}, (0, 3, 5, 7)),
    "speculators": Layout(
        speculators("eagle3", draft_vocab_size=DRAFTED, norm_before_residual=False, target_hidden_size=None,
                    eagle_aux_hidden_state_layer_ids=None, embed_requires_grad=False),
        (2, 4, 5), prefix="layers.0.",
    ),
    "speculators, as trained today": Layout(
        speculators("eagle3", draft_vocab_size=DRAFTED, norm_before_residual=True, norm_before_fc=True, fc_norm=False,
                    norm_output=True, eagle_aux_hidden_state_layer_ids=[3, 4, 6], tie_word_embeddings=False,
                    layer={"tie_word_embeddings": True, "layer_types": ["full_attention"]}),
        (3, 4, 6), prefix="layers.0.", norm_before_residual=True, norm_before_fc=True, norm_output=True,
    ),
    "speculators, eagle-1": Layout(
        speculators("eagle", fusion_bias=True, layernorms=False, transformer_layer_architecture="LlamaDecoderLayer"),
        (LAYERS,), generation=1, prefix="transformer.", renamed={"fc.": "fusion_fc."}, fc_bias=True,
    ),
}  # fmt: skip
"""what each program writes; the ids count outputs where it counts outputs"""
