"""A draft with a shorter context than the target drafts as far as it can. The target goes on."""

from __future__ import annotations

import pytest

from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DynamicTreeTopology,
    MultiDraftTopology,
    Speculative,
    TopologySettings,
)
from fsd_core.decoding.decoder import GeneratedText, PairDecoder
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.rules.several import RecursiveRejection
from fsd_core.testing import TOY, related, toy_model, toy_tokenizer

SHORT, LONG = 48, 96
PROMPTS = ("Nine hens lay seven eggs.", "Nine hens.", "Nine hens lay seven eggs each day, and each of them is sold.")


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    """The last prompt alone is longer than the context of the draft."""
    tokenizer = toy_tokenizer()
    target = toy_model(len(tokenizer), 0, context=LONG)
    target.generation_config.eos_token_id = None
    draft = related(target, 0.02, 1)
    draft.config.max_position_embeddings = SHORT
    return make_pair(TOY, tokenizer, target, draft)


def decoded(
    pair: LoadedPair, rows: int, acceptance: AcceptanceConfig, topology: TopologySettings
) -> list[GeneratedText]:
    config = DecodingConfig(acceptance=acceptance, topology=topology, max_new_tokens=200)
    decoder = PairDecoder(pair, config)
    decoder.eos = frozenset()
    prompts = [decoder.prompt_ids(prompt) for prompt in PROMPTS]
    found = dict(decoder.generate_all(prompts, [0] * len(prompts), rows))
    return [found[index] for index in range(len(prompts))]


@pytest.mark.parametrize("rows", [1, 2, 3])
def test_texts_fill_the_context_of_the_target(pair: LoadedPair, rows: int) -> None:
    plain = decoded(pair, rows, Autoregressive(), ChainTopology(length=4))
    texts = decoded(pair, rows, Speculative(), ChainTopology(length=4))
    assert [(text.tokens, text.stop_reason) for text in texts] == [(text.tokens, "context") for text in plain]
    for prompt, text in zip(PROMPTS, texts, strict=True):
        assert len(prompt) + len(text.tokens) == LONG
        end = len(prompt)
        for record in text.records:
            assert not record.drafted or end + len(record.drafted) <= SHORT
            end += len(record.emitted)
        drafted = any(record.drafted for record in text.records)
        assert drafted == (len(prompt) < SHORT) or rows > 1  # beside a text that is too long none is drafted


@pytest.mark.parametrize("topology", [DynamicTreeTopology(), MultiDraftTopology(length=3, drafts=2)])
def test_trees_and_several_drafts_end_there_too(pair: LoadedPair, topology: TopologySettings) -> None:
    plain = decoded(pair, 1, Autoregressive(), ChainTopology(length=4))
    acceptance = Speculative() if isinstance(topology, DynamicTreeTopology) else RecursiveRejection()
    texts = decoded(pair, 1, acceptance, topology)
    assert [len(text.tokens) for text in texts] == [len(text.tokens) for text in plain]
