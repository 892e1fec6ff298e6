"""Where a worker computes: on a device of this process, or on one that is lent for each call."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Protocol

from fsd_core.evaluation import bounds
from fsd_core.evaluation.bounds import Ask
from fsd_core.evaluation.generator import LocalGenerator, TextGenerator
from fsd_core.models import threads
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, resolve_device
from fsd_core.models.memory import total_bytes
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.settings import Settings
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.playground_chunks import Chunk
from fsd_core.storage.records import RunView
from fsd_core.worker import playground
from fsd_core.worker.pair_cache import PairCache


class Device(Protocol):
    """A device that executes jobs without access to the database. Raises the errors of ``load_pair``, and
    ``DeviceUnavailable``."""

    def start(self) -> str:
        """Prepare the device and return its name for the pages. Called once, from the worker's thread."""
        ...

    def memory(self) -> int | None:
        """Return the bytes of memory that the device has; ``None`` if that is not known. Called after ``start``."""
        ...

    def fit(self) -> None:
        """Adjust the number of threads. Called before every prompt."""
        ...

    def preload(self) -> None:
        """Load the pair that the first click should not wait for."""
        ...

    def aside(self) -> AbstractContextManager[None]:
        """Wrap other jobs that run between two prompts of a job."""
        ...

    def generator(self, job_id: str) -> AbstractContextManager[TextGenerator]:
        """Return a generator for the prompts of a job's runs."""
        ...

    def playground(self, job_id: str, job: PlaygroundJob, written: Sequence[Chunk]) -> Generator[list[Chunk]]:
        """See ``playground.stream``. ``written`` holds the chunks that the job's stream already has."""
        ...

    def bounds(self, job_id: str, run: RunView) -> Ask:
        """Return a function that queries the run's pair."""
        ...


DeviceFactory = Callable[[Settings, OnProgress], Device]
"""builds a device from the settings of the installation and a callback for the progress of long steps"""


class LocalDevice:
    """A device whose pairs and threads belong to this process."""

    def __init__(self, settings: Settings, on_progress: OnProgress) -> None:
        self._settings = settings
        self._pairs = PairCache(settings.device, on_progress)
        self.adopted: LoadedPair | None = None
        """the pair that the number of threads was chosen for"""

    def start(self) -> str:
        threads.fix(self._settings.threads)
        return str(resolve_device(self._settings.device))

    def memory(self) -> int:
        return total_bytes(resolve_device(self._settings.device))

    def fit(self) -> None:
        threads.fit()

    def preload(self) -> None:
        """Load the pair that pages offer first, which ships with the program."""
        self.pair(next(iter(MODEL_PAIRS)))

    def pair(self, name: str, device: str = "auto", dtype: str = "auto") -> LoadedPair:
        """Return a pair and choose the threads for it from now on."""
        pair = self._pairs(name, device, dtype)
        threads.adopt(pair)
        self.adopted = pair
        return pair

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Restore the threads of the current pair after the block."""
        current = self.adopted
        yield
        if current is not None and self.adopted is not current:
            threads.adopt(current)
            self.adopted = current

    def generator(self, job_id: str) -> AbstractContextManager[TextGenerator]:
        return nullcontext(LocalGenerator(self.pair))

    def playground(self, job_id: str, job: PlaygroundJob, written: Sequence[Chunk]) -> Generator[list[Chunk]]:
        return playground.stream(job, self.pair(job.pair), written)

    def bounds(self, job_id: str, run: RunView) -> Ask:
        return partial(bounds.rates, self.pair(run.pair, run.config.device, run.config.dtype))
