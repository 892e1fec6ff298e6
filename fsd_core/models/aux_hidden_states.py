"""Hidden states of some layers, which a forward can hand over beside its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class AuxHiddenStates:
    """Hidden states of a model with L layers, for one who drafts from them.

    ``layers``: which; i is what layer i reads, and L what the model's head reads, behind the final norm.
    """

    layers: tuple[int, ...]
    _states: list[Tensor] = field(default_factory=list)

    @property
    def states(self) -> Tensor:
        """Of the tokens that were fed last, side by side in the order of ``layers``: [B,S,len(layers)·H]."""
        return torch.cat(self._states, -1)

    def keep(self, states: Sequence[Tensor]) -> None:
        """Takes one of [B,S,H] for each of ``layers``, in place of those before."""
        self._states = list(states)
