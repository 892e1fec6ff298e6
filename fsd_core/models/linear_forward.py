"""The forward of a model with grouped linear attention over a cache whose state does not grow."""

from __future__ import annotations

import torch
from torch import Tensor

from fsd_core.errors import IncompatibleModels
from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.forward import Forward, cache_name
from fsd_core.models.kv_cache import KVCache
from fsd_core.models.linear_cache import LinearCache
from fsd_core.models.linear_llama import LinearLlama
from fsd_core.ops.grouped_attention import Sight
from fsd_core.ops.tree_attention import TreeAttention

_PIECE = 4
"""groups of a prompt that are fed at once: the time of a prompt grows with its length, and not with the square"""


class LinearForward(Forward):
    """A :class:`LinearLlama`, called for one text, which may branch."""

    one_text = True

    def __init__(self, module: LinearLlama) -> None:
        self._module, self._group, self._taps = module, module.config.attention_group, module.config.attention_taps
        self._cache_name = cache_name(module)

    def new_cache(self, layers: int, capacity: int, rows: int) -> LinearCache:
        if rows > 1:
            raise IncompatibleModels(
                "A model with linear attention keeps the state of one text: feed it one at a time."
            )
        return LinearCache(layers, capacity, self._group, self._taps)

    def __call__(
        self,
        tokens: Tensor,
        cache: KVCache,
        logits_to_keep: int,
        tree_attention: TreeAttention | None = None,
        aux_hidden_states: AuxHiddenStates | None = None,
    ) -> Tensor:
        assert isinstance(cache, LinearCache)
        if (missing := cache.missing()) is not None:
            self._feed(missing, cache, 1)
        parts: list[AuxHiddenStates] = []
        piece, known = _PIECE * self._group, tokens.shape[1] - logits_to_keep
        while tree_attention is None and known > piece:  # part of a prompt, which no rollback reaches
            parts += self._feed(tokens[:, :piece], cache, 1, aux_hidden_states)[1]
            cache.rollback(cache.length)
            tokens, known = tokens[:, piece:], known - piece
        logits, last = self._feed(tokens, cache, logits_to_keep, aux_hidden_states, tree_attention)
        if aux_hidden_states is not None:
            aux_hidden_states.keep_joined([*parts, *last])
        return logits

    def _feed(
        self,
        tokens: Tensor,
        cache: LinearCache,
        logits_to_keep: int,
        aux: AuxHiddenStates | None = None,
        tree: TreeAttention | None = None,
    ) -> tuple[Tensor, list[AuxHiddenStates]]:
        """Append ``tokens``. Return the last logits, and the hidden states of the layers that ``aux`` names."""
        start, count = cache.length, tokens.shape[1]
        cache.fold(None if tree is None else tree.prefix)
        cache.record(tokens)
        keys = torch.arange(cache.base, start + count, device=tokens.device)
        if tree is None:
            queries = keys[-count:]
            visible = keys <= queries[:, None]
        else:
            queries = tree.position_ids(count)[0]
            keys = torch.cat([keys[: tree.prefix - cache.base], tree.prefix + tree.depths])
            visible = tree.mask(count)[0, 0, :, cache.base :]
        output = self._module(
            input_ids=tokens,
            position_ids=queries[None],
            **{self._cache_name: cache},
            use_cache=True,
            logits_to_keep=logits_to_keep,
            output_hidden_states=aux is not None,
            sight=Sight.of(visible, queries, keys, self._group),
        )
        parts = []
        if aux is not None:
            part = AuxHiddenStates(aux.layers)
            part.keep([output.hidden_states[index] for index in aux.layers])
            parts.append(part)
        cache.advance(count)
        return output.logits, parts
