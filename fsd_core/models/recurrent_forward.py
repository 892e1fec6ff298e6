"""The forward of a decoder with recurrent layers, whose state is rolled back by checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fsd_core.errors import IncompatibleModels
from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.forward import Forward
from fsd_core.models.kv_cache import KVCache
from fsd_core.models.module_forward import ModuleForward, recurrent_layers
from fsd_core.models.recurrent_cache import RecurrentCache
from fsd_core.ops.tree_attention import TreeAttention


class RecurrentForward(Forward):
    """A module with recurrent layers, called for one text that does not branch.

    A rollback restores the checkpoint before the round's drafts. The next forward feeds the accepted tokens after it
    again, then copies the state, then feeds the new tokens.

    ``at_once``: whether the module continues a state by several tokens in one call. Mamba's module does not: it starts
    several tokens from an empty state. A check sets this (:func:`fsd_core.models.conformity.check_cache`). Without a
    check, tokens after the first call are fed one by one, as every module can.
    """

    one_text = True

    def __init__(self, module: PreTrainedModel) -> None:
        config = module.config.get_text_config(decoder=True)
        self._run, self._kind = ModuleForward(module), config.model_type
        self._recurrent = recurrent_layers(module)
        self._num_states: int = getattr(config, "number_of_conv_states", 1)
        self.at_once = False

    def new_cache(self, layers: int, capacity: int, rows: int) -> RecurrentCache:
        if rows > 1:
            raise IncompatibleModels(
                f"A {self._kind} model keeps a recurrent state, which is of one text: feed it one text at a time."
            )
        return RecurrentCache(layers, capacity, self._num_states)

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Raises for a tree, and for a module whose state is not in the cache."""
        assert isinstance(cache, RecurrentCache)
        if tree_attention is not None:
            raise IncompatibleModels(
                f"A {self._kind} model keeps a recurrent state, which follows one chain: choose the topology chain."
            )
        missing = cache.missing()
        if missing is not None:
            self._feed(missing, cache, 1)
        parts: list[AuxHiddenStates] = []
        known = tokens.shape[1] - logits_to_keep
        if known > logits_to_keep:  # a prompt is fed by itself, so that no rollback reaches into it
            parts += self._feed(tokens[:, :known], cache, 1, aux_hidden_states)[1]
            cache.rollback(cache.length)
            tokens = tokens[:, known:]
        cache.checkpoint()
        logits, last_parts = self._feed(tokens, cache, logits_to_keep, aux_hidden_states)
        if aux_hidden_states is not None:
            aux_hidden_states.keep_joined([*parts, *last_parts])
        return logits

    def _feed(
        self, tokens: Tensor, cache: RecurrentCache, logits_to_keep: int, aux: AuxHiddenStates | None = None
    ) -> tuple[Tensor, list[AuxHiddenStates]]:
        """Append ``tokens``. Return logits of the last ``logits_to_keep``, and the hidden states of the layers that
        ``aux`` names, of one piece of the tokens after the other."""
        is_first = not cache.length
        logits, parts = [], []
        for piece in [tokens] if is_first or self.at_once else tokens.split(1, 1):
            if aux is not None:
                parts.append(AuxHiddenStates(aux.layers))
            cache.record(piece)
            logits.append(
                self._run(piece, cache, min(logits_to_keep, piece.shape[1]), None, parts[-1] if parts else None)
            )
        if is_first and not all(map(cache.has_previous_state, self._recurrent)):
            raise IncompatibleModels(
                f"A {self._kind} model of this kind is not supported: it keeps its recurrent state in the module, not "
                "in the cache, so rejected tokens cannot be taken back. Choose another pair."
            )
        return torch.cat(logits, 1)[:, -logits_to_keep:], parts
