"""Models with recurrent layers: greedy SD is the greedy target, and a state that was rolled back is the recomputed one.

Their weights are random, and their sizes those of a toy.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from fsd_core.config import (
    Autoregressive,
    BeamSampling,
    BeamsTopology,
    ChainTopology,
    DecodingConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    SamplingConfig,
    SearchTreeTopology,
    Speculative,
    SpeculativeBeams,
    TrigramDrafter,
)
from fsd_core.decoding.loop import compose
from fsd_core.errors import IncompatibleModels, IncompatibleOptions
from fsd_core.models.caches import RecurrentCache
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet, check_cache
from fsd_core.testing import (
    beginnings,
    distribution_of_texts,
    fit,
    next_logits,
    open_session,
    recomputed_logits,
    related,
    toy_model,
)
from tests.tools.toy_families import VOCABULARY, check_greedy_sd_is_the_greedy_target, toy_family
from tests.tools.toy_hybrids import DELTA, HYBRIDS, STEPPED

pytestmark = pytest.mark.filterwarnings("ignore")  # of kernels that are not installed
QUICK = ("lfm2", "mamba", "qwen3_next")
"""what the gate builds: convolutions, a state that is continued token by token, one beside attention and experts"""
ALL = [family if family in QUICK else pytest.param(family, marks=pytest.mark.long) for family in HYBRIDS]
SAMPLED = DecodingConfig(
    acceptance=Speculative(), topology=ChainTopology(length=3), sampling=SamplingConfig(temperature=1.0),
    max_new_tokens=12,
)  # fmt: skip


def hybrid(family: str, **size: Any) -> LanguageModel:
    """Return the family's toy model, checked as a loaded one is."""
    model = LanguageModel(toy_family(family, **HYBRIDS[family], **size))
    check_cache(model)
    return model


@pytest.mark.parametrize("family", ALL)
def test_greedy_sd_is_the_greedy_target(family: str) -> None:
    check_greedy_sd_is_the_greedy_target(toy_family(family, **HYBRIDS[family]), noise=0.02, tokens=16)


@pytest.mark.parametrize("family", ALL)
@torch.inference_mode()
def test_what_follows_a_rollback_is_what_follows_the_text_alone(family: str) -> None:
    """Prompts, verifications and single steps, with rollbacks to every place: none, into the round, to its beginning,
    twice in a row, and far before it."""
    model, generator = hybrid(family), torch.Generator().manual_seed(0)
    assert model.recurrent is not None
    assert model.recurrent.at_once == (family not in STEPPED)
    cache, text = model.new_cache(64), []
    for count, kept in (
        (9, 9),
        (4, 12),
        (1, 13),
        (5, 13),
        (5, 15),
        (1, 16),
        (1, 17),
        (1, 16),
        (6, 4),
        (7, 10),
        (3, 11),
    ):
        new = torch.randint(VOCABULARY, (count,), generator=generator).tolist()
        logits = model.forward(torch.tensor([new]), cache)[0]
        text += new
        torch.testing.assert_close(logits[-1], recomputed_logits(model, text), atol=2e-3, rtol=1e-3)
        text = text[:kept]
        cache.rollback(kept + 2)
        cache.rollback(kept)
        assert cache.length == len(text) == kept


@pytest.mark.parametrize("family", ALL)
def test_caches_after_every_round_are_recomputed_ones(family: str) -> None:
    target = hybrid(family)
    draft = LanguageModel(related(target.module, 0.3, seed=1))
    check_cache(draft)
    prompt, rejected = [3, 1, 4, 1, 5, 9, 2, 6], 0
    with open_session(target, draft, SAMPLED, prompt, 5, frozenset()) as session:
        while session.stop_reason is None:
            record = session.run_round()
            rejected += record.accepted < len(record.drafted)
            assert session.cache.length == len(session.history) - 1
            expected = recomputed_logits(target, session.history)
            torch.testing.assert_close(next_logits(session), expected, atol=2e-3, rtol=1e-3)
    assert rejected


def small_pair() -> tuple[LanguageModel, LanguageModel]:
    """Return a target of one recurrent layer and one of attention, and a draft that often differs, of 5 tokens."""
    small = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"], "vocab_size": 5}
    target = LanguageModel(toy_family("qwen3_5_text", **DELTA, **small, eos_token_id=4, pad_token_id=4))
    draft = LanguageModel(related(target.module, 0.6, seed=1))
    for model in (target, draft):
        check_cache(model)
    return target, draft


