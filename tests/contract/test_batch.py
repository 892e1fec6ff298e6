"""Texts side by side are written as each is alone (float32), by every method."""

from __future__ import annotations

import time
from itertools import count

import pytest
import torch
from transformers import AutoModelForCausalLM, Gemma2Config

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    PromptLookupDrafter,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import Batch
from fsd_core.errors import IncompatibleOptions, PromptTooLong
from fsd_core.models.caches import KVCache, causal_mask, uncached_tokens
from fsd_core.models.loading import LoadedPair, make_pair
from fsd_core.testing import related, toy_model, toy_pair, toy_tokenizer

RULES = [
    Autoregressive(), DraftOnly(), Speculative(), Fuzzy(threshold=0.08), FuzzyReducible(threshold=0.08),
    FuzzyReducible(threshold=0.3, divergence="random"), FuzzyOfficial(threshold=0.3),
]  # fmt: skip
PROMPTS = [[3, 1, 4, 1, 5, 9, 2, 6], [7], [2, 7, 1, 8], [1] * 40, [5, 3, 5, 8, 9], [6, 6, 2], [8] * 17]
SEEDS = [11, 12, 13, 14, 15, 16, 17]


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair(noise=0.3)


def settings(rule, temperature: float = 1.0) -> DecodingConfig:
    return DecodingConfig(
        acceptance=rule,
        topology=ChainTopology(length=4),
        sampling=SamplingConfig(temperature=temperature, top_p=0.9) if temperature else SamplingConfig(),
        max_new_tokens=21,
    )


def side_by_side(decoder: PairDecoder, rows: int) -> list:
    found = dict(decoder.generate_all(PROMPTS, SEEDS, rows))
    return [found[place] for place in range(len(PROMPTS))]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_a_text_is_what_it_is_alone(pair: LoadedPair, rule, temperature: float) -> None:
    decoder = PairDecoder(pair, settings(rule, temperature))
    # An end token that some texts meet and others do not, so that rows leave and are filled again.
    decoder.eos = frozenset()
    decoder.eos = frozenset({decoder.generate(PROMPTS[2], SEEDS[2]).tokens[5]})
    alone = [decoder.generate(prompt, seed) for prompt, seed in zip(PROMPTS, SEEDS, strict=True)]
    assert "eos" in {generation.stop_reason for generation in alone}
    for rows in (1, 3, 16):
        for ours, theirs in zip(side_by_side(decoder, rows), alone, strict=True):
            assert ours.tokens == theirs.tokens
            assert ours.stop_reason == theirs.stop_reason
            for one, other in zip(ours.records, theirs.records, strict=True):
                assert (one.drafted, one.accepted, one.kinds) == (other.drafted, other.accepted, other.kinds)
                assert one.divergence == pytest.approx(other.divergence, abs=1e-4)
                assert one.emitted_probability == pytest.approx(other.emitted_probability, abs=1e-4)


def test_texts_advance_by_different_amounts(pair: LoadedPair) -> None:
    decoder = PairDecoder(pair, settings(Speculative()))
    batch = Batch(decoder.method, frozenset(), 80, 3)
    texts = [batch.put(row, PROMPTS[row], SEEDS[row]) for row in range(3)]
    spread = 0
    for _ in range(4):
        batch.run_round()
        written = [len(text.history) - len(prompt) for text, prompt in zip(texts, PROMPTS, strict=False)]
        spread = max(spread, max(written) - min(written))
        assert batch.cache.lengths == [len(text.history) - 1 for text in texts]
    assert spread >= 3


