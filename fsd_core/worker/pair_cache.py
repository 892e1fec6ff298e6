"""Cache of the pairs that the worker has in memory."""

from __future__ import annotations

import logging
import time

import torch

from fsd_core.config.model_names import called
from fsd_core.errors import InsufficientMemory
from fsd_core.models.fingerprints import identity_of
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, load_pair

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