@pytest.mark.long
def test_texts_of_sd_are_distributed_as_those_of_the_target() -> None:
    target, draft = small_pair()
    prompt, length = [0, 1, 2, 1], 3
    texts = beginnings(target, draft, SAMPLED.model_copy(update={"max_new_tokens": 4}), prompt, length, 600)
    emitted = (texts * torch.tensor([25, 5, 1])).sum(1)
    assert fit(emitted, distribution_of_texts(target, prompt, length)) > 1e-4
    assert fit(emitted, distribution_of_texts(draft, prompt, length)) < 1e-9


def test_a_recurrent_draft_of_a_plain_target_is_lossless() -> None:
    target, draft = LanguageModel(toy_model(VOCABULARY, seed=3)), hybrid("mamba")
    prompt = [5, 4, 3, 2, 1]
    config = DecodingConfig(acceptance=Speculative(), topology=ChainTopology(length=3), max_new_tokens=12)
    texts = []
    for each in (config, config.model_copy(update={"acceptance": Autoregressive(), "drafter": None, "topology": None})):
        with open_session(target, draft, each, prompt, 0, frozenset()) as session:
            while session.stop_reason is None:
                session.run_round()
            texts.append(session.history)
    assert texts[0] == texts[1]


def test_a_rollback_restores_the_state_bit_by_bit() -> None:
    model = hybrid("qwen3_next")
    cache, tokens = model.new_cache(32), torch.arange(20)[None]
    assert isinstance(cache, RecurrentCache)
    with torch.inference_mode():
        model.forward(tokens[:, :10], cache, logits_to_keep=1)
        cache.rollback(10)
        before = cache.first_state().clone()
        model.forward(tokens[:, 10:], cache)
        assert not torch.equal(cache.first_state(), before)
        cache.rollback(10)
    assert torch.equal(cache.first_state(), before)


@pytest.mark.parametrize("family", ["mamba", "qwen3_next"])
@torch.inference_mode()
def test_hidden_states_are_of_all_tokens_fed_and_no_others(family: str) -> None:
    """A prompt is fed in two parts, and Mamba's later tokens one by one. Accepted tokens are fed again unseen."""
    model, tokens = hybrid(family), torch.arange(30, 50)[None]
    whole = model.module(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states
    whole = torch.cat([whole[1], whole[4]], -1)
    aux, cache = AuxHiddenStates((1, 4)), model.new_cache(32)
    model.forward(tokens[:, :14], cache, logits_to_keep=3, aux_hidden_states=aux)
    torch.testing.assert_close(aux.states, whole[:, :14], atol=1e-4, rtol=1e-3)
    cache.rollback(12)
    model.forward(tokens[:, 12:17], cache, aux_hidden_states=aux)
    torch.testing.assert_close(aux.states, whole[:, 12:17], atol=1e-4, rtol=1e-3)


def test_a_state_that_starts_anew_is_found_in_16_bits_too() -> None:
    for family, at_once in (("mamba", False), ("jamba", False), ("mamba2", True)):
        model = LanguageModel(toy_family(family, **HYBRIDS[family]).bfloat16())
        check_cache(model)
        assert model.recurrent is not None
        assert model.recurrent.at_once == at_once, family


def test_branches_and_batches_are_refused_before_anything_is_written() -> None:
    hybrids, plain = small_pair(), LanguageModel(toy_model(5, seed=0))
    tree = SAMPLED.model_copy(update={"topology": DynamicTreeTopology()})
    for models in (ModelSet(*hybrids), ModelSet(plain, hybrids[1])):
        with pytest.raises(IncompatibleOptions, match="dynamic-tree"):
            compose(models, tree)
    search = DecodingConfig(acceptance=Speculative(), drafter=TrigramDrafter(), topology=SearchTreeTopology())
    with pytest.raises(IncompatibleOptions, match="search-tree"):
        compose(ModelSet(hybrids[0]), search)
    beams = [DecodingConfig(acceptance=BeamSampling(), sampling=SamplingConfig(temperature=1))]
    beams.append(
        beams[0].model_copy(
            update={"acceptance": SpeculativeBeams(), "drafter": DraftModelDrafter(), "topology": BeamsTopology()}
        )
    )
    for models, config in (
        (ModelSet(hybrids[0]), beams[0]),
        (ModelSet(*hybrids), beams[1]),
        (ModelSet(plain, hybrids[1]), beams[1]),
    ):
        with pytest.raises(IncompatibleOptions, match="one chain of tokens"):
            compose(models, config)
    for config in (SAMPLED, DecodingConfig(acceptance=Autoregressive())):
        with pytest.raises(IncompatibleOptions, match="choose --batch 1"):
            compose(ModelSet(*hybrids), config).check_batch_size(2)
    with pytest.raises(IncompatibleOptions, match="choose --batch 1"):
        compose(ModelSet(plain, hybrids[1]), SAMPLED).check_batch_size(2)
    with pytest.raises(IncompatibleModels, match="feed it one text at a time"):
        hybrids[0].new_cache(8, rows=2)
