"""What a drafter is: something that answers with the next-token distribution, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from fsd_core.ops.rows import DraftRow


class Drafter(Protocol):
    """Proposes continuations of the texts of a batch. Holds its own cache, and catches up on its own after a round.

    ``begin`` and ``extend`` answer ``None`` where the drafter has nothing to propose.
    """

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftRow | None:
        """The distributions behind the texts so far. ``texts``: their tokens on the host, B of them; ``tokens``: int64
        [B,T], which begin with the same on the device."""
        ...

    def extend(self, token: Tensor) -> DraftRow | None:
        """The distribution behind ``token`` (int64 [B]), which was chosen from the row answered last."""
        ...

    def extend_level(self, tokens: Tensor) -> DraftRow:
        """The distributions behind the next token of each of n chains of one text (int64 [1,n]), which was chosen from
        the rows answered last; n rows."""
        ...

    def commit(self, lengths: Sequence[int], path: Tensor | None = None) -> None:
        """Of all that was fed, only the first so many tokens of each text stand; the rest was rejected.

        ``path``: int64 [D], where chains were fed: which node of each level stands, counted through all levels.
        """
        ...

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """A new text begins in a row. ``tokens``: int64 [1,S], what is to be read of it at once; S may be 0."""
        ...

    def keep_rows(self, rows: Tensor) -> None:
        """All texts but these have ended; int64 [rows kept]."""
        ...
