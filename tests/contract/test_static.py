"""Forwards at fixed addresses are those at free ones; and the host waits for the device once a round.

Where there is a CUDA device, all of this runs there too, through graphs.
"""

from __future__ import annotations

import weakref

import pytest
import torch

from fsd_core.config import (
    RULES,
    Autoregressive,
    BeamsTopology,
    ChainTopology,
    DecodingConfig,
    DynamicTreeTopology,
    EagleDrafter,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    MultiDraftTopology,
    SamplingConfig,
    Speculative,
    SpeculativeBeams,
)
from fsd_core.decoding import loop
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.loop import Batch, compose
from fsd_core.models.forward import BUCKET, AuxHiddenStates, StaticCache
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet
from fsd_core.ops.kernels import TreeBuilder
from fsd_core.testing import in_memory, open_session, related, run, toy_head, toy_model
from tests.tools.transfers import no_waiting

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
SINGLE = [Autoregressive(), Speculative(), Fuzzy(threshold=0.08), FuzzyReducible(threshold=0.08), FuzzyOfficial()]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module", params=DEVICES)
def models(request: pytest.FixtureRequest) -> tuple[LanguageModel, LanguageModel, LanguageModel, LanguageModel]:
    """Target and draft, at free and at fixed addresses."""
    target = toy_model(257, seed=0, layers=4, context=600).to(request.param)
    draft = related(target, 0.3, seed=1)
    free = LanguageModel(target, static=False), LanguageModel(draft, static=False)
    return (*free, LanguageModel(target, static=True), LanguageModel(draft, static=True))


@torch.inference_mode()
def test_logits_are_the_same(models) -> None:
    free, _, static, _ = models
    tokens = torch.randint(257, (1, 300), generator=torch.Generator().manual_seed(0)).to(free.device)
    caches, at = (free.new_cache(300), static.new_cache(300)), 0
    assert isinstance(caches[1], StaticCache)
    for count in (17, 1, 6, 1, 70, 6, 1, 150, 6, 6, 1):  # a prompt, steps, verifications, over the edge of a bucket
        theirs, ours = (
            model.forward(tokens[:, at : at + count], cache)
            for model, cache in zip((free, static), caches, strict=True)
        )
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)
        at += count
    assert caches[1].length > BUCKET
    for cache in caches:
        cache.rollback(250)
    theirs, ours = (
        m.forward(tokens[:, 250:256], c, logits_to_keep=2) for m, c in zip((free, static), caches, strict=True)
    )
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_trees_and_hidden_states_are_the_same(models) -> None:
    """A level of a tree, the next one and a step, three times: the first is run, the second captured, the third
    replayed."""
    free, _, static, _ = models
    tokens = torch.randint(257, (1, 400), generator=torch.Generator().manual_seed(0)).to(free.device)
    found = []
    for model in (free, static):
        cache, seen = model.new_cache(400), []
        model.forward(tokens[:, :240], cache)
        for at in (240, 250, 260):
            tree, aux = TreeBuilder(cache.length), AuxHiddenStates((1, model.layers))
            for parents in ([-1, -1, -1], [0, 2, 2]):
                attention = tree.add(torch.tensor(parents, device=model.device))
                seen.append(model.forward(tokens[:, at : at + 3], cache, None, attention, aux))
                seen.append(aux.states)
                at += 3
            cache.compact(cache.length - 6, torch.tensor([2, 4], device=model.device))
            cache.rollback(cache.length - 4)
            seen.append(model.forward(tokens[:, at : at + 1], cache, None, None, aux))
            seen.append(aux.states)
        found.append(seen)
    assert len(found[0]) == 18
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


@torch.inference_mode()
def test_rows_are_the_same(models) -> None:
    """Texts of different lengths, of which some end: their places hold what nobody reads."""
    free, _, static, _ = models
    tokens = torch.randint(257, (4, 300), generator=torch.Generator().manual_seed(0)).to(free.device)
    found = []
    for model in (free, static):
        cache, seen = model.new_cache(300, 4), []
        for row, length in enumerate((240, 3, 251, 100)):
            model.forward(tokens[row : row + 1, :length], cache.row(row), logits_to_keep=1)
            cache.adopt(row, length)
        for count in (3, 3, 3):
            seen.append(model.forward(tokens[:, :count], cache))
            cache.rollback([length - row % 3 for row, length in enumerate(cache.lengths)])
        for kept in ([3, 0, 2], [1]):
            cache.keep_rows(torch.tensor(kept, device=model.device))
            seen += [model.forward(tokens[: len(kept), :count], cache, logits_to_keep=2) for count in (3, 4)]
        found.append(seen)
    assert [len(logits) for logits in found[0]] == [4, 4, 4, 3, 3, 1, 1]
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-3)


