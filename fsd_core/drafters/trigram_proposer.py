"""Drafts from a table of tri-grams that learns while it drafts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.config.drafting.trigram import TrigramDrafter
from fsd_core.drafters.base import DrafterFactory
from fsd_core.drafters.copying import Copying
from fsd_core.drafters.trigram_table import TrigramTable
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution


class TrigramProposer(Copying):
    """Proposes the likeliest successor of the last two tokens, then of the next two (Liu et al. 2025).

    With the memory ``run`` the drafters of one factory share the table, so it lasts as long as the run that decodes
    with it.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        settings, topology, target = config.drafter, config.topology, models.target
        assert isinstance(settings, TrigramDrafter)
        assert topology is not None
        most = topology.length + 1  # a rule may judge the token behind the draft like the others
        counts = models.trigrams if settings.table == "pair" else None
        of_run = TrigramTable(settings, counts) if settings.learns_from_run else None

        def new(capacity: int, rows: int) -> TrigramProposer:
            return cls(settings, target.vocabulary, target.device, of_run or TrigramTable(settings, counts), most)

        return DrafterFactory(new)

    def __init__(
        self, settings: TrigramDrafter, vocabulary: int, device: torch.device, table: TrigramTable, most: int
    ) -> None:
        """``most``: most tokens of a chain."""
        super().__init__(settings, vocabulary, device)
        self._trigrams, self._table, self._most = settings, table, most
        self._has_read_prompt = False

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        self._table.learn(history[-self._trigrams.window :] if self._has_read_prompt else history)
        self._has_read_prompt = True
        return super().begin(tokens, texts)

    def proposed(self, history: Sequence[int]) -> Sequence[int]:
        tokens: list[int] = []
        while len(tokens) < self._most and (following := self.successors(tokens)):
            tokens.append(following[0][0])
        return tokens

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        pair = [*self._text[-2:], *path[-2:]][-2:]
        return self._table.successors((pair[0], pair[1])) if len(pair) == 2 else ()

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Forget the text before: a new one begins."""
        self._has_read_prompt = False
        if not self._trigrams.learns_from_run:
            self._table.forget()
