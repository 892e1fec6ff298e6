"""The interface of a model's forward: one class for each way to run a model (:mod:`fsd_core.models.language_model`)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from inspect import signature

from torch import Tensor, nn

from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.kv_cache import KVCache
from fsd_core.ops.tree_attention import TreeAttention


def cache_name(module: nn.Module) -> str:
    """Return the argument of a transformers module that takes the cache. All are ``cache`` from 5.24 on; before, models
    of recurrent layers alone had another name than the rest."""
    taken = signature(module.forward).parameters
    named = (name for name in ("cache", "cache_params") if name in taken)
    return next(named, "past_key_values")


class Forward(ABC):
    """A model that appends tokens to a cache and returns logits."""

    one_text = False
    """whether it reads one text at a time, since its state is of one"""

    def new_cache(self, layers: int, capacity: int, rows: int) -> KVCache:
        """Return an empty cache for ``capacity`` positions of each of ``rows`` texts.

        Raises ``IncompatibleModels`` for several rows of a model that reads one text at a time.
        """
        return KVCache(layers, capacity, rows)

    @abstractmethod
    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        """Append ``tokens`` (int64 [B,S]) to the cache. Return logits of the last ``logits_to_keep``,
        [B,logits_to_keep,V].

        ``tree_attention``: of the last tokens then in the cache, if they are a tree (B = 1). ``aux_hidden_states``
        receives the hidden states of its layers. Raises ``IncompatibleModels`` for what a model of this kind cannot do.
        """
