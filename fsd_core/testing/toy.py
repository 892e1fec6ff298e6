"""Tiny random pairs, for tests that need real models but no trained ones."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any, TypeVar

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from fsd_core.config import ChainTopology, DecodingConfig, FuzzyReducible, SamplingConfig
from fsd_core.models.eagle import EagleHead, Generation
from fsd_core.models.eagle_files import new_head
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.models.specs import PairSpec

END = "<|end|>"
SAMPLED_FSD = DecodingConfig(
    acceptance=FuzzyReducible(threshold=0.05),
    topology=ChainTopology(length=3),
    sampling=SamplingConfig(temperature=1.0),
    max_new_tokens=10,
)
"""ten tokens by a fuzzy rule at temperature 1"""
Model = TypeVar("Model", bound=PreTrainedModel)


def toy_tokenizer() -> PreTrainedTokenizerFast:
    """Return a tokenizer with one token per byte and an end token, which has the last id."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    core = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate([*alphabet, END])}, merges=[]))
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    core.add_special_tokens([END])
    return PreTrainedTokenizerFast(tokenizer_object=core, eos_token=END, pad_token=END)


def toy_model(vocabulary: int, seed: int, layers: int = 2, hidden: int = 32, context: int = 256) -> LlamaForCausalLM:
    """Return a random Llama in float32. Its logits are spread wide, so some tokens are clearly likelier than others."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = LlamaForCausalLM(LlamaConfig(**_shape(vocabulary, layers, hidden, context)))
    return model.eval()


def _shape(vocabulary: int, layers: int, hidden: int, context: int) -> dict[str, Any]:
    """Return the fields of a toy's configuration. Its last token ends a text."""
    return {
        "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": 2 * hidden, "num_hidden_layers": layers,
        "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": context,
        "initializer_range": 0.15, "tie_word_embeddings": False, "bos_token_id": None,
        "eos_token_id": vocabulary - 1, "pad_token_id": vocabulary - 1,
    }  # fmt: skip


def related(model: Model, noise: float, seed: int) -> Model:
    """Return a copy whose matrices are disturbed by ``noise`` of their standard deviation: a draft that mostly
    agrees."""
    generator = torch.Generator().manual_seed(seed)
    copy = deepcopy(model)
    with torch.no_grad():
        for weight in copy.parameters():
            if weight.ndim == 2:
                weight += noise * weight.std() * torch.randn(weight.shape, generator=generator).to(weight.device)
    return copy.eval()


TOY = PairSpec("toy", "Toy pair", "Random weights.", Path("toy/target"), Path("toy/draft"))


def toy_pair(noise: float = 0.3, seed: int = 0) -> LoadedPair:
    """Return a random target with a disturbed copy of it as draft."""
    tokenizer = toy_tokenizer()
    target = toy_model(len(tokenizer), seed)
    return make_pair(TOY, tokenizer, target, related(target, noise, seed + 1))


def in_memory(target: LanguageModel, draft: LanguageModel) -> LoadedPair:
    """Return two models as a pair, for prompts of token ids."""
    return LoadedPair(TOY, toy_tokenizer(), target, draft, str(target.device), "float32")


def save_toy_pair(folder: Path, noise: float = 0.3, seed: int = 0) -> str:
    """Write a toy pair under ``folder`` and return the name that loads it."""
    pair = toy_pair(noise, seed)
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        model.module.save_pretrained(folder / role)
        pair.tokenizer.save_pretrained(folder / role)
    return f"path:{folder}"


def toy_head(
    target: PreTrainedModel, generation: Generation = 1, seed: int = 0, covered: int | None = None
) -> EagleHead:
    """Return a random EAGLE head for a random target. ``covered``: number of tokens it can draft, all by default."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return new_head(target, generation, None if covered is None else torch.arange(covered)).for_drafting()
