"""A device that is lent for each call, as ZeroGPU does.

Calls to a remote device: one function, which may run in a forked process.

A call and its answers are frozen values that are pickled. So nothing passed in comes back changed, and no repository,
pair or decoder is passed at all. The answering process loads the pairs itself and keeps them for later calls. It does
not touch the database: the caller stores the answers.

An error is also sent as an answer, by its message, because ZeroGPU passes on only the class name of an exception.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import takewhile
from typing import Any, TypeVar

import torch

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.config.model_names import take_names
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import DeviceUnavailable, FsdError, user_message
from fsd_core.evaluation import bounds
from fsd_core.evaluation.bounds import Ask as AskForRates
from fsd_core.evaluation.harness import Plan, about, run_examples, warm_up
from fsd_core.metrics import EXECUTOR
from fsd_core.models import threads
from fsd_core.models.conversation import kept_marks
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, obtain_pair
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.models.pair_check import identity_of
from fsd_core.models.prompt import encode_prompt, load_tokenizer, prompt_hash, template_marks
from fsd_core.models.sources import tokenizer_folder
from fsd_core.settings import Settings
from fsd_core.settings import zero_gpu as on_zero_gpu
from fsd_core.storage.messages import Chunk, PlaygroundJob
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.tasks import TASKS, Example, Task, get_task
from fsd_core.tasks.base import Said
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.texts import whole
from fsd_core.worker import lent_gpu, playground
from fsd_core.worker.device import PairCache

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
class BoundsCall:
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


Call = DescribeCall | PairQuery | PlaygroundCall | RunSlice | BoundsCall


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
            case BoundsCall(pair_ref, texts, sampling):
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


MOST_BATCHES = 200
"""maximum number of batches in a call, which has no time for more"""

_T = TypeVar("_T")
Ask = Callable[[Call], Generator[Any]]


class RemoteDevice:
    """See ``device.Device``. The worker's thread loads no pair itself, so a forked process finds torch unused."""

    def __init__(self, settings: Settings, on_progress: OnProgress) -> None:
        self._settings, self._on_progress = settings, on_progress
        self._is_zero_gpu = on_zero_gpu()
        self.name = "ZeroGPU" if self._is_zero_gpu else "the web process"
        self._seconds = settings.gpu_seconds if self._is_zero_gpu else None
        self._answer = lent_gpu.with_gpu(answer, settings.gpu_seconds)
        self._described: dict[tuple[PairRef, str], dict[str, Any]] = {}
        lent_gpu.store_contexts()

    def start(self) -> str:
        # With several threads at work beside the pages, a forked process would hang.
        threads.fix(self._settings.threads or 1)
        return self.name

    def memory(self) -> None:
        """Return ``None``: what a lent device has is known only while it is lent."""

    def fit(self) -> None:
        """Do nothing: the number of threads is fixed."""

    def preload(self) -> None:
        """Load the first pair, except on ZeroGPU, which would charge a GPU for it."""
        if not self._is_zero_gpu:
            self._describe("", PairRef(next(iter(MODEL_PAIRS))))

    def aside(self) -> AbstractContextManager[None]:
        return nullcontext()

    @contextmanager
    def generator(self, job_id: str) -> Iterator[RemoteGenerator]:
        generator = RemoteGenerator(partial(self._ask, job_id), partial(self._describe, job_id))
        try:
            yield generator
        finally:
            generator.close()

    def playground(self, job_id: str, job: PlaygroundJob, written: Sequence[Chunk]) -> Generator[list[Chunk]]:
        pair_ref = PairRef(job.pair)
        self._download(pair_ref)
        return self._ask(job_id, PlaygroundCall(pair_ref, job, tuple(written)))

    def bounds(self, job_id: str, run: RunView) -> AskForRates:
        pair_ref = _pair_ref(run)
        self._download(pair_ref)

        def ask(texts: list[bounds.SampledPositions], sampling: SamplingConfig) -> Iterator[bounds.Rates]:
            # One call per text, so that none takes long: a position takes about a second.
            for text in texts:
                yield from self._ask(job_id, BoundsCall(pair_ref, (text,), sampling))

        return ask

    def _describe(self, job_id: str, pair_ref: PairRef) -> dict[str, Any]:
        """Return the provenance of a pair's output, requested once per pair."""
        key = pair_ref, identity_of(pair_ref.pair)
        if key not in self._described:
            self._download(pair_ref)
            with closing(self._ask(job_id, DescribeCall(pair_ref))) as answers:
                self._described[key] = next(answers) | {EXECUTOR: self.name}
        return dict(self._described[key])

    def _download(self, pair_ref: PairRef) -> None:
        """Download missing models before a GPU is requested."""
        obtain_pair(get_pair(pair_ref.pair), self._on_progress)

    def _ask(self, job_id: str, call: Call) -> Generator[Any]:
        """Yield the answers to a call. Raises ``FsdError`` with the message of a failed call, and ``DeviceUnavailable``
        if no device is lent or it is taken back."""
        context = lent_gpu.context_of(job_id)
        answers = self._answer(call, self._settings.device, self._seconds)
        try:
            while True:
                try:
                    item = context.run(next, answers, None)
                except Exception as error:
                    text = str(getattr(error, "message", error)).strip().rstrip(".")
                    raise DeviceUnavailable(
                        f"{self.name} lent no GPU, or took it back ({text}). What is finished is kept: try again later."
                    ) from error
                if item is None:
                    return
                if isinstance(item, Failed) and item.run_id is None:
                    raise FsdError(item.sentence)
                yield item
        finally:
            context.run(answers.close)