def test_an_architecture_of_transformers_own_forward_too() -> None:
    """Soft-capping, and a window shorter than the texts."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = Gemma2Config(
            vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, head_dim=8, max_position_embeddings=256, initializer_range=0.15, sliding_window=9,
            bos_token_id=None, eos_token_id=256, pad_token_id=256,
        )  # fmt: skip
        target = AutoModelForCausalLM.from_config(config).eval()
    gemma = make_pair(toy_pair().spec, toy_tokenizer(), target, related(target, 0.2, seed=1))
    decoder = PairDecoder(gemma, settings(Speculative(), temperature=0.0))
    alone = [decoder.generate(prompt, seed).tokens for prompt, seed in zip(PROMPTS, SEEDS, strict=True)]
    assert [generation.tokens for generation in side_by_side(decoder, 4)] == alone


def test_a_row_at_the_end_of_the_context_does_not_disturb_the_others() -> None:
    target = toy_model(257, seed=0, context=48)
    narrow = make_pair(toy_pair().spec, toy_tokenizer(), target, related(target, 0.3, seed=1))
    decoder = PairDecoder(narrow, settings(Speculative()))
    decoder.eos = frozenset()
    alone = [decoder.generate(prompt, seed) for prompt, seed in zip(PROMPTS, SEEDS, strict=True)]
    assert alone[3].stop_reason == "context"
    assert [g.tokens for g in side_by_side(decoder, 7)] == [g.tokens for g in alone]


def test_the_seconds_of_all_texts_are_those_of_the_whole(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that goes on by a second each time it is read."""
    clock, rounds = count(), []
    monkeypatch.setattr(time, "perf_counter", lambda: float(next(clock)))
    monkeypatch.setattr(Batch, "run_round", lambda batch, of=Batch.run_round: (rounds.append(1), of(batch))[1])
    found = side_by_side(PairDecoder(pair, settings(Speculative())), 4)
    whole = float(next(clock))
    # A round reads it at its beginning, behind the draft and at its end; a text, when its prompt is fed.
    assert sum(generation.seconds for generation in found) == pytest.approx(2 * len(rounds) + len(PROMPTS))
    assert all(0 < generation.time_to_first_token < whole for generation in found)


def test_what_one_row_alone_can_do_is_refused_for_several(pair: LoadedPair) -> None:
    config = DecodingConfig(acceptance=Speculative(), drafter=PromptLookupDrafter())
    with pytest.raises(IncompatibleOptions, match="one text at a time"):
        Batch(PairDecoder(pair, config).method, frozenset(), 64, 2)
    batch = Batch(PairDecoder(pair, settings(Speculative())).method, frozenset(), 300, 2)
    with pytest.raises(PromptTooLong):
        batch.put(0, [1] * pair.target.context, 0)


def test_rows_of_a_cache_are_written_where_they_end() -> None:
    cache = KVCache(layers=1, capacity=8, rows=2)
    cache.lengths = [1, 3]
    assert cache.reserve(2, torch.device("cpu")).tolist() == [[1, 2], [3, 4]]
    states = torch.arange(4.0).view(2, 1, 2, 1)
    keys, values = cache.update(states, -states, 0)
    assert keys[:, 0, :, 0].tolist() == [[0, 0, 1, 0, 0], [0, 0, 0, 2, 3]]
    assert torch.equal(values, -keys)
    cache.advance(2)
    cache.rollback([9, 4])
    assert cache.lengths == [3, 4]
    cache.keep_rows(torch.tensor([1]))
    assert (cache.lengths, cache.reserve(1, torch.device("cpu"))) == ([4], None)


def test_a_row_that_lacks_less_is_fed_some_again() -> None:
    cache, tokens = KVCache(layers=1, capacity=8, rows=2), torch.arange(12).view(2, 6)
    cache.lengths = [3, 4]
    assert uncached_tokens(tokens, cache, [5, 5]).tolist() == [[3, 4], [9, 10]]
    assert cache.lengths == [3, 3]
    cache.lengths = [3, 2]
    assert uncached_tokens(tokens, cache, [4, 3]).tolist() == [[3], [8]]


def test_a_mask_row_by_row() -> None:
    seen = causal_mask(torch.tensor([[0, 1], [2, 3]]), 4, window=2)[:, 0].int().tolist()
    assert seen == [[[1, 0, 0, 0], [1, 1, 0, 0]], [[0, 1, 1, 0], [0, 0, 1, 1]]]
