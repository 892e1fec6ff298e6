"""A cache of one text that remembers its tokens, so that what its state has lost can be fed again."""

from __future__ import annotations

from abc import abstractmethod

from torch import Tensor

from fsd_core.models.kv_cache import KVCache


class RefedCache(KVCache):
    """The cache of one text whose state lacks the last tokens after some rollbacks. The caller feeds these again
    (:meth:`missing`)."""

    def __init__(self, layers: int, capacity: int) -> None:
        super().__init__(layers, capacity)
        self._tokens: Tensor | None = None  # int64 [1,capacity]; the first ``self.length`` are the text
        self._included = 0  # number of tokens in the state
        self._clear()

    @abstractmethod
    def _clear(self) -> None:
        """Start from the first token."""

    def record(self, tokens: Tensor) -> None:
        """Remember the tokens about to be fed, int64 [1,S]."""
        if self._tokens is None:
            self._tokens = tokens.new_zeros(1, self.capacity)
        self._tokens[:, self.length : self.length + tokens.shape[1]] = tokens

    def advance(self, count: int) -> None:
        super().advance(count)
        self._included = self.length

    def missing(self) -> Tensor | None:
        """Return the text's tokens that the state lacks, int64 [1,n], and end the cache before them. The caller feeds
        them. ``None`` if it lacks none."""
        length, self.lengths = self.length, [self._included]
        return None if self._tokens is None or length == self._included else self._tokens[:, self._included : length]

    def adopt(self, index: int, length: int) -> None:
        super().adopt(index, length)
        self._clear()

    def release(self) -> None:
        super().release()
        self._clear()
