"""What is computed on a device that is lent: one function, whose call may run in a forked process.

A call and its answers are frozen values that travel by pickle, so nothing that is passed in comes back changed, and no
repository, pair or decoder is passed at all. The process that answers loads the pairs itself, and keeps them for the
calls after. It touches no database: the caller records what it is answered.

An error is an answer too, as its sentence: of an exception in its process ZeroGPU tells the name of the class alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import user_message
from fsd_core.evaluation import bounds
from fsd_core.evaluation.generator import about, warm_up
from fsd_core.evaluation.harness import run_examples
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.messages import Chunk, PlaygroundJob
from fsd_core.storage.records import GenerationRecord
from fsd_core.tasks import get_task
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.worker import playground
from fsd_core.worker.pair_cache import PairCache

SHARE = 0.75
"""of the time that a call may take, after which nothing more is begun"""


@dataclass(frozen=True)
class PairRef:
    """A pair by its name, and how it runs."""

    pair: str
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True)
class DescribeCall:
    """Answered by the provenance of what the pair writes, a dict."""

    where: PairRef


@dataclass(frozen=True)
class PairQuery:
    """Answered by what a function answers of the pair."""

    where: PairRef
    question: Callable[[LoadedPair], Any]


@dataclass(frozen=True)
class PlaygroundCall:
    """A playground job. Answered by lists of chunks."""

    where: PairRef
    job: PlaygroundJob
    written: tuple[Chunk, ...]
    """what its stream has already"""


@dataclass(frozen=True)
class RunBatch:
    """Some prompts of one run, by position, that are written side by side or one after the other."""

    run_id: str
    where: PairRef
    decoding: DecodingConfig
    task: str
    seed: int
    batch: int
    positions: tuple[int, ...]


@dataclass(frozen=True)
class RunSlice:
    """Prompts of runs in the order in which they are to be written, as many as the time allows, but at least the first
    piece. Answered by :class:`WrittenPrompt` and :class:`Failed`."""

    pieces: tuple[RunBatch, ...]
    own: tuple[tuple[str, CustomTask], ...] = ()
    """by the name that pieces give them: the tasks that the database has, which the call does not read"""


@dataclass(frozen=True)
class Bounds:
    """Answered by ``bounds.Rates``."""

    where: PairRef
    texts: tuple[bounds.SampledPositions, ...]
    sampling: SamplingConfig


@dataclass(frozen=True)
class WrittenPrompt:
    """A prompt of a run."""

    run_id: str
    record: GenerationRecord


@dataclass(frozen=True)
class Failed:
    """Why there is no more: of one run, or of the call."""

    sentence: str
    run_id: str | None = None


Call = DescribeCall | PairQuery | PlaygroundCall | RunSlice | Bounds


def answer(call: Call, device: str, seconds: float | None) -> Generator[Any]:
    """The answers to a call, the last of them :class:`Failed` where it comes to nothing.

    ``device``: the installation's, for what says ``auto``. ``seconds``: how long the device is lent; ``None`` for ever.
    """
    ends = None if seconds is None else time.monotonic() + SHARE * seconds
    try:
        match call:
            case DescribeCall(where):
                yield about(_pair(device, where))
            case PairQuery(where, question):
                yield question(_pair(device, where))
            case PlaygroundCall():
                yield from _speak(call, device, seconds, ends)
            case RunSlice():
                yield from _write(call, device, ends)
            case Bounds(where, texts, sampling):
                yield from bounds.rates(_pair(device, where), texts, sampling)
    except Exception as error:
        yield Failed(user_message(error))


@cache
def _pairs(device: str) -> PairCache:
    """This process's own."""
    return PairCache(device)


def _pair(device: str, where: PairRef):
    return _pairs(device)(where.pair, where.device, where.dtype)


def _speak(
    call: PlaygroundCall, device: str, seconds: float | None, ends: float | None
) -> Iterator[list[Chunk] | Failed]:
    stream = playground.stream(call.job, _pair(device, call.where), call.written)
    for chunks in stream:
        yield chunks
        if _over(ends) and next(stream, None) is not None:
            yield Failed(
                f"The text was stopped, because ZeroGPU lends a GPU for {seconds:g} seconds a call: ask for fewer new "
                "tokens, or set FSD_GPU_SECONDS to more."
            )
            return


def _write(call: RunSlice, device: str, ends: float | None) -> Iterator[WrittenPrompt | Failed]:
    decoders: dict[str, PairDecoder] = {}
    own = dict(call.own)
    failed: set[str] = set()
    for piece in call.pieces:
        if decoders and _over(ends):
            return
        if piece.run_id in failed:
            continue
        try:
            task = own.get(piece.task) or get_task(piece.task)
            examples = task.all_examples()
            some = {position: examples[position] for position in piece.positions}
            if (decoder := decoders.get(piece.run_id)) is None:
                decoder = decoders[piece.run_id] = PairDecoder(_pair(device, piece.where), piece.decoding)
                warm_up(decoder, next(iter(some.values())))
            for record in run_examples(decoder, task, some, piece.seed, piece.batch):
                yield WrittenPrompt(piece.run_id, record)
        except Exception as error:
            failed.add(piece.run_id)
            yield Failed(user_message(error), piece.run_id)


def _over(ends: float | None) -> bool:
    return ends is not None and time.monotonic() > ends
