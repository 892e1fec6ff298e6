"""Decodes texts of a loaded pair by one configuration."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from fsd_core.config import DecodingConfig
from fsd_core.decoding.session import Session
from fsd_core.decoding.trace import StepRecord
from fsd_core.models.loading import LoadedPair
from fsd_core.models.prompt import encode_prompt


@dataclass(frozen=True, slots=True)
class Generation:
    """A finished text. Times are wall seconds, the prompt's own forward included."""

    tokens: list[int]
    records: list[StepRecord]
    seconds: float
    time_to_first_token: float
    stop_reason: str
    """``eos``; ``length``: as many tokens as were asked for; ``context``: the models' context is full"""


class Decoder:
    """A pair and a configuration; holds no state between texts."""

    def __init__(self, pair: LoadedPair, config: DecodingConfig) -> None:
        self.pair, self.config = pair, config
        self.eos = pair.target.eos_tokens | pair.draft.eos_tokens

    def prompt_ids(self, text: str) -> list[int]:
        """Token ids of a prompt. Raises ``InvalidSetting`` for an empty one."""
        return encode_prompt(self.pair.tokenizer, text)

    def session(self, prompt_ids: list[int], seed: int) -> Session:
        """A text about to be written. Raises ``PromptTooLong`` for a prompt that fills the context."""
        return Session(self.pair.target, self.pair.draft, self.config, prompt_ids, seed, self.eos)

    def stream(self, prompt_ids: list[int], seed: int) -> Iterator[StepRecord]:
        """The rounds of one text as they happen."""
        session = self.session(prompt_ids, seed)
        while session.stop_reason is None:
            yield session.step()

    def generate(self, prompt_ids: list[int], seed: int) -> Generation:
        """One text, whole."""
        begun = time.perf_counter()
        session, records, first = self.session(prompt_ids, seed), [], 0.0
        while session.stop_reason is None:
            records.append(session.step())
            first = first or time.perf_counter() - begun
        seconds = time.perf_counter() - begun
        return Generation(session.history[len(prompt_ids) :], records, seconds, first, session.stop_reason)