SHAPES = {
    "tree": {"topology": DynamicTreeTopology(top_k=3, length=4, total_tokens=12)},
    "drafts": {"acceptance": RULES["k-seq"](), "topology": MultiDraftTopology(length=3)},
    "head": {"drafter": EagleDrafter(), "topology": ChainTopology(length=3)},
    "tree of a head": {"drafter": EagleDrafter(), "topology": DynamicTreeTopology(top_k=3, length=4, total_tokens=12)},
    "beams": {"acceptance": SpeculativeBeams(), "topology": BeamsTopology(length=3, drafts=3)},
}


@pytest.mark.parametrize("name", SHAPES)
def test_texts_of_every_shape_are_the_same(models, name: str) -> None:
    config = DecodingConfig(**SHAPES[name], sampling=SamplingConfig(temperature=0.9), max_new_tokens=60)
    head = toy_head(models[0].module, 3, seed=5)
    texts = [
        run(open_session(*pair, config, PROMPT, 5, frozenset(), head)).history for pair in (models[:2], models[2:])
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) == len(PROMPT) + 60


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_texts_side_by_side_are_those_of_each_alone(models, temperature: float) -> None:
    """Six texts of different lengths in four rows, of which fewer and fewer are left."""
    config = DecodingConfig(
        topology=ChainTopology(length=4), sampling=SamplingConfig(temperature=temperature), max_new_tokens=30
    )
    decoder = PairDecoder(in_memory(*models[2:]), config)
    decoder.eos = frozenset({7, 100})
    prompts = [PROMPT[:length] for length in (8, 3, 5, 1, 2, 7)]
    alone = [decoder.generate(prompt, seed).tokens for seed, prompt in enumerate(prompts)]
    together = dict(decoder.generate_all(prompts, range(6), rows=4))
    assert [together[place].tokens for place in range(6)] == alone


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", SINGLE, ids=str)
def test_texts_are_the_same(models, rule, temperature: float) -> None:
    config = DecodingConfig(
        acceptance=rule, topology=ChainTopology(length=4), sampling=SamplingConfig(temperature=temperature),
        max_new_tokens=60,
    )  # fmt: skip
    texts = [run(open_session(*pair, config, PROMPT, 5, frozenset())).history for pair in (models[:2], models[2:])]
    assert texts[0] == texts[1]


def test_what_one_text_needed_serves_the_next(models) -> None:
    _, _, target, draft = models
    config = DecodingConfig(acceptance=Speculative(), max_new_tokens=20)
    with open_session(target, draft, config, PROMPT, 5, frozenset()) as first:
        run(first)
        storage = first.cache.storage
    first.close()  # which changes nothing the second time
    sessions = [open_session(target, draft, config, PROMPT, seed, frozenset()) for seed in range(2)]
    assert sessions[0].cache.storage is storage
    assert sessions[1].cache.storage is not storage  # never two texts in one
    texts = [run(session).history for session in sessions]
    assert texts[0] == run(open_session(target, draft, config, PROMPT, 0, frozenset())).history


@pytest.mark.wide
def test_the_memory_of_a_text_that_nobody_closes_goes_with_it(models) -> None:
    _, _, target, draft = models
    session = run(open_session(target, draft, DecodingConfig(acceptance=Speculative()), PROMPT, 5, frozenset()))
    storage = weakref.ref(session.cache.storage)
    del session
    assert storage() is None


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("sampling", [SamplingConfig(), SamplingConfig(temperature=0.9, top_k=40, top_p=0.9)], ids=str)
@pytest.mark.parametrize("rule", SINGLE, ids=str)
def test_the_host_waits_once_a_round(models, rule, sampling: SamplingConfig, rows: int, monkeypatch) -> None:
    waits = []

    def counted(values: torch.Tensor) -> list:
        waits.append(values.shape)
        return to_host(values)

    to_host = loop.to_host
    monkeypatch.setattr(loop, "to_host", counted)
    config = DecodingConfig(acceptance=rule, topology=ChainTopology(length=3), sampling=sampling, max_new_tokens=100)
    texts = Batch(compose(ModelSet(models[2], models[3]), config), frozenset(), 300, rows)
    for row in range(rows):
        texts.put(row, PROMPT[row:], seed=row)
    for _ in range(3):  # what is made once, such as graphs
        texts.run_round()
    waits.clear()
    with no_waiting(models[0].device):
        for _ in range(8):
            texts.run_round()
    assert len(waits) == 8


def test_waiting_is_found() -> None:
    values = torch.ones(3)
    for action in (lambda: values.sum().item(), lambda: values[values > 0], lambda: bool(values.any())):
        with pytest.raises(RuntimeError, match="waits for the device"), no_waiting(torch.device("cpu")):
            action()
