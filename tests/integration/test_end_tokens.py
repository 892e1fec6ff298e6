"""Which tokens end a text: those of the model that writes it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fsd_core.config import (
    AcceptanceConfig,
    Autoregressive,
    ChainTopology,
    DecodingConfig,
    DraftOnly,
    FuzzyReducible,
    Speculative,
)
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair

PROMPT = "Hello there, hello"


@contextmanager
def ending(model: LanguageModel, token: int) -> Iterator[None]:
    """The model's texts end with another token meanwhile."""
    config = model.module.generation_config
    former, config.eos_token_id = config.eos_token_id, token
    try:
        yield
    finally:
        config.eos_token_id = former


def decode(pair: LoadedPair, acceptance: AcceptanceConfig) -> tuple[list[int], str]:
    decoder = PairDecoder(
        pair, DecodingConfig(acceptance=acceptance, topology=ChainTopology(length=4), max_new_tokens=12)
    )
    text = decoder.generate(decoder.prompt_ids(PROMPT), 0)
    return text.tokens, text.stop_reason


@pytest.mark.parametrize("acceptance", [Speculative(), Autoregressive(), FuzzyReducible(threshold=0.05)])
def test_a_draft_does_not_end_the_text_of_the_target(pair: LoadedPair, acceptance: AcceptanceConfig) -> None:
    text = decode(pair, acceptance)
    with ending(pair.draft, text[0][3]):
        assert decode(pair, acceptance) == text
    with ending(pair.target, text[0][3]):
        assert decode(pair, acceptance) == (text[0][: text[0].index(text[0][3]) + 1], "eos")


def test_a_draft_that_writes_alone_ends_its_own_text(pair: LoadedPair) -> None:
    text, _ = decode(pair, DraftOnly())
    with ending(pair.target, text[0]):
        assert decode(pair, DraftOnly())[0] == text
    with ending(pair.draft, text[0]):
        assert decode(pair, DraftOnly()) == (text[:1], "eos")
