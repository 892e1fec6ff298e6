"""The cache of a model with recurrent layers: keys and values, and a state that is checkpointed for rollbacks."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from torch import Tensor
from transformers.cache_utils import LinearAttentionLayer

from fsd_core.models.refed_cache import RefedCache


class RecurrentCache(RefedCache):
    """The cache of one text, with a recurrent state for each layer that keeps one.

    A state is the sum of all tokens fed, so a rejected token cannot be cut off it. Therefore the state is copied at the
    boundary of a round, before drafts are fed. After a rollback the checkpoint is restored, and the model is fed the
    accepted tokens behind it again (:meth:`missing`): at most those of one round. A rollback further than that starts
    from the first token. Keys and values are kept by position, as in any text.

    ``states``: how many states each layer keeps.
    """

    layers: list[LinearAttentionLayer]  # pyrefly: ignore[bad-override]

    def __init__(self, layers: int, capacity: int, states: int = 1) -> None:
        self._num_states = states
        super().__init__(layers, capacity)

    def _clear(self) -> None:
        self.layers = [LinearAttentionLayer(self._num_states) for _ in range(self._layers)]
        self._included = 0
        self._saved, self._saved_length = _copies(self.layers), 0
        self._at_boundary = True

    def checkpoint(self) -> None:
        """Copy the state, if this is the first forward after a rollback: one round's drafts come next."""
        if self._at_boundary:
            self._saved, self._saved_length = _copies(self.layers), self.length
            self._at_boundary = False

    def first_state(self) -> Tensor:
        """Return the state of the first layer that has one: the recurrent state, or else the last inputs of the
        convolution."""
        layer = next(layer for layer in self.layers if any(layer.has_previous_state.values()))
        states = (*layer.recurrent_states.values(), *layer.conv_states.values())
        return next(state for state in states if state is not None).float()

    def rollback(self, lengths: int | Sequence[int]) -> None:
        super().rollback(lengths)
        self._at_boundary = True
        if self.length < self._included:
            if self.length < self._saved_length:
                self._clear()
            else:
                self.layers, self._included = _copies(self._saved), self._saved_length


def _copies(layers: Sequence[LinearAttentionLayer]) -> list[LinearAttentionLayer]:
    """Return layers whose states the next forward does not change in place."""
    return [_copied(layer) for layer in layers]


def _copied(layer: LinearAttentionLayer) -> LinearAttentionLayer:
    other = copy(layer)
    for name, value in vars(layer).items():
        if isinstance(value, dict):  # by the number of the state
            setattr(
                other, name, {key: item.clone() if isinstance(item, Tensor) else item for key, item in value.items()}
            )
    return other
