"""Where a worker computes, with the pairs that it has in memory."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Protocol

import torch

from fsd_core.config.model_names import called
from fsd_core.errors import InsufficientMemory
from fsd_core.evaluation import bounds
from fsd_core.evaluation.bounds import Ask
from fsd_core.evaluation.harness import LocalGenerator, TextGenerator
from fsd_core.models import threads
from fsd_core.models.hub import OnProgress
from fsd_core.models.load_failures import total_bytes
from fsd_core.models.loading import LoadedPair, load_pair, resolve_device
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.models.pair_check import identity_of
from fsd_core.settings import Settings
from fsd_core.storage.messages import Chunk, PlaygroundJob
from fsd_core.storage.records import RunView
from fsd_core.worker import playground

logger = logging.getLogger(__name__)

_MAX_PAIRS = 3


class PairCache:
    """Loads pairs and keeps the last used: at most ``_MAX_PAIRS``, and as many as fit together."""

    def __init__(self, device: str, on_progress: OnProgress = lambda what, done, total: None) -> None:
        """``device``: the installation's, used for runs with ``auto``. ``on_progress`` receives downloads and other
        steps."""
        self._device, self._on_progress = device, on_progress
        self._pairs: dict[tuple[str, str, str], LoadedPair] = {}
        """least recently used first"""

    def __call__(self, name: str, device: str = "auto", dtype: str = "auto") -> LoadedPair:
        """Return the pair. Raises what ``load_pair`` raises."""
        key = (name, self._device if device == "auto" else device, dtype)
        pair = self._pairs.pop(key, None)
        if pair is None or identity_of(name) not in ("", pair.identity):  # its folders have other models by now
            pair = self._load(key)
        self._pairs[key] = pair
        return pair

    def _load(self, key: tuple[str, str, str]) -> LoadedPair:
        while len(self._pairs) >= _MAX_PAIRS:
            self._evict()
        started = time.monotonic()
        while True:
            self._on_progress(f"Loading {called(key[0])}", 0, 0)
            try:
                pair = load_pair(*key, self._on_progress)
            except InsufficientMemory:
                if not self._pairs:
                    raise
                self._evict()
            else:
                logger.info("Loaded %s on %s in %.1f s.", key[0], pair.device, time.monotonic() - started)
                return pair

    def _evict(self) -> None:
        """Drop the least recently used pair."""
        name, *_ = oldest = next(iter(self._pairs))
        del self._pairs[oldest]
        logger.info("Unloaded %s to free memory.", name)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()


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
