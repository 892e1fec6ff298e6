"""Decodes texts with a loaded pair and one configuration."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from fsd_core.config import DecodingConfig
from fsd_core.decoding.batch import Batch
from fsd_core.decoding.beams.beam_batch import BeamBatch
from fsd_core.decoding.beams.beam_text import BeamText
from fsd_core.decoding.composition import compose
from fsd_core.decoding.sequence_state import SequenceState
from fsd_core.decoding.session import DecodingSession, new_batch
from fsd_core.decoding.trace import RoundRecord
from fsd_core.models.chat_messages import Message
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_set import ModelSet
from fsd_core.models.prompt import encode_prompt


@dataclass(frozen=True, slots=True)
class GeneratedText:
    """A finished text. Times are wall seconds, including the prompt's forward."""

    tokens: list[int]
    records: list[RoundRecord]
    seconds: float
    time_to_first_token: float
    stop_reason: str
    """``eos``; ``length``: the requested number of tokens; ``context``: the model's context is full"""
    cpu_seconds: float | None = None
    """processor time of this process meanwhile; ``None`` where another device computes"""
    latency: float | None = None
    """wall seconds to its end, whatever else was decoded in its batch; ``None``: not measured"""


class PairDecoder:
    """A pair and a configuration, without state between texts. Raises whatever ``compose`` raises."""

    def __init__(self, pair: LoadedPair, config: DecodingConfig) -> None:
        self.pair, self.config = pair, config
        self.method = compose(
            ModelSet(pair.target, pair.draft if pair.spec.draft else None, pair.head, pair.tokenizer, pair.trigrams),
            config,
        )
        self.eos = self.method.model.eos_tokens  # a draft's own end tokens do not end the target's text

    def prompt_ids(self, prompt: str | Sequence[Message]) -> list[int]:
        """Return the token ids of a prompt or a conversation. Raises like ``encode_prompt``."""
        template = self.config.template.filled(self.pair.spec.template_arguments)
        return encode_prompt(self.pair.tokenizer, prompt, self.method.context, template)

    def fitting(self, prompt_ids: list[int]) -> list[int]:
        """Return the prompt unchanged. Raises ``PromptTooLong`` for one that fills the context."""
        self.method.check_prompt(len(prompt_ids))
        return prompt_ids

    def session(self, prompt_ids: list[int], seed: int, *, keep_logits: bool = False) -> DecodingSession:
        """Return a session for one text, which the caller closes. Raises ``PromptTooLong`` for a prompt that fills the
        context."""
        return DecodingSession(self.method, prompt_ids, seed, self.eos, keep_logits=keep_logits)

    def stream(self, prompt_ids: list[int], seed: int) -> Iterator[RoundRecord]:
        """Yield the rounds of one text as they happen."""
        with self.session(prompt_ids, seed) as session:
            while session.stop_reason is None:
                yield session.run_round()

    def generate_all(
        self, prompts: Sequence[Sequence[int]], seeds: Sequence[int], rows: int
    ) -> Iterator[tuple[int, GeneratedText]]:
        """Yield each text with its index among the prompts when it ends, decoding in batches of ``rows``.

        A text does not depend on the others in its batch, up to the rounding of the models' arithmetic. Its seconds are
        its shares of its rounds' wall times. The time to its first token is wall time. Raises ``PromptTooLong``.
        """
        rows = min(rows, len(prompts))
        with new_batch(self.method, self.eos, self.method.capacity(max(map(len, prompts))), rows) as batch:
            yield from self._generate_batch(batch, rows, prompts, seeds)

    def _generate_batch(
        self, batch: Batch | BeamBatch, rows: int, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> Iterator[tuple[int, GeneratedText]]:
        writing = [_Writing.begin(batch, row, row, prompts, seeds) for row in range(rows)]
        waiting = iter(range(rows, len(prompts)))
        while writing:
            cpu_started = time.process_time()
            records = batch.run_round()
            cpu_seconds = (time.process_time() - cpu_started) / len(writing)
            for text, record in zip(writing, records, strict=True):
                text.records.append(record)
                text.cpu += cpu_seconds
                text.first = text.first or (time.perf_counter() - text.started) * bool(record.emitted)
            for row, text in enumerate(writing):
                if text.ended:
                    generation = text.generation()
                    yield text.index, replace(generation, cpu_seconds=self._own(text.cpu))
                    index = next(waiting, None)
                    if index is not None:
                        writing[row] = _Writing.begin(batch, row, index, prompts, seeds)
            remaining = [row for row, text in enumerate(writing) if not text.ended]
            if remaining and len(remaining) < len(writing) and isinstance(batch, Batch):
                batch.keep_rows(remaining)
            writing = [writing[row] for row in remaining]

    def generate(self, prompt_ids: list[int], seed: int) -> GeneratedText:
        """Return one text, decoded to its end."""
        started, cpu_started = time.perf_counter(), time.process_time()
        with self.session(prompt_ids, seed) as session:
            records, first = [], 0.0
            while session.stop_reason is None:
                records.append(session.run_round())
                first = first or (time.perf_counter() - started) * bool(records[-1].emitted)
            seconds, cpu_seconds = time.perf_counter() - started, self._own(time.process_time() - cpu_started)
        tokens = session.history[len(prompt_ids) :]
        return GeneratedText(tokens, records, seconds, first, session.stop_reason, cpu_seconds, seconds)

    def _own(self, cpu_seconds: float) -> float | None:
        """Return the processor time that decoding took, or ``None`` where another device computes."""
        return cpu_seconds if self.pair.device == "cpu" else None


@dataclass
class _Writing:
    """A text of a batch while it is written."""

    index: int
    """index among the prompts"""
    text: SequenceState | BeamText
    prompt_length: int
    started: float
    reading: float
    """seconds spent on its prompt"""
    records: list[RoundRecord] = field(default_factory=list)
    first: float = 0.0
    cpu: float = 0.0
    """processor seconds of its prompt and of its shares of the rounds"""

    @classmethod
    def begin(
        cls, batch: Batch | BeamBatch, row: int, index: int, prompts: Sequence[Sequence[int]], seeds: Sequence[int]
    ) -> _Writing:
        started, cpu_started = time.perf_counter(), time.process_time()
        text = batch.put(row, prompts[index], seeds[index])
        reading, cpu = time.perf_counter() - started, time.process_time() - cpu_started
        return cls(index, text, len(prompts[index]), started, reading, cpu=cpu)

    @property
    def ended(self) -> bool:
        return self.text.stop_reason is not None

    def generation(self) -> GeneratedText:
        assert self.text.stop_reason is not None
        seconds = self.reading + sum(record.seconds for record in self.records)
        return GeneratedText(
            self.text.history[self.prompt_length :], self.records, seconds, self.first, self.text.stop_reason,
            latency=time.perf_counter() - self.started,
        )  # fmt: skip
