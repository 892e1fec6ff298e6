"""What a drafter is: something that answers with the next-token distribution, position by position."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.tree_attention import AcceptedPath


@dataclass(frozen=True, slots=True)
class DrafterFactory:
    """Makes one drafter for each batch, from models that it was found to work with."""

    new: Callable[[int, int], Drafter]
    """(capacity, rows) → a drafter for ``rows`` texts of up to ``capacity`` tokens"""
    context: int | None = None
    """positions of the models that it drafts with; ``None`` if they are no fewer than the target's"""
    side_by_side: bool = False
    """whether it drafts for several texts at once"""


class Drafter(Protocol):
    """Proposes continuations of the texts of a batch. Holds its own cache, and catches up on its own after a round.

    ``begin`` and ``extend`` answer ``None`` where the drafter has nothing to propose.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        """What makes drafters for a method. ``sampling``: how they sample.

        Raises ``InvalidSetting`` for a model that is missing, and for a method that cannot work with it.
        """
        ...

    @property
    def aux_hidden_states(self) -> AuxHiddenStates | None:
        """The target's hidden states that it drafts from: filled at each forward, and read at the next ``commit``."""
        ...

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        """The distributions behind the texts so far. ``texts``: their tokens on the host, B of them; ``tokens``: int64
        [B,T], which begin with the same on the device."""
        ...

    def extend(self, token: Tensor) -> DraftDistribution | None:
        """The distribution behind ``token`` (int64 [B]), which was chosen from the row answered last."""
        ...

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        """The distributions behind n more nodes of a tree on one text, n rows. ``tokens``: int64 [1,n]; ``parents``:
        int64 [n], the nodes that they follow in the order of feeding, −1 for the text."""
        ...

    def commit(self, lengths: Sequence[int], way: AcceptedPath | None = None) -> None:
        """Of all that was fed, only the first so many tokens of each text stand; the rest was rejected. ``way``: where
        a tree was fed, which of its nodes stand."""
        ...

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """A new text begins in a row. ``tokens``: int64 [1,S], what is to be read of it at once; S may be 0."""
        ...

    def keep_rows(self, rows: Tensor) -> None:
        """All texts but these have ended; int64 [rows kept]."""
        ...

    def close(self) -> None:
        """All texts have ended: lets go of the cache."""
        ...
