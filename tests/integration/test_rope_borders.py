"""Rotary frequencies that depend on the length of a text: it ends where they would change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from fsd_core.config import AcceptanceConfig, Autoregressive, ChainTopology, DecodingConfig, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import PromptTooLong
from fsd_core.models.sources import context
from tests.tools.toy_families import PROMPT, SIZE, pair_of, toy_family

BORDER = 48
LONG = {
    "rope_type": "longrope", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": BORDER,
    "short_factor": [1.0] * 4, "long_factor": [6.0, 5.0, 4.0, 3.0],
}  # fmt: skip


def model_of(rope: dict[str, Any], **size: Any) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return LlamaForCausalLM(LlamaConfig(**(SIZE | size), rope_parameters=dict(rope))).eval()


@pytest.mark.parametrize(
    ("rope", "size"),
    [
        (LONG, {}),
        ({"rope_type": "dynamic", "rope_theta": 10_000.0, "factor": 4.0}, {"max_position_embeddings": BORDER}),
    ],
    ids=["longrope", "dynamic"],
)
@pytest.mark.parametrize("acceptance", [Autoregressive(), Speculative()])
def test_a_text_is_the_targets_own_up_to_the_border_and_ends_there(
    rope: dict[str, Any], size: dict[str, int], acceptance: AcceptanceConfig
) -> None:
    model = model_of(rope, **size)
    pair = pair_of(model, noise=0.02)
    prompt = pair.tokenizer(PROMPT)["input_ids"]
    room = BORDER - len(prompt)
    expected: list[int] = []
    with torch.no_grad():
        while len(expected) < room:  # without a cache
            logits = model(input_ids=torch.tensor([prompt + expected]), use_cache=False).logits
            expected.append(int(logits[0, -1].argmax()))
    config = DecodingConfig(acceptance=acceptance, topology=ChainTopology(length=4), max_new_tokens=100)
    text = PairDecoder(pair, config).generate(prompt, seed=0)
    assert (text.tokens, text.stop_reason) == (expected, "context")
    with pytest.raises(PromptTooLong, match=f"context holds {BORDER}"):
        PairDecoder(pair, config).generate(prompt + expected, seed=0)


YARN = {"rope_theta": 10_000.0, "factor": 4.0}
TWO_KINDS = {"full_attention": {"rope_type": "linear", "factor": 8.0}, "sliding_attention": {"rope_type": "default"}}


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"rope_parameters": YARN | {"rope_type": "yarn", "original_max_position_embeddings": 48}}, 256),
        ({"rope_parameters": YARN | {"rope_type": "yarn", "original_max_position_embeddings": 256}}, 1024),
        ({"rope_scaling": YARN | {"type": "yarn", "original_max_position_embeddings": 64}}, 256),
        ({"rope_scaling": YARN | {"type": "yarn"}}, 1024),
        ({"rope_scaling": {"type": "linear", "factor": 4.0}}, 1024),
        ({"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}}, 512),
        ({"rope_parameters": TWO_KINDS}, 256),  # Gemma 3, whose positions count the factor in
        ({"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 64}}, 256),
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 8e6}, "model_max_length": 4096}, 4096),  # Command R
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, 256),
        ({"rope_scaling": {"type": "su", "factor": 4.0}, "original_max_position_embeddings": 48}, 48),
        ({"model_max_length": 4096}, 256),  # learned positions have no rows beyond
        ({"rope_scaling": [1], "text_config": None}, 256),
        ({"rope_scaling": {"type": "linear", "factor": "four"}}, 256),
    ],
)
def test_the_context_is_what_frequencies_reach(fields: dict[str, Any], expected: int) -> None:
    assert context({"max_position_embeddings": 256} | fields) == expected
    assert context({"text_config": {"max_position_embeddings": 256} | fields}) == expected


@pytest.mark.parametrize(
    "fields",
    [
        {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10_000.0}},
        {"rope_parameters": {"rope_type": "yarn", "factor": 4.0, "rope_theta": 10_000.0}},
        {"rope_scaling": {"type": "linear", "factor": 4.0}},
        {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": BORDER}},
        {"model_max_length": 4 * BORDER},
    ],
    ids=["linear", "yarn", "linear as before", "yarn as before", "longer than in training"],
)
@pytest.mark.parametrize("family", ["llama", "qwen3"])
def test_a_text_beyond_the_positions_of_training_is_what_transformers_writes(
    family: str, fields: dict[str, Any]
) -> None:
    model = toy_family(family, max_position_embeddings=BORDER, eos_token_id=[], **fields)
    pair = pair_of(model, noise=0.02)
    prompt = pair.tokenizer(PROMPT * 3)["input_ids"]
    assert len(prompt) > 2 * BORDER
    room = 4 * BORDER - len(prompt)
    expected = model.generate(torch.tensor([prompt]), max_new_tokens=room, do_sample=False)[0, len(prompt) :].tolist()
    for acceptance in (Autoregressive(), Speculative()):
        config = DecodingConfig(acceptance=acceptance, topology=ChainTopology(length=4), max_new_tokens=room + 9)
        text = PairDecoder(pair, config).generate(prompt, seed=0)
        assert (text.tokens, text.stop_reason) == (expected, "context")
