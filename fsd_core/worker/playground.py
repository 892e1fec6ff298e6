"""Two to four settings on one prompt, side by side.

Their rounds alternate, each on its own clock.

The target alone takes part for its first tokens, so that each setting can show its speed beside it.

Each turn starts with the next setting, since the first round after a write to the database is slower.

The output of a job is in its stream of chunks. A job that a lost worker left half-way is generated again from the
start, which gives the same tokens, and only tokens missing from the stream are added.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from fsd_core.config import DecodingConfig
from fsd_core.decoding.decoder import DecodingSession, PairDecoder
from fsd_core.errors import FsdError
from fsd_core.models.loading import LoadedPair
from fsd_core.rules import Autoregressive
from fsd_core.storage.messages import Chunk, EmittedToken, PlaygroundJob, StreamFigures
from fsd_core.worker.token_builder import TokenBuilder

logger = logging.getLogger(__name__)

_WARM_UP_ROUNDS = 2
_ROUNDS = 16
"""of one token each: enough for a rate, and little beside the texts"""


class TargetSpeed:
    """Writes a prompt's first tokens with the target alone, and estimates from them how long more of them would take.

    A target that cannot be measured leaves the settings without this figure, and does not end them.
    """

    def __init__(self, pair: LoadedPair) -> None:
        self._pair = pair
        self._session: DecodingSession | None = None
        self._seconds: list[float] = []  # of each round

    def begin(self, job: PlaygroundJob) -> None:
        """Open the session, for the prompt and the sampling of the job's first setting."""
        try:
            decoding = DecodingConfig(acceptance=Autoregressive(), **job.decoding(0).shared)
            decoder = PairDecoder(self._pair, decoding)
            ids = decoder.prompt_ids(job.prompt)
            list(islice(decoder.stream(ids, job.seed), _WARM_UP_ROUNDS))
            self._session = decoder.session(ids, job.seed)
        except (FsdError, RuntimeError) as error:
            self._fail(error)

    def run_round(self) -> None:
        """Write one more token, until there are enough."""
        if self._session is None:
            return
        started = time.perf_counter()
        try:
            self._session.run_round()
        except (FsdError, RuntimeError) as error:
            self._fail(error)
            return
        self._seconds.append(time.perf_counter() - started)
        if len(self._seconds) == _ROUNDS or self._session.stop_reason is not None:
            self.close()

    def tokens_per_second(self, tokens: int) -> float | None:
        """Return its rate for so many tokens; ``None`` if it has not written two yet.

        The first round reads the prompt, too. The others take what they took on average.
        """
        if tokens == 0 or len(self._seconds) < 2:
            return None
        first, *others = self._seconds
        return tokens / (first + (tokens - 1) * sum(others) / len(others))

    def close(self) -> None:
        """Return the buffers of the session for reuse."""
        if self._session is not None:
            self._session.close()
        self._session = None

    def _fail(self, error: Exception) -> None:
        self.close()
        logger.warning("The target alone could not be timed: %s", error)


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


FLUSH_SECONDS = 0.1


def generate(
    job: PlaygroundJob,
    pair: LoadedPair,
    written: Iterable[Chunk],
    write: Callable[[list[Chunk]], None],
    check: Callable[[], None],
) -> None:
    """Execute a playground job.

    ``written``: the chunks that its stream already has. ``write`` appends chunks; ``check`` is called about every 100
    ms and stops the work by raising. An error of one setting is reported in its chunk, and the others continue.
    """
    follow(stream(job, pair, written), write, check)


def follow(chunks: Iterable[list[Chunk]], write: Callable[[list[Chunk]], None], check: Callable[[], None]) -> None:
    """Store the chunks of :func:`stream`, wherever it runs, and call ``check`` before each batch."""
    check()
    for batch in chunks:
        if batch:
            write(batch)
        check()


def stream(job: PlaygroundJob, pair: LoadedPair, written: Iterable[Chunk]) -> Generator[list[Chunk]]:
    """Yield the chunks that the job's stream lacks, batched every 100 ms."""
    sent: Counter[int] = Counter()
    ended = set()
    for chunk in written:
        sent[chunk.setting] += len(chunk.tokens)
        if chunk.done:
            ended.add(chunk.setting)
    target = TargetSpeed(pair)
    streams = [SettingStream(i, pair, target, sent[i]) for i in range(len(job.settings)) if i not in ended]
    try:
        for setting in streams:
            setting.begin(job)
        target.begin(job)
        flushed = -math.inf  # the first tokens do not wait
        first = 0
        while any(not setting.done for setting in streams):
            for setting in streams[first:] + streams[:first]:
                if not setting.done:
                    setting.run_round()
            target.run_round()
            first = (first + 1) % len(streams)
            if time.monotonic() - flushed >= FLUSH_SECONDS:
                yield _news(streams)
                flushed = time.monotonic()
        if news := _news(streams):
            yield news
    finally:
        for setting in streams:
            setting.close()
        target.close()


def _news(streams: list[SettingStream]) -> list[Chunk]:
    return [setting.chunk() for setting in streams if setting.has_news]
