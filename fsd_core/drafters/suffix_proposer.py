"""Suffix decoding that may also copy from earlier answers of the run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.config.drafting.suffix import END_OF_TEXT, SuffixDrafter
from fsd_core.drafters.base import DrafterFactory
from fsd_core.drafters.copying import Copying
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution

_MOST_TOKENS = 4096
"""tokens of earlier answers that are looked at, the latest; reading them takes some milliseconds a round"""


class SuffixProposer(Copying):
    """Copies from the text, and with the memory ``run`` from the answers before it (Oliaro et al. 2024).

    The drafters of one factory share the answers, so they last as long as the run that decodes with it.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        settings, target = config.drafter, models.target
        assert isinstance(settings, SuffixDrafter)
        answers: list[int] = []
        return DrafterFactory(lambda capacity, rows: cls(settings, target.vocabulary, target.device, answers))

    def __init__(self, settings: SuffixDrafter, vocabulary: int, device: torch.device, answers: list[int]) -> None:
        super().__init__(settings, vocabulary, device)
        self._suffix, self._answers = settings, answers
        self._matched = settings.matched(())
        self._prompt = 0

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        if not self._text:
            self._text, self._prompt = history, len(history)
        return super().begin(tokens, texts)

    def proposed(self, history: Sequence[int]) -> Sequence[int]:
        self._matched = self._suffix.matched(history, self._answers)
        return self._matched.draft

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        return self._suffix.successors_in(self._matched, path)

    def begin_row(self, row: int, tokens: Tensor) -> None:
        self._keep_answer()

    def close(self) -> None:
        """Keep the answer: there is no cache to release."""
        self._keep_answer()

    def _keep_answer(self) -> None:
        if self._suffix.learns_from_run and self._text:
            self._answers += [*self._text[self._prompt :], END_OF_TEXT]
            del self._answers[:-_MOST_TOKENS]
        self._text = ()