class RemoteGenerator:
    """See ``generator.TextGenerator``. Requests upcoming prompts in slices of as many as one call has time for.

    A call that ends or is interrupted is followed by the next one, provided that it brought a result.
    """

    def __init__(self, ask: Ask, describe: Callable[[PairRef], dict[str, Any]]) -> None:
        self._ask, self._describe = ask, describe
        self._plan: list[tuple[RunView, tuple[int, ...]]] = []
        self._tasks: dict[str, CustomTask] = {}
        self._answers: Generator[Any] | None = None

    def close(self) -> None:
        """End the running call."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None

    def open(self, run: RunView) -> dict[str, Any]:
        return self._describe(_pair_ref(run))

    def warm_up(self, run: RunView, example: Example) -> None:
        """Do nothing: each call warms up the runs that it writes."""

    def prompt_hash(self, run: RunView, example: Example) -> str:
        """See ``generator.TextGenerator``. Takes the tokenizer alone, which needs no device."""
        spec = get_pair(run.pair)
        template = run.decoding.template.filled(spec.template_arguments)
        tokenizer = load_tokenizer(tokenizer_folder(obtain_pair(spec)["target"], spec.adapter))
        return prompt_hash(encode_prompt(tokenizer, example.model_input, template=template))

    def plan(self, plan: Plan) -> None:
        self._plan = [(run, tuple(positions)) for run, positions in plan]

    def ask(self, pair: str, device: str, dtype: str, query: Callable[[LoadedPair], _T]) -> _T:
        pair_ref = PairRef(pair, device, dtype)
        self._describe(pair_ref)  # fetches the pair
        with closing(self._ask(PairQuery(pair_ref, query))) as answers:
            return next(answers)

    def threads(self) -> int:
        return torch.get_num_threads()

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        if isinstance(task, CustomTask):
            self._tasks[run.task] = task
        remaining = list(examples)
        while remaining:
            item = self._next(run, remaining, examples)
            if isinstance(item, Failed) and item.run_id == run.id:
                raise FsdError(item.sentence)
            if isinstance(item, WrittenPrompt) and item.run_id == run.id and item.record.position in remaining:
                remaining.remove(item.record.position)
                yield item.record

    def _next(self, run: RunView, remaining: Sequence[int], examples: Mapping[int, Example]) -> Any:
        """Return the next answer, or ``None`` if the call is over and a new one has to be made."""
        is_new = self._answers is None
        if self._answers is None:
            batches = self._next_batches(run, remaining, examples)
            tasks = {batch.task: self._tasks[batch.task] for batch in batches if batch.task in self._tasks}
            self._answers = self._ask(RunSlice(batches, tuple(tasks.items())))
        try:
            item = next(self._answers, None)
        except DeviceUnavailable:
            self._answers = None
            if is_new:
                raise
            return None
        if item is None:
            self._answers = None
            if is_new:
                raise DeviceUnavailable("A GPU was lent, and nothing was written on it: resume this later.")
        return item

    def _next_batches(
        self, run: RunView, remaining: Sequence[int], examples: Mapping[int, Example]
    ) -> tuple[RunBatch, ...]:
        """Return the remaining prompts of this run, followed by the planned ones."""
        at = next((i for i, (r, prompts) in enumerate(self._plan) if r.id == run.id and remaining[0] in prompts), None)
        # Prompts that a process died with are written one at a time, so the plan does not apply to their successors.
        later = [] if at is None or run.losses else self._plan[at + 1 : at + MOST_BATCHES]
        sendable = takewhile(lambda planned: planned[0].task in TASKS or planned[0].task in self._tasks, later)
        asked = tuple((position, examples[position]) for position in remaining if examples[position].turn)
        first = replace(_run_batch(run, tuple(remaining)), asked=asked)
        return first, *(_run_batch(r, prompts) for r, prompts in sendable)


def _pair_ref(run: RunView) -> PairRef:
    return PairRef(run.pair, run.config.device, run.config.dtype)


def _run_batch(run: RunView, positions: tuple[int, ...]) -> RunBatch:
    config = run.config
    return RunBatch(run.id, _pair_ref(run), run.decoding, run.task, run.seed, config.batch, positions)
