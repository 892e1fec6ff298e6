"""Drafts by copying: what followed the last few tokens where they stood before."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.config import PromptLookupDrafter as PromptLookupConfig
from fsd_core.drafters.base import DrafterFactory
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.tree_attention import AcceptedPath
from fsd_core.ops.warping import one_hot


def find_continuation(history: Sequence[int], max_ngram: int) -> int | None:
    """Index behind the most recent earlier occurrence of the text's last n tokens, longest n first; or ``None``."""
    end = len(history)
    for n in range(min(max_ngram, end - 1), 0, -1):
        last = list(history[end - n :])
        for start in range(end - n - 1, -1, -1):
            if list(history[start : start + n]) == last:
                return start + n
    return None


class PromptLookupDrafter:
    """Copies from the text itself; q = 1 on the copied token, so strict acceptance keeps it with probability p(x).

    Saxena 2023, "Prompt Lookup Decoding". One text at a time (B = 1).
    """

    kind: ClassVar[str] = "prompt-lookup"
    aux_hidden_states = None

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        assert isinstance(config.drafter, PromptLookupConfig)
        max_ngram, vocabulary, device = config.drafter.max_ngram, models.target.vocabulary, models.target.device
        return DrafterFactory(cls.kind, lambda capacity, rows: cls(max_ngram, vocabulary, device))

    def __init__(self, max_ngram: int, vocabulary: int, device: torch.device) -> None:
        self._max_ngram, self._vocabulary, self._device = max_ngram, vocabulary, device
        self._copied: Sequence[int] = ()
        self._at = 0

    def _row(self) -> DraftDistribution | None:
        if self._at >= len(self._copied):
            return None
        token = torch.full((1,), self._copied[self._at], device=self._device)
        self._at += 1
        point = one_hot(token, self._vocabulary)
        return DraftDistribution(point, point)

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        start = find_continuation(history, self._max_ngram)
        self._copied, self._at = ((), 0) if start is None else (history[start:], 0)
        return self._row()

    def extend(self, token: Tensor) -> DraftDistribution | None:
        return self._row()

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        raise NotImplementedError("there is one continuation to copy; configurations refuse several")

    def commit(self, lengths: Sequence[int], way: AcceptedPath | None = None) -> None:
        """Nothing is kept between rounds."""

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Nothing has to be read."""

    def keep_rows(self, rows: Tensor) -> None:
        """There is one row."""

    def close(self) -> None:
        """There is no cache."""
