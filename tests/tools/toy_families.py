"""Models of transformers' families at toy size, and what greedy decoding of them must come to."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from fsd_core.config import Autoregressive, ChainTopology, DecodingConfig, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.testing import TOY, related, toy_tokenizer

TOKENIZER = toy_tokenizer()
VOCABULARY = len(TOKENIZER)
SIZE: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 4,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "max_position_embeddings": 256,
    "initializer_range": 0.15, "bos_token_id": None, "eos_token_id": VOCABULARY - 1, "pad_token_id": VOCABULARY - 1,
}  # fmt: skip
PROMPT = "Nine hens lay seven eggs each day."


def pair_of(target: PreTrainedModel, noise: float) -> LoadedPair:
    """The target with a draft whose weights differ from its own by so much ``noise``."""
    return make_pair(TOY, TOKENIZER, target, related(target, noise, seed=1))


def check_greedy_sd_is_the_greedy_target(target: PreTrainedModel, noise: float, tokens: int) -> None:
    """Fails unless the loop, without and with a draft, writes the ``tokens`` that transformers writes."""
    pair = pair_of(target, noise)
    prompt = pair.tokenizer(PROMPT)["input_ids"]
    theirs = target.generate(torch.tensor([prompt]), max_new_tokens=tokens, do_sample=False)[0, len(prompt) :].tolist()
    rounds = {}
    for rule in (Autoregressive(), Speculative()):
        config = DecodingConfig(acceptance=rule, topology=ChainTopology(length=4), max_new_tokens=tokens)
        generation = PairDecoder(pair, config).generate(prompt, seed=0)
        assert generation.tokens == theirs
        rounds[rule.kind] = len(generation.records)
    assert rounds["speculative"] < rounds["autoregressive"]  # or no draft was ever accepted, and nothing was proved


def toy_family(family: str, seed: int = 0, **size: Any) -> PreTrainedModel:
    """A family's causal model with random weights, of ``SIZE`` but for the fields in ``size``. ``None`` leaves a field
    to the family."""
    fields = {name: value for name, value in (SIZE | size).items() if value is not None}
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(AutoConfig.for_model(family, **fields)).eval()
