"""A device that is lent for each call, as ZeroGPU does. Elsewhere the call runs in this process, on its device."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import torch

from fsd_core.conditions import EXECUTOR
from fsd_core.config import SamplingConfig
from fsd_core.errors import DeviceUnavailable, FsdError
from fsd_core.evaluation import bounds
from fsd_core.evaluation.bounds import Ask as AskForRates
from fsd_core.evaluation.generator import Plan
from fsd_core.models import threads
from fsd_core.models.fingerprints import identity_of
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, obtain_pair
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.models.prompt import encode_prompt, prompt_hash
from fsd_core.models.tokenizer_files import tokenizer_folder
from fsd_core.models.vocabularies import load_tokenizer
from fsd_core.settings import Settings
from fsd_core.space import zero_gpu as on_zero_gpu
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk
from fsd_core.storage.records import GenerationRecord, RunView
from fsd_core.tasks import TASKS, Example, Task
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.worker import gpu_billing, zero_gpu
from fsd_core.worker.remote_calls import (
    Bounds,
    Call,
    DescribeCall,
    Failed,
    PairQuery,
    PairRef,
    PlaygroundCall,
    RunBatch,
    RunSlice,
    WrittenPrompt,
    answer,
)

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
        self._answer = zero_gpu.with_gpu(answer, settings.gpu_seconds)
        self._described: dict[tuple[PairRef, str], dict[str, Any]] = {}
        gpu_billing.store_contexts()

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
                yield from self._ask(job_id, Bounds(pair_ref, (text,), sampling))

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
        context = gpu_billing.context_of(job_id)
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
