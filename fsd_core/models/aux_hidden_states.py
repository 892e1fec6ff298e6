"""Hidden states of selected layers, which a forward can return beside its logits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor


@dataclass
class AuxHiddenStates:
    """Hidden states of a model with L layers, for a drafter that reads them.

    ``layers``: their indices; i is the input of layer i, and L the input of the LM head, after the final norm.
    """

    layers: tuple[int, ...]
    _states: list[Tensor] = field(default_factory=list)

    @property
    def states(self) -> Tensor:
        """States of the tokens fed last, concatenated in the order of ``layers``: [B,S,len(layers)·H]."""
        return torch.cat(self._states, -1)

    def keep(self, states: Sequence[Tensor]) -> None:
        """Store one tensor [B,S,H] for each of ``layers``, in place of the earlier ones."""
        self._states = list(states)

    def keep_joined(self, parts: Sequence[AuxHiddenStates]) -> None:
        """Store the states of consecutive tokens, which were fed in several parts."""
        self._states = [torch.cat(states, 1) for states in zip(*(part._states for part in parts), strict=True)]
