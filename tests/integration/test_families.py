"""Every family of models that a preset names decodes rightly, at toy size with random weights."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from accelerate import dispatch_model
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from fsd_core.config import ChainTopology, DecodingConfig, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import make_pair
from fsd_core.testing import related, toy_model, toy_pair, toy_tokenizer
from tests.tools.toy_families import PROMPT, SIZE, VOCABULARY, check_greedy_sd_is_the_greedy_target

# A window shorter than the texts, so that a layer which ignored it would be found out.
FAMILIES = {
    "llama": LlamaConfig(**SIZE),
    "gemma2": Gemma2Config(
        **SIZE, sliding_window=9, query_pre_attn_scalar=8, attn_logit_softcapping=2.0, final_logit_softcapping=5.0
    ),
    "qwen2": Qwen2Config(**SIZE),
    "qwen2-sliding": Qwen2Config(**SIZE, use_sliding_window=True, sliding_window=9, max_window_layers=2),
    "qwen3": Qwen3Config(**SIZE),
    "mistral": MistralConfig(**SIZE, sliding_window=9),
}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> PreTrainedModel:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return AutoModelForCausalLM.from_config(FAMILIES[request.param]).eval()


@torch.inference_mode()
def test_logits_through_our_cache_are_those_of_the_whole_text(family: PreTrainedModel) -> None:
    tokens = torch.randint(VOCABULARY, (1, 40), generator=torch.Generator().manual_seed(0))
    whole = family(tokens).logits
    model, at = LanguageModel(family), 0
    cache = model.new_cache(64)
    for count in (17, 1, 6, 1, 9, 6):  # a prompt, single steps, verifications
        ours = model.forward(tokens[:, at : at + count], cache)
        torch.testing.assert_close(ours, whole[:, at : at + count], atol=1e-4, rtol=1e-3)
        at += count
    cache.rollback(21)
    torch.testing.assert_close(model.forward(tokens[:, 21:28], cache), whole[:, 21:28], atol=1e-4, rtol=1e-3)


@pytest.mark.wide
def test_greedy_sd_is_the_greedy_target(family: PreTrainedModel) -> None:
    check_greedy_sd_is_the_greedy_target(family, noise=0.2, tokens=24)


@pytest.mark.wide
def test_a_target_spread_over_several_devices_decodes_as_on_one(tmp_path: Path) -> None:
    """Half of the layers live on disk here, as they would on a second GPU: accelerate brings their inputs to them."""
    family = toy_pair().target.module
    prompt = toy_tokenizer()(PROMPT)["input_ids"]
    theirs = family.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :].tolist()
    draft = related(family, 0.2, seed=1)
    places = {"model.layers.1": "disk", "model.norm": "disk", "lm_head": "disk"}
    places |= dict.fromkeys(("model.embed_tokens", "model.rotary_emb", "model.layers.0"), "cpu")
    spread = dispatch_model(deepcopy(family), places, main_device="cpu", offload_dir=str(tmp_path))
    assert any(parameter.is_meta for parameter in spread.parameters())
    pair = make_pair(toy_pair().spec, toy_tokenizer(), spread, draft)
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=4), max_new_tokens=24)
    assert PairDecoder(pair, config).generate(prompt, seed=0).tokens == theirs


@pytest.mark.parametrize("extra", [-5, 5])
def test_a_draft_may_lack_the_last_tokens_or_have_more(extra: int) -> None:
    """The distribution stays the target's over all of its own tokens."""
    target = toy_model(VOCABULARY, seed=0)
    draft = toy_model(VOCABULARY + extra, seed=0)  # the same seed, but for rows that there are more or fewer of
    pair = make_pair(toy_pair().spec, toy_tokenizer(), target, draft)
    assert pair.target.vocabulary == VOCABULARY
    prompt = [*toy_tokenizer()(PROMPT)["input_ids"], VOCABULARY - 1]  # a token that the smaller draft does not know
    theirs = target.generate(torch.tensor([prompt]), max_new_tokens=48, do_sample=False)[0, len(prompt) :].tolist()
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=4), max_new_tokens=48)
    assert PairDecoder(pair, config).generate(prompt, seed=0).tokens == theirs
    row = pair.draft.forward(torch.tensor([prompt]), pair.draft.new_cache(99), logits_to_keep=1).softmax(-1)[0, 0]
    assert row.shape == (VOCABULARY,)
    assert bool((row[VOCABULARY + min(extra, 0) :] == 0).all())
