"""The target with linear attention that ships: good at its task, and decoded exactly with the bundled draft."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

import pytest

from fsd_core.config import (
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    DynamicTreeTopology,
    SearchTreeTopology,
    Speculative,
    TopologySettings,
    TrigramDrafter,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.harness import run_example
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.tasks import get_task
from tests.tools.sizes import sized
from tests.tools.threads_kept import threads_kept

TASK = get_task("arithmetic")


@pytest.fixture(scope="module")
def pair() -> Iterator[LoadedPair]:
    with threads_kept(1):
        yield load_pair("bundled-linear", device="cpu")


@pytest.mark.wide
@pytest.mark.parametrize("count", sized(12, 300))
def test_it_solves_the_problems(pair: LoadedPair, count: int) -> None:
    decoder = PairDecoder(pair, DecodingConfig(acceptance=Autoregressive()))
    records = [run_example(decoder, TASK, example, i, seed=0) for i, example in enumerate(TASK.examples(count))]
    assert mean(record.outcome == "correct" for record in records) > 0.8


@pytest.mark.parametrize(
    ("drafter", "topology"),
    [
        (DraftModelDrafter(), ChainTopology(length=5)),
        pytest.param(
            DraftModelDrafter(), DynamicTreeTopology(top_k=3, length=5, total_tokens=16), marks=pytest.mark.wide
        ),
        (TrigramDrafter(), SearchTreeTopology()),
    ],
    ids=["chain", "tree", "tri-grams"],
)
def test_what_it_checks_is_what_it_would_have_written(
    pair: LoadedPair, drafter: DrafterSettings, topology: TopologySettings
) -> None:
    alone = PairDecoder(pair, DecodingConfig(acceptance=Autoregressive()))
    drafted = PairDecoder(pair, DecodingConfig(acceptance=Speculative(), drafter=drafter, topology=topology))
    for example in TASK.examples(3):
        ids = alone.prompt_ids(example.prompt)
        exact, written = alone.generate(ids, seed=0), drafted.generate(ids, seed=0)
        assert written.tokens == exact.tokens
        assert len(written.records) < len(exact.records)
