"""A target with grouped linear attention within the loop: chains, trees and rollbacks across the ends of groups."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    DynamicTreeTopology,
    EagleDrafter,
    MultiDraftTopology,
    PromptLookupDrafter,
    SamplingConfig,
    SearchTreeTopology,
    Speculative,
    TopologySettings,
    TrigramDrafter,
)
from fsd_core.decoding.loop import compose
from fsd_core.errors import IncompatibleModels, IncompatibleOptions, ModelUnavailable
from fsd_core.models.caches import LinearCache
from fsd_core.models.forward import AuxHiddenStates
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet, check_cache, load_pair
from fsd_core.ops.kernels import TreeAttention, tree_layout
from fsd_core.rules import SEVERAL, RecursiveRejection
from fsd_core.testing import beginnings, fit, open_session, related, toy_head, toy_model, toy_tokenizer, written
from tests.tools.sizes import size
from tests.tools.toy_linear import toy_linear_model

GROUP, TAPS = 4, 3
PROMPTS = ([3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5], [7], [2, 7, 1, 8, 2, 8, 1, 8, 2, 8, 4])
SHAPES: tuple[tuple[DrafterSettings, TopologySettings], ...] = (
    (DraftModelDrafter(), ChainTopology(length=3)),
    (DraftModelDrafter(), ChainTopology(length=11)),
    (DraftModelDrafter(), MultiDraftTopology(length=3)),
    (DraftModelDrafter(), DynamicTreeTopology(top_k=3, length=6, total_tokens=20)),
    (EagleDrafter(), DynamicTreeTopology(top_k=3, length=6, total_tokens=20)),
    (PromptLookupDrafter(), ChainTopology(length=6)),
    (TrigramDrafter(), SearchTreeTopology()),
)


def linear(vocabulary: int = 40, seed: int = 11, **more: int) -> LanguageModel:
    model = LanguageModel(toy_linear_model(vocabulary, seed, GROUP, TAPS, **more))
    check_cache(model)
    return model


@pytest.fixture(scope="module")
def target() -> LanguageModel:
    return linear()


@torch.inference_mode()
def after(model: LanguageModel, text: Sequence[int]) -> Tensor:
    """The logits after a text by the parallel form, which keeps nothing: [V]."""
    return model.module(input_ids=torch.tensor([list(text)]), use_cache=False).logits[0, -1]


@cache
def greedy(model: LanguageModel, prompt: tuple[int, ...], count: int) -> list[int]:
    """What the parallel form writes."""
    text = list(prompt)
    for _ in range(count):
        text.append(int(after(model, text).argmax()))
    return text[len(prompt) :]


def test_the_target_alone_writes_what_the_parallel_form_does(target):
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=40)
    for prompt in PROMPTS:
        assert written(target, target, config, prompt, ends=False) == greedy(target, tuple(prompt), 40)


@pytest.mark.parametrize(("drafter", "topology"), SHAPES, ids=str)
def test_greedily_every_draft_is_the_greedy_target(target, drafter, topology):
    rule = RecursiveRejection() if topology.judged_as == SEVERAL else Speculative()
    config = DecodingConfig(acceptance=rule, drafter=drafter, topology=topology, max_new_tokens=40)
    head = toy_head(target.module) if drafter.needs_head else None
    for draft in (LanguageModel(related(target.module, 0.15, 12)), LanguageModel(toy_model(40, 11))):
        for prompt in PROMPTS:
            text = written(target, draft, config, prompt, ends=False, head=head)
            assert text == greedy(target, tuple(prompt), 40)


def test_caches_after_every_round_are_those_of_the_text(target):
    draft = LanguageModel(related(target.module, 0.15, 12))
    config = DecodingConfig(
        acceptance=Speculative(), topology=DynamicTreeTopology(top_k=3, length=6, total_tokens=20),
        sampling=SamplingConfig(temperature=1.0), max_new_tokens=30,
    )  # fmt: skip
    rejected = 0
    with open_session(target, draft, config, PROMPTS[0], 5, frozenset()) as session:
        while session.stop_reason is None:
            record = session.run_round()
            rejected += record.accepted < len(record.drafted)
            length = session.cache.length
            assert length == len(session.history) - 1
            with torch.inference_mode():
                logits = target.forward(torch.tensor([session.history[length:]]), session.cache)[0, -1]
            session.cache.rollback(length)
            torch.testing.assert_close(logits, after(target, session.history), atol=1e-4, rtol=1e-4)
    assert rejected


@pytest.mark.parametrize("kept", range(2 * GROUP, 3 * GROUP + 2))
@pytest.mark.parametrize("fed", [1, GROUP, 2 * GROUP + 1])
@torch.inference_mode()
def test_a_rollback_across_the_end_of_a_group(target, kept, fed):
    text = torch.randint(40, (40,), generator=torch.Generator().manual_seed(kept)).tolist()
    cache = target.new_cache(64)
    target.forward(torch.tensor([text[:kept]]), cache)
    cache.rollback(kept)
    for _ in range(2):  # a draft that is rejected as a whole, twice
        target.forward(torch.tensor([text[::-1][:fed]]), cache)
        cache.rollback(kept)
    logits = target.forward(torch.tensor([text[kept : kept + fed]]), cache)[0, -1]
    torch.testing.assert_close(logits, after(target, text[: kept + fed]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kept", range(8, 20))
@torch.inference_mode()
def test_a_rollback_to_within_the_convolutions_reach_of_what_was_folded_keeps_its_logits(target, kept):
    text = torch.randint(40, (40,), generator=torch.Generator().manual_seed(kept)).tolist()
    cache = target.new_cache(64)
    target.forward(torch.tensor([text[:30]]), cache, logits_to_keep=1)
    assert isinstance(cache, LinearCache)
    assert cache.base == 12
    cache.rollback(kept)
    logits = target.forward(torch.tensor([text[kept:33]]), cache)[0, -1]
    torch.testing.assert_close(logits, after(target, text[:33]), atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_a_rollback_into_what_was_folded_starts_from_the_first_token(target):
    text = torch.randint(40, (50,), generator=torch.Generator().manual_seed(0)).tolist()
    cache = target.new_cache(64)
    target.forward(torch.tensor([text[:30]]), cache, logits_to_keep=1)
    assert isinstance(cache, LinearCache)
    assert cache.base > 8
    cache.rollback(7)
    assert cache.length == 7
    logits = target.forward(torch.tensor([text[7:33]]), cache)[0, -1]
    torch.testing.assert_close(logits, after(target, text[:33]), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("straight", range(1, GROUP + 2))
@torch.inference_mode()
def test_a_tree_on_a_folded_text_is_each_of_its_branches_and_goes_on_from_the_one_kept(target, straight):
    parents, levels = (-1, -1, 0, 2, 3, 4, 1, 6, 5), (1, 1, 2, 3, 4, 5, 2, 3, 6)
    text = torch.randint(40, (30 + straight,), generator=torch.Generator().manual_seed(straight)).tolist()
    nodes = list(range(len(parents)))
    cache = target.new_cache(80)
    target.forward(torch.tensor([text[:30]]), cache, logits_to_keep=1)
    cache.rollback(30)
    depths, visible = tree_layout(straight, torch.tensor(parents), torch.tensor(levels), max(levels))
    tree = TreeAttention(30, depths, visible)
    logits = target.forward(torch.tensor([text[30:] + nodes]), cache, len(nodes), tree)[0]
    assert isinstance(cache, LinearCache)
    assert cache.base >= 24
    for node in nodes:
        path = [node]
        while parents[path[0]] >= 0:
            path.insert(0, parents[path[0]])
        torch.testing.assert_close(logits[node], after(target, text + path), atol=1e-4, rtol=1e-4)
    kept = [0, 2, 3, 4, 5, 8]
    cache.compact(30 + straight, torch.tensor(kept))
    cache.rollback(30 + straight + len(kept))
    logits = target.forward(torch.tensor([[9]]), cache)[0, -1]
    torch.testing.assert_close(logits, after(target, [*text, *kept, 9]), atol=1e-4, rtol=1e-4)


def test_a_text_fills_the_context_over_a_state_that_does_not_grow():
    model = linear(context=64)
    sizes = []
    config = DecodingConfig(acceptance=Autoregressive(), max_new_tokens=200)
    with open_session(model, None, config, [3, 1, 4], 0, frozenset()) as session:
        while session.stop_reason is None:
            session.run_round()
            assert isinstance(session.cache, LinearCache)
            sizes.append(session.cache.bytes())
        assert session.stop_reason == "context"
        assert session.history[3:] == greedy(model, (3, 1, 4), 61)
    assert max(sizes[30:]) == max(sizes[12:30])


@pytest.mark.wide
def test_texts_of_sd_are_distributed_as_those_of_the_target():
    model, prompt, length = linear(5, 3), [0, 1, 2, 1], 2
    draft = LanguageModel(related(model.module, 0.6, seed=1))
    config = DecodingConfig(
        acceptance=Speculative(), topology=DynamicTreeTopology(top_k=2, length=2, total_tokens=5),
        sampling=SamplingConfig(temperature=1.0), max_new_tokens=4,
    )  # fmt: skip
    texts = beginnings(model, draft, config, prompt, length, size(600, 6000))
    emitted = (texts * torch.tensor([5, 1])).sum(1)

    def law(of: LanguageModel) -> Tensor:
        first = after(of, prompt).softmax(-1)
        return torch.cat([first[token] * after(of, [*prompt, token]).softmax(-1) for token in range(5)])

    assert fit(emitted, law(model)) > 1e-4
    assert fit(emitted, law(draft)) < 1e-9


@torch.inference_mode()
def test_hidden_states_are_of_all_tokens_fed(target):
    tokens = torch.arange(1, 38)[None]
    whole = target.module(input_ids=tokens, use_cache=False, output_hidden_states=True).hidden_states
    aux, cache = AuxHiddenStates((1, 2)), target.new_cache(64)
    target.forward(tokens[:, :35], cache, logits_to_keep=1, aux_hidden_states=aux)
    torch.testing.assert_close(aux.states, torch.cat([whole[1], whole[2]], -1)[:, :35], atol=1e-4, rtol=1e-3)


def test_transformers_generates_from_whole_texts_and_is_told_that_its_caches_keep_no_state(target):
    prompt = torch.tensor([PROMPTS[0]])
    options = {"max_new_tokens": 12, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    text = target.module.generate(prompt, use_cache=False, **options)[0, prompt.shape[1] :]
    assert text.tolist() == greedy(target, tuple(PROMPTS[0]), 12)
    with pytest.raises(IncompatibleModels, match="pass use_cache=False"):
        target.module.generate(prompt, use_cache=True, **options)


def test_several_texts_at_once_are_refused(target):
    for models in (ModelSet(target), ModelSet(target, target), ModelSet(LanguageModel(toy_model(40, 0)), target)):
        config = DecodingConfig(acceptance=Speculative() if models.draft else Autoregressive())
        with pytest.raises(IncompatibleOptions, match="--batch 1"):
            compose(models, config).check_batch_size(2)
    with pytest.raises(IncompatibleModels, match="one at a time"):
        target.new_cache(8, rows=2)


def test_a_folder_is_loaded_and_one_whose_group_is_nothing_is_refused(tmp_path: Path) -> None:
    tokenizer = toy_tokenizer()
    model = toy_linear_model(len(tokenizer), 0, GROUP, TAPS)
    for role in ("target", "draft"):
        model.save_pretrained(tmp_path / role)
        tokenizer.save_pretrained(tmp_path / role)
    pair = load_pair(f"path:{tmp_path}")
    assert pair.target.one_text
    text = list(range(20))
    torch.testing.assert_close(after(pair.target, text), after(LanguageModel(model), text))
    file = tmp_path / "target" / "config.json"
    broken = file.read_text().replace('"attention_group": 4', '"attention_group": 0')
    assert broken != file.read_text()
    file.write_text(broken)
    with pytest.raises(ModelUnavailable, match="attention_group"):
        load_pair(f"path:{tmp_path}")
