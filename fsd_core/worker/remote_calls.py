"""Calls to a remote device: one function, which may run in a forked process.

A call and its answers are frozen values that are pickled. So nothing passed in comes back changed, and no repository,
pair or decoder is passed at all. The answering process loads the pairs itself and keeps them for later calls. It does
not touch the database: the caller stores the answers.

An error is also sent as an answer, by its message, because ZeroGPU passes on only the class name of an exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.config.model_names import take_names
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import user_message
from fsd_core.evaluation import bounds
from fsd_core.evaluation.generator import about, warm_up
from fsd_core.evaluation.harness import run_examples
from fsd_core.models.chat_template import template_marks
from fsd_core.models.loading import LoadedPair
from fsd_core.models.thoughts import kept_marks
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk
from fsd_core.storage.records import GenerationRecord
from fsd_core.tasks import Example, Task, get_task
from fsd_core.tasks.base import Said
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.texts import whole
from fsd_core.worker import playground
from fsd_core.worker.pair_cache import PairCache

SHARE = 0.75
"""share of a call's time limit after which no new work starts"""


@dataclass(frozen=True)
class PairRef:
    """A pair by its name, with its device and dtype."""

    pair: str
    device: str = "auto"
    dtype: str = "auto"


@dataclass(frozen=True)
class DescribeCall:
    """Query for the provenance of the pair's output. Answered by a dict."""

    pair_ref: PairRef


@dataclass(frozen=True)
class PairQuery:
    """Query that applies a function to the pair. Answered by its result."""

    pair_ref: PairRef
    query: Callable[[LoadedPair], Any]


@dataclass(frozen=True)
class PlaygroundCall:
    """A playground job. Answered by lists of chunks."""

    pair_ref: PairRef
    job: PlaygroundJob
    written: tuple[Chunk, ...]
    """chunks already in its stream"""


@dataclass(frozen=True)
class RunBatch:
    """Prompts of one run, by position, written as batches of ``batch_size`` texts."""

    run_id: str
    pair_ref: PairRef
    decoding: DecodingConfig
    task: str
    seed: int
    batch_size: int
    positions: tuple[int, ...]
    asked: tuple[tuple[int, Example], ...] = ()
    """later turns of conversations by position, with the earlier ones before them, where these were written before the
    call; the call continues what it has written itself"""


@dataclass(frozen=True)
class RunSlice:
    """Prompts of runs in the order of writing, as many as the time allows, but at least the first batch. Answered by
    :class:`WrittenPrompt` and :class:`Failed`."""

    batches: tuple[RunBatch, ...]
    custom_tasks: tuple[tuple[str, CustomTask], ...] = ()
    """custom tasks by their name in the batches; they are passed because the call does not read the database"""


@dataclass(frozen=True)
class Bounds:
    """Answered by ``bounds.Rates``."""

    pair_ref: PairRef
    texts: tuple[bounds.SampledPositions, ...]
    sampling: SamplingConfig


@dataclass(frozen=True)
class WrittenPrompt:
    """A written prompt of a run."""

    run_id: str
    record: GenerationRecord


@dataclass(frozen=True)
class Failed:
    """The error that ended a run or, without a run id, the call."""

    sentence: str
    run_id: str | None = None


Call = DescribeCall | PairQuery | PlaygroundCall | RunSlice | Bounds


def answer(call: Call, device: str, seconds: float | None) -> Generator[Any]:
    """Yield the answers to a call. The last one is :class:`Failed` if the call fails.

    ``device``: the installation's, used for ``auto``. ``seconds``: how long the device is lent, or ``None`` for
    unlimited.
    """
    take_names(None)  # it reads no database
    deadline = None if seconds is None else time.monotonic() + SHARE * seconds
    try:
        match call:
            case DescribeCall(pair_ref):
                yield about(_pair(device, pair_ref))
            case PairQuery(pair_ref, query):
                yield query(_pair(device, pair_ref))
            case PlaygroundCall():
                yield from _playground_chunks(call, device, seconds, deadline)
            case RunSlice():
                yield from _written_prompts(call, device, deadline)
            case Bounds(pair_ref, texts, sampling):
                yield from bounds.rates(_pair(device, pair_ref), texts, sampling)
    except Exception as error:
        yield Failed(user_message(error))


@cache
def _pairs(device: str) -> PairCache:
    """Return the pair cache of this process."""
    return PairCache(device)


def _pair(device: str, pair_ref: PairRef):
    return _pairs(device)(pair_ref.pair, pair_ref.device, pair_ref.dtype)


def _playground_chunks(
    call: PlaygroundCall, device: str, seconds: float | None, deadline: float | None
) -> Iterator[list[Chunk] | Failed]:
    stream = playground.stream(call.job, _pair(device, call.pair_ref), call.written)
    for chunks in stream:
        yield chunks
        if _expired(deadline) and next(stream, None) is not None:
            yield Failed(
                f"The text was stopped, because ZeroGPU lends a GPU for {seconds:g} seconds a call: ask for fewer new "
                "tokens, or set FSD_GPU_SECONDS to more."
            )
            return


def _written_prompts(call: RunSlice, device: str, deadline: float | None) -> Iterator[WrittenPrompt | Failed]:
    decoders: dict[str, PairDecoder] = {}
    custom_tasks = dict(call.custom_tasks)
    failed: set[str] = set()
    said: dict[tuple[str, int], Said] = {}  # by run and position
    for run_batch in call.batches:
        if decoders and _expired(deadline):
            return
        if run_batch.run_id in failed:
            continue
        try:
            pair = _pair(device, run_batch.pair_ref)
            task = custom_tasks.get(run_batch.task) or get_task(run_batch.task)
            task = task.of_model(kept_marks(template_marks(pair.tokenizer)))
            if (selected := _selected(task, run_batch, said)) is None:
                return
            if (decoder := decoders.get(run_batch.run_id)) is None:
                decoder = decoders[run_batch.run_id] = PairDecoder(pair, run_batch.decoding)
                warm_up(decoder, next(iter(selected.values())))
            for record in run_examples(decoder, task, selected, run_batch.seed, run_batch.batch_size):
                if record.outcome != "failed":
                    said[run_batch.run_id, record.position] = Said(whole(record.text), record.only_thought)
                yield WrittenPrompt(run_batch.run_id, record)
        except Exception as error:
            failed.add(run_batch.run_id)
            yield Failed(user_message(error), run_batch.run_id)


def _selected(task: Task, run_batch: RunBatch, said: Mapping[tuple[str, int], Said]) -> dict[int, Example] | None:
    """Return the prompts of a batch as they are asked, or ``None`` if earlier turns of one are not known here."""
    given, examples = dict(run_batch.asked), task.all_examples()
    selected: dict[int, Example] = {}
    for position in run_batch.positions:
        earlier = [(run_batch.run_id, position - back) for back in range(examples[position].turn, 0, -1)]
        if position not in given and any(each not in said for each in earlier):
            return None
        selected[position] = given.get(position) or task.asked(position, [said[each] for each in earlier])
    return selected


def _expired(deadline: float | None) -> bool:
    return deadline is not None and time.monotonic() > deadline
