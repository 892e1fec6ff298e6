"""Drafts with a smaller language model of the same tokenizer."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from fsd_core.config import SamplingConfig
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.rows import DraftRow
from fsd_core.ops.warping import warp


class DraftModelDrafter:
    """The pair's draft model, sampled with the target's settings (Leviathan et al. 2023, Chen et al. 2023)."""

    def __init__(self, model: LanguageModel, sampling: SamplingConfig, capacity: int) -> None:
        self._model, self._sampling = model, sampling
        self._cache = model.new_cache(capacity)

    def _row(self, tokens: Tensor) -> DraftRow:
        logits = self._model.forward(tokens, self._cache, keep=1)[:, 0]
        return DraftRow(warp(logits, self._sampling), logits.softmax(-1))

    def begin(self, tokens: Tensor, history: Sequence[int]) -> DraftRow:
        # All that is not in the cache yet: the prompt at first, later the last token, and the one before it if the
        # whole draft was accepted.
        return self._row(tokens[:, self._cache.length :])

    def extend(self, token: Tensor) -> DraftRow:
        return self._row(token[:, None])

    def commit(self, length: int) -> None:
        self._cache.rollback(length)
