"""Forwards at fixed addresses are those at free ones; and the host waits for the device once a round.

Where there is a CUDA device, all of this runs there too, through graphs.
"""

from __future__ import annotations

import weakref

import pytest
import torch

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    Fuzzy,
    FuzzyOfficial,
    FuzzyReducible,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding import batch
from fsd_core.decoding.batch import Batch
from fsd_core.decoding.composition import compose
from fsd_core.models.cuda_graphs import BUCKET, StaticCache
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.model_set import ModelSet
from fsd_core.testing.decoding_checks import open_session, run
from fsd_core.testing.toy import related, toy_model
from fsd_core.testing.transfers import no_waiting

DEVICES = ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]
RULES = [Autoregressive(), Speculative(), Fuzzy(threshold=0.08), FuzzyReducible(threshold=0.08), FuzzyOfficial()]
PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.fixture(scope="module", params=DEVICES)
def models(request: pytest.FixtureRequest) -> tuple[LanguageModel, LanguageModel, LanguageModel, LanguageModel]:
    """Target and draft, at free and at fixed addresses."""
    target = toy_model(257, seed=0, context=600).to(request.param)
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


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("rule", RULES, ids=str)
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


def test_the_memory_of_a_text_that_nobody_closes_goes_with_it(models) -> None:
    _, _, target, draft = models
    session = run(open_session(target, draft, DecodingConfig(acceptance=Speculative()), PROMPT, 5, frozenset()))
    storage = weakref.ref(session.cache.storage)
    del session
    assert storage() is None


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("sampling", [SamplingConfig(), SamplingConfig(temperature=0.9, top_k=40, top_p=0.9)], ids=str)
@pytest.mark.parametrize("rule", RULES, ids=str)
def test_the_host_waits_once_a_round(models, rule, sampling: SamplingConfig, rows: int, monkeypatch) -> None:
    waits = []

    def counted(values: torch.Tensor) -> list:
        waits.append(values.shape)
        return to_host(values)

    to_host = batch.to_host
    monkeypatch.setattr(batch, "to_host", counted)
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
