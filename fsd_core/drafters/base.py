"""What a drafter is: something that answers with the next-token distribution, position by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from torch import Tensor

from fsd_core.ops.rows import DraftRow


class Drafter(Protocol):
    """Proposes continuations of one text. Holds its own cache, and catches up on its own after a round.

    ``begin`` and ``extend`` answer ``None`` where the drafter has nothing to propose.
    """

    def begin(self, tokens: Tensor, history: Sequence[int]) -> DraftRow | None:
        """The distribution behind the text so far. ``tokens``: int64 [B,T]; ``history``: the same on the host (B=1)."""
        ...

    def extend(self, token: Tensor) -> DraftRow | None:
        """The distribution behind ``token`` (int64 [B]), which was chosen from the row answered last."""
        ...

    def commit(self, length: int) -> None:
        """Of all that was fed, only the first ``length`` tokens stand; the rest was rejected."""
        ...
