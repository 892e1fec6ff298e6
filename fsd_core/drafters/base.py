"""The interface of a drafter: it returns next-token distributions, position by position."""

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
    """Makes one drafter for each batch, from models already checked to suit it."""

    new: Callable[[int, int], Drafter]
    """(capacity, rows) → a drafter for ``rows`` texts of up to ``capacity`` tokens"""
    context: int | None = None
    """positions of the models that it drafts with; ``None`` if no fewer than the target's"""
    side_by_side: bool = False
    """whether it drafts for several texts at once"""


class Drafter(Protocol):
    """Proposes continuations of the texts of a batch. Holds its own cache, and updates it after a round.

    ``begin`` and ``extend`` return ``None`` if the drafter has nothing to propose.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        """Return the factory of a method's drafters. ``sampling``: how they sample.

        Raises ``InvalidSetting`` for a missing model, and for a method that cannot work with it.
        """
        ...

    @property
    def aux_hidden_states(self) -> AuxHiddenStates | None:
        """Target hidden states that it drafts from: filled at each forward, and read at the next ``commit``."""
        ...

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        """Return the distributions after the texts so far. ``texts``: their tokens on the host, B of them; ``tokens``:
        int64 [B,T], which begin with the same tokens on the device."""
        ...

    def extend(self, token: Tensor) -> DraftDistribution | None:
        """Return the distribution after ``token`` (int64 [B]), which was chosen from the last returned one."""
        ...

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        """Return the n distributions after n more nodes of a tree on one text. ``tokens``: int64 [1,n]; ``parents``:
        int64 [n], their parents' indices in feeding order, −1 for the text."""
        ...

    def commit(self, lengths: Sequence[int], path: AcceptedPath | None = None) -> None:
        """Keep only the first ``lengths`` tokens of the texts; the others were rejected. ``path``: if a tree was fed,
        its accepted nodes."""
        ...

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Start a new text in a row. ``tokens``: int64 [1,S], its part to be read at once; S may be 0."""
        ...

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all texts but these, int64 [rows kept]; the others have ended."""
        ...

    def close(self) -> None:
        """Release the cache after the end of all texts."""
        ...
