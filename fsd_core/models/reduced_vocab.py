"""A draft on its target's embedding: layers of its own, and a head over the likeliest tokens only.

Embedding and head are most of a small model. Taken from the target, they cost no bytes and need no training. A head
over the K tokens that make up nearly all text is nearly as good as one over all V, at K/V of its cost. EAGLE-3 (arXiv
2503.01840) and FR-Spec (arXiv 2502.14856) draft this way. There the other tokens have no probability, so every
divergence that divides by q is infinite. Here they share evenly what the target gives them on average, ``rest_share``.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from fsd_core.errors import IncompatibleModels, ModelUnavailable
from fsd_core.models.json_files import read_object
from fsd_core.ops.linear import Linear, prepack_linear

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
