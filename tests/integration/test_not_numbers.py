"""A model that computes no numbers is named in a sentence, and costs its prompts, not the run."""

from __future__ import annotations

import pytest
import torch

from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    FuzzyReducible,
    SamplingConfig,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.harness import run_examples
from fsd_core.models.loading import LoadedPair
from fsd_core.tasks import get_task
from fsd_core.testing import toy_pair

TASK = get_task("arithmetic")


@pytest.fixture
def pair() -> LoadedPair:
    return toy_pair()


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("acceptance", "broken"),
    [
        (Speculative(), "target"), (Autoregressive(), "target"), (FuzzyReducible(threshold=0.1), "target"),
        (Speculative(), "draft"), (FuzzyReducible(threshold=0.1), "draft"), (DraftOnly(), "draft"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_the_model_is_named(
    pair: LoadedPair, acceptance: AcceptanceConfig, broken: str, temperature: float, rows: int, value: float
) -> None:
    with torch.no_grad():
        getattr(pair, broken).module.model.norm.weight[0] = value
    sampling = SamplingConfig(temperature=temperature)
    config = DecodingConfig(
        acceptance=acceptance, topology=ChainTopology(length=3), sampling=sampling, max_new_tokens=8
    )
    records = list(run_examples(PairDecoder(pair, config), TASK, dict(enumerate(TASK.examples(2))), 0, rows))
    assert [record.outcome for record in records] == ["failed"] * 2
    assert str(records[0].error).startswith(f"The {broken} model computes values that are not numbers")
