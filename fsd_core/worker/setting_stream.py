"""One setting of a playground job: its text, written round by round on its own clock and sent in chunks."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.session import DecodingSession
from fsd_core.errors import FsdError
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk, EmittedToken, StreamFigures
from fsd_core.worker.target_speed import TargetSpeed
from fsd_core.worker.token_builder import TokenBuilder

logger = logging.getLogger(__name__)

_WARM_UP_ROUNDS = 2  # the first rounds of a process are slow and would be charged to the first setting


@dataclass
class SettingStream:
    """One setting of a job: its session, its clock, and its output since the last chunk."""

    index: int
    pair: LoadedPair
    target: TargetSpeed
    sent: int = 0
    """tokens already in the stream"""
    session: DecodingSession | None = None
    error: str | None = None
    pending: list[EmittedToken] = field(default_factory=list)
    end_sent: bool = False
    """whether the final chunk was sent"""
    tokens: int = 0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    seconds: float = 0.0
    cpu_seconds: float = 0.0

    def __post_init__(self) -> None:
        tokenizer: Any = self.pair.tokenizer
        self._builder = TokenBuilder(tokenizer.backend_tokenizer)

    @property
    def done(self) -> bool:
        return self.session is None or self.session.stop_reason is not None

    @property
    def has_news(self) -> bool:
        """Whether a new chunk would have content."""
        return bool(self.pending) or (self.done and not self.end_sent)

    def begin(self, job: PlaygroundJob) -> None:
        """Open the session, or record why it cannot be opened."""
        try:
            decoder = PairDecoder(self.pair, job.decoding(self.index))
            ids = decoder.prompt_ids(job.prompt)
            list(islice(decoder.stream(ids, job.seed), _WARM_UP_ROUNDS))
            with self._clock():
                self.session = decoder.session(ids, job.seed, keep_logits=True)
        except (FsdError, RuntimeError) as error:
            self._fail(error)

    def run_round(self) -> None:
        """Run one round."""
        assert self.session is not None
        try:
            with self._clock():
                record = self.session.run_round()
        except (FsdError, RuntimeError) as error:
            self._fail(error)
            return
        self.rounds += 1
        self.drafted += len(record.drafted)
        self.accepted += record.accepted
        emitted = self._builder.add(record, last=self.done, likeliest=self.session.likeliest())
        self.pending += emitted[max(0, self.sent - self.tokens) :]  # the page already has the earlier ones
        self.tokens += len(emitted)

    @contextmanager
    def _clock(self) -> Iterator[None]:
        wall_start, cpu_start = time.perf_counter(), time.process_time()
        yield
        self.seconds += time.perf_counter() - wall_start
        self.cpu_seconds += time.process_time() - cpu_start

    def close(self) -> None:
        """Return the buffers of the session for reuse."""
        if self.session is not None:
            self.session.close()

    def _fail(self, error: Exception) -> None:
        self.session = None
        self.error = str(error) if isinstance(error, FsdError) else f"{type(error).__name__}: {error}"
        logger.warning("Setting %d of a playground job failed: %s", self.index, self.error)

    def chunk(self) -> Chunk:
        """Return everything since the last chunk."""
        tokens, self.pending = tuple(self.pending), []
        self.end_sent = self.done
        figures = StreamFigures.of(
            tokens=self.tokens, rounds=self.rounds, drafted=self.drafted, accepted=self.accepted,
            seconds=self.seconds, cpu_seconds=self.cpu_seconds if self.pair.device == "cpu" else None,
            target_tokens_per_second=self.target.tokens_per_second(self.tokens),
        )  # fmt: skip
        stop_reason = self.session.stop_reason if self.session else None
        return Chunk(self.index, tokens, figures, self.done, stop_reason, self.error)
