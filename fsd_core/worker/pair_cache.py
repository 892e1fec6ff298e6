"""The pairs that the worker has in memory."""

from __future__ import annotations

import logging
import time

import torch

from fsd_core.errors import InsufficientMemory
from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, load_pair

logger = logging.getLogger(__name__)

_MOST = 3


class PairCache:
    """Loads pairs and keeps those used last: at most ``_MOST``, and as many as fit beside each other."""

    def __init__(self, device: str, on_progress: OnProgress = lambda what, done, total: None) -> None:
        """``device``: the installation's, used where a run says ``auto``. ``on_progress`` is told of downloads
        and other steps."""
        self._device, self._on_progress = device, on_progress
        self._pairs: dict[tuple[str, str, str], LoadedPair] = {}
        """the one used last is the last"""

    def __call__(self, name: str, device: str = "auto", dtype: str = "auto") -> LoadedPair:
        """The pair. Raises what ``load_pair`` raises."""
        key = (name, self._device if device == "auto" else device, dtype)
        pair = self._pairs.pop(key, None) or self._load(key)
        self._pairs[key] = pair
        return pair

    def _load(self, key: tuple[str, str, str]) -> LoadedPair:
        while len(self._pairs) >= _MOST:
            self._evict()
        begun = time.monotonic()
        while True:
            self._on_progress(f"Loading {key[0]}", 0, 0)
            try:
                pair = load_pair(*key, self._on_progress)
            except InsufficientMemory:
                if not self._pairs:
                    raise
                self._evict()
            else:
                logger.info("Loaded %s on %s in %.1f s.", key[0], pair.device, time.monotonic() - begun)
                return pair

    def _evict(self) -> None:
        """Forgets the pair that was used longest ago."""
        name, *_ = oldest = next(iter(self._pairs))
        del self._pairs[oldest]
        logger.info("Unloaded %s to free memory.", name)
        if torch.cuda.is_available():
            torch.cuda.empty_cache()
