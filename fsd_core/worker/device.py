"""What a worker computes on: a device that is this process's own, or one that is lent for each call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Protocol

from fsd_core.evaluation import bounds
from fsd_core.evaluation.generator import LocalGenerator, TextGenerator
from fsd_core.models import threads
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, resolve_device
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.settings import Settings
from fsd_core.storage.messages import Chunk, PlaygroundJob
from fsd_core.storage.records import RunView
from fsd_core.worker import playground
from fsd_core.worker.pair_cache import PairCache


class Device(Protocol):
    """Computes what jobs ask for, and knows nothing of the database. Errors are those of ``load_pair``, and
    ``DeviceUnavailable``."""

    def start(self) -> str:
        """Called once, from the thread that works; the device's name for the pages."""
        ...

    def fit(self) -> None:
        """Called before every prompt."""
        ...

    def preload(self) -> None:
        """What the first click should not wait for."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Around other jobs that are done between two prompts of one."""
        ...

    def generator(self, job_id: str) -> AbstractContextManager[TextGenerator]:
        """Writes the prompts of a job's runs."""
        ...

    def playground(self, job_id: str, asked: PlaygroundJob, written: Sequence[Chunk]) -> Generator[list[Chunk]]:
        """See ``playground.stream``. ``written``: what the job's stream has already."""
        ...

    def bounds(self, job_id: str, run: RunView) -> bounds.Ask:
        """Asks the run's pair."""
        ...


DeviceFactory = Callable[[Settings, OnProgress], Device]
"""of the installation's settings, and of what is told about steps that take long"""


class LocalDevice:
    """The pairs are in this process, and so are its threads."""

    def __init__(self, settings: Settings, on_progress: OnProgress) -> None:
        self._settings = settings
        self._pairs = PairCache(settings.device, on_progress)
        self.adopted: LoadedPair | None = None
        """the pair that the number of threads was chosen for"""

    def start(self) -> str:
        threads.fix(self._settings.threads)
        return str(resolve_device(self._settings.device))

    def fit(self) -> None:
        threads.fit()

    def preload(self) -> None:
        """The pair that pages offer first, which ships with the program."""
        self.pair(next(iter(MODEL_PAIRS)))

    def pair(self, name: str, device: str = "auto", dtype: str = "auto") -> LoadedPair:
        """A pair, for which the threads are chosen from now on."""
        pair = self._pairs(name, device, dtype)
        threads.adopt(pair)
        self.adopted = pair
        return pair

    @contextmanager
    def aside(self) -> Iterator[None]:
        """The next prompt has its pair's threads again."""
        ours = self.adopted
        yield
        if ours is not None and self.adopted is not ours:
            threads.adopt(ours)
            self.adopted = ours

    def generator(self, job_id: str) -> AbstractContextManager[TextGenerator]:
        return nullcontext(LocalGenerator(self.pair))

    def playground(self, job_id: str, asked: PlaygroundJob, written: Sequence[Chunk]) -> Generator[list[Chunk]]:
        return playground.stream(asked, self.pair(asked.pair), written)

    def bounds(self, job_id: str, run: RunView) -> bounds.Ask:
        return partial(bounds.rates, self.pair(run.pair, run.config.device, run.config.dtype))
