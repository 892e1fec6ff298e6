"""The pair that the worker has in memory."""

from __future__ import annotations

import logging
import time

import torch

from fsd_core.models.hub import OnProgress
from fsd_core.models.loading import LoadedPair, load_pair

logger = logging.getLogger(__name__)


class PairCache:
    """Loads pairs and keeps the last one: a device has room for one."""

    def __init__(self, device: str, on_progress: OnProgress = lambda what, done, total: None) -> None:
        """``device``: the installation's, used where a run says ``auto``. ``on_progress`` is told of downloads."""
        self._device, self._on_progress = device, on_progress
        self._key: tuple[str, str, str] | None = None
        self._pair: LoadedPair | None = None

    def __call__(self, name: str, device: str = "auto", dtype: str = "auto") -> LoadedPair:
        """The pair. Raises what ``load_pair`` raises."""
        key = (name, self._device if device == "auto" else device, dtype)
        if self._pair is None or key != self._key:
            self._key = self._pair = None  # make room first
            if torch.cuda.is_available():
                torch.cuda.empty_cache()
            begun = time.monotonic()
            self._pair, self._key = load_pair(*key, self._on_progress), key
            logger.info("Loaded %s on %s in %.1f s.", name, self._pair.device, time.monotonic() - begun)
        return self._pair
