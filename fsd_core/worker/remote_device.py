"""A device that is lent for each call, as ZeroGPU does; elsewhere the call runs in this process, on what it has."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from functools import partial
from itertools import takewhile
from typing import Any, TypeVar

import torch

from fsd_core.conditions import EXECUTOR
from fsd_core.config import SamplingConfig
from fsd_core.errors import DeviceUnavailable, FsdError
from fsd_core.evaluation import bounds
from fsd_core.evaluation.generator import Plan
from fsd_core.models import threads
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, obtain_pair
from fsd_core.models.model_pairs import MODEL_PAIRS, get_pair
from fsd_core.settings import Settings
from fsd_core.space import zero_gpu as on_zero_gpu
from fsd_core.storage.messages import Chunk, PlaygroundJob
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

MOST_PIECES = 200
"""of one call: more than its time allows need not travel"""

_T = TypeVar("_T")
Ask = Callable[[Call], Generator[Any]]


class RemoteDevice:
    """See ``device.Device``. The thread that works loads no pair itself: a forked process finds torch untouched."""

    def __init__(self, settings: Settings, on_progress: OnProgress) -> None:
        self._settings, self._on_progress = settings, on_progress
        self._is_zero_gpu = on_zero_gpu()
        self.name = "ZeroGPU" if self._is_zero_gpu else "the web process"
        self._seconds = settings.gpu_seconds if self._is_zero_gpu else None
        self._answer = zero_gpu.lent(answer, settings.gpu_seconds)
        self._described: dict[PairRef, dict[str, Any]] = {}
        gpu_billing.keep()

    def start(self) -> str:
        # Several threads would be at work beside the pages, and a process that is forked from them would hang.
        threads.fix(self._settings.threads or 1)
        return self.name

    def fit(self) -> None:
        """The number of threads is fixed."""

    def preload(self) -> None:
        """Nothing on ZeroGPU, where a GPU would be charged for it."""
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

    def playground(self, job_id: str, asked: PlaygroundJob, written: Sequence[Chunk]) -> Generator[list[Chunk]]:
        where = PairRef(asked.pair)
        self._obtain(where)
        return self._ask(job_id, PlaygroundCall(where, asked, tuple(written)))

    def bounds(self, job_id: str, run: RunView) -> bounds.Ask:
        where = _where(run)
        self._obtain(where)

        def ask(texts: list[bounds.SampledPositions], sampling: SamplingConfig) -> Iterator[bounds.Rates]:
            # A call each, so that none takes long: a position is a second's work.
            for text in texts:
                yield from self._ask(job_id, Bounds(where, (text,), sampling))

        return ask

    def _describe(self, job_id: str, where: PairRef) -> dict[str, Any]:
        """The provenance of what a pair writes, asked once for each pair."""
        if where not in self._described:
            self._obtain(where)
            with closing(self._ask(job_id, DescribeCall(where))) as answers:
                self._described[where] = next(answers) | {EXECUTOR: self.name}
        return dict(self._described[where])

    def _obtain(self, where: PairRef) -> None:
        """Fetches what is not on this machine, while no GPU waits for it."""
        obtain_pair(get_pair(where.pair), self._on_progress)

    def _ask(self, job_id: str, call: Call) -> Generator[Any]:
        """The answers to a call. Raises ``FsdError`` with the sentence of one that came to nothing, and
        ``DeviceUnavailable`` where no device is lent, or it is taken back."""
        context = gpu_billing.context_of(job_id)
        answers = self._answer(call, self._settings.device, self._seconds)
        try:
            while True:
                try:
                    found = context.run(next, answers, None)
                except Exception as error:
                    told = str(getattr(error, "message", error)).strip().rstrip(".")
                    raise DeviceUnavailable(
                        f"{self.name} lent no GPU, or took it back ({told}). What is finished is kept: try again later."
                    ) from error
                if found is None:
                    return
                if isinstance(found, Failed) and found.run_id is None:
                    raise FsdError(found.sentence)
                yield found
        finally:
            context.run(answers.close)


class RemoteGenerator:
    """See ``generator.TextGenerator``. Asks for the prompts that are to come in slices, each of as many as its
    call has time for.

    A call that ends, or is ended, after it has brought something is followed by the next.
    """

    def __init__(self, ask: Ask, describe: Callable[[PairRef], dict[str, Any]]) -> None:
        self._ask, self._describe = ask, describe
        self._plan: list[tuple[RunView, tuple[int, ...]]] = []
        self._own: dict[str, CustomTask] = {}
        self._answers: Generator[Any] | None = None

    def close(self) -> None:
        """Ends the call that is under way."""
        if self._answers is not None:
            self._answers.close()
            self._answers = None

    def open(self, run: RunView) -> dict[str, Any]:
        return self._describe(_where(run))

    def warm_up(self, run: RunView, example: Example) -> None:
        """Each call does so for the runs that it writes."""

    def plan(self, plan: Plan) -> None:
        self._plan = [(run, tuple(positions)) for run, positions in plan]

    def ask(self, pair: str, device: str, dtype: str, question: Callable[[LoadedPair], _T]) -> _T:
        where = PairRef(pair, device, dtype)
        self._describe(where)  # fetches the pair
        with closing(self._ask(PairQuery(where, question))) as answers:
            return next(answers)

    def threads(self) -> int:
        return torch.get_num_threads()

    def write(self, run: RunView, task: Task, examples: Mapping[int, Example]) -> Iterator[GenerationRecord]:
        if isinstance(task, CustomTask):
            self._own[run.task] = task
        left = list(examples)
        while left:
            found = self._next(run, left)
            if isinstance(found, Failed) and found.run_id == run.id:
                raise FsdError(found.sentence)
            if isinstance(found, WrittenPrompt) and found.run_id == run.id and found.record.position in left:
                left.remove(found.record.position)
                yield found.record

    def _next(self, run: RunView, left: Sequence[int]) -> Any:
        """The next answer; ``None`` where the call is over, and the next one is to be made."""
        new = self._answers is None
        if self._answers is None:
            pieces = self._pieces(run, left)
            own = {piece.task: self._own[piece.task] for piece in pieces if piece.task in self._own}
            self._answers = self._ask(RunSlice(pieces, tuple(own.items())))
        try:
            found = next(self._answers, None)
        except DeviceUnavailable:
            self._answers = None
            if new:
                raise
            return None
        if found is None:
            self._answers = None
            if new:
                raise DeviceUnavailable("A GPU was lent, and nothing was written on it: resume this later.")
        return found

    def _pieces(self, run: RunView, left: Sequence[int]) -> tuple[RunBatch, ...]:
        """What is left of this turn, and behind it what is planned."""
        at = next((i for i, (other, some) in enumerate(self._plan) if other.id == run.id and left[0] in some), None)
        # Prompts that a process died with are done alone, so what follows on them is not what is planned.
        ahead = [] if at is None or run.losses else self._plan[at + 1 : at + MOST_PIECES]
        known = takewhile(lambda turn: turn[0].task in TASKS or turn[0].task in self._own, ahead)
        return tuple(_piece(one, some) for one, some in [(run, tuple(left)), *known])


def _where(run: RunView) -> PairRef:
    return PairRef(run.pair, run.config.device, run.config.dtype)


def _piece(run: RunView, positions: tuple[int, ...]) -> RunBatch:
    config = run.config
    return RunBatch(run.id, _where(run), run.decoding, run.task, run.seed, config.batch, positions)
