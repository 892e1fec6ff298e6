"""Rotary frequencies that depend on the length of a text: it ends where they would change."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel

from fsd_core.config import AcceptanceConfig, Autoregressive, ChainTopology, DecodingConfig, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import PromptTooLong
from fsd_core.models.language_model import context_of
from tests.tools.toy_families import PROMPT, SIZE, pair_of

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


def test_frequencies_that_never_change_limit_nothing() -> None:
    yarn = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": BORDER}
    assert context_of(model_of(yarn).config) == SIZE["max_position_embeddings"]
