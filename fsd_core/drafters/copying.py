"""Drafts by copying tokens of the text, chosen by its settings."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsd_core.config import CopyingDrafter, DecodingConfig, SamplingConfig
from fsd_core.drafters.base import DrafterFactory
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.tree_attention import AcceptedPath
from fsd_core.ops.warping import one_hot


class Copying:
    """Proposes the tokens that its settings copy. q = 1 on each, so lossless decoding accepts it with probability p(x).

    One text at a time (B = 1).
    """

    aux_hidden_states = None

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        settings, target = config.drafter, models.target
        assert isinstance(settings, CopyingDrafter)
        return DrafterFactory(lambda capacity, rows: cls(settings, target.vocabulary, target.device))

    def __init__(self, settings: CopyingDrafter, vocabulary: int, device: torch.device) -> None:
        self._settings, self._vocabulary, self._device = settings, vocabulary, device
        self._text: Sequence[int] = ()  # grows while it is written, so that at its end it is all there
        self._copied: Sequence[int] = ()
        self._index = 0

    def _row(self) -> DraftDistribution | None:
        if self._index >= len(self._copied):
            return None
        token = torch.full((1,), self._copied[self._index], device=self._device)
        self._index += 1
        point = one_hot(token, self._vocabulary)
        return DraftDistribution(point, point)

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        self._text = history
        self._copied, self._index = self.proposed(history), 0
        return self._row()

    def proposed(self, history: Sequence[int]) -> Sequence[int]:
        """Return the proposed continuation of a text."""
        return self._settings.copied(history)

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return what may follow the text and the tokens of ``path``, with its probability, the likeliest first."""
        return self._settings.successors([*self._text, *path])

    def extend(self, token: Tensor) -> DraftDistribution | None:
        return self._row()

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        raise NotImplementedError("there is one continuation to copy; configurations refuse several")

    def commit(self, lengths: Sequence[int], path: AcceptedPath | None = None) -> None:
        """Do nothing: no state is kept between rounds."""

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Do nothing: no prompt has to be read."""

    def keep_rows(self, rows: Tensor) -> None:
        """Do nothing: there is only one row."""

    def close(self) -> None:
        """Do nothing: there is no cache."""
