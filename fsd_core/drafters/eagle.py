"""Drafts with an EAGLE head, which continues from the target's hidden states."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import INFINITE_WITHOUT_Q, TOP_K, DecodingConfig, SamplingConfig
from fsd_core.drafters.base import DrafterFactory
from fsd_core.errors import IncompatibleOptions, InvalidSetting
from fsd_core.models.aux_hidden_states import AuxHiddenStates
from fsd_core.models.cuda_graphs import FixedInputs, StaticForward
from fsd_core.models.eagle import EagleHead
from fsd_core.models.fused_llama import STATIC_ROPE
from fsd_core.models.kv_cache import KVCache, causal_mask
from fsd_core.models.model_pairs import NO_HEAD
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.tree_attention import AcceptedPath, TreeAttention, TreeBuilder
from fsd_core.ops.warping import warp


class MissingHead(InvalidSetting):
    """There is no head to draft with."""

    code = "missing-head"


class EagleProposer:
    """Drafts with the head and a cache of its own, one text at a time. Li et al. 2024, 2025; see
    :mod:`fsd_core.models.eagle`.

    It proposes nothing for a text that the target has not read yet. Its own states are discarded at the end of a round,
    when the target's take their place. ``layers``: the target's number of layers.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        """Return the factory. Raises ``MissingHead``, and ``InvalidSetting`` for a divergence that is infinite with a
        head that cannot draft every token."""
        head, target = models.head, models.target
        if head is None:
            raise MissingHead(NO_HEAD)
        if not head.covers_all and (config.divergence or "").removeprefix(TOP_K) in INFINITE_WITHOUT_Q:
            raise IncompatibleOptions(
                f"The divergence '{config.divergence}' is infinite with this EAGLE head, which gives some tokens of "
                "the vocabulary no probability, so nothing would ever be accepted: choose kl, js or tv."
            )
        fixed = target.static and head.rotary.rope_type in STATIC_ROPE
        static = StaticForward(partial(_at_fixed_positions, head), 1) if fixed else None
        return DrafterFactory(
            lambda capacity, rows: cls(head, target.layers, sampling, capacity, target.vocabulary, static)
        )

    def __init__(
        self,
        head: EagleHead,
        layers: int,
        sampling: SamplingConfig,
        capacity: int,
        vocabulary: int,
        static: StaticForward | None = None,
    ) -> None:
        """``static``: runs the head at fixed addresses, for all texts."""
        self._head, self._sampling, self._vocabulary, self._static = head, sampling, vocabulary, static
        self.aux_hidden_states = AuxHiddenStates(head.aux_layers(layers))
        self._cache = KVCache(1, capacity) if static is None else static.new_cache(capacity)
        self._unfed_states: list[Tensor] = []  # target states not yet fed to the head
        self._states = torch.empty(0)  # the head's own states of this round: the text's last slot, then the draft
        self._tree_builder = TreeBuilder(0)
        self._length: int | None = None  # tokens of the text, in a round that began with a draft
        self._num_states = 0  # tokens of the text whose target states have arrived

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        self._length = len(texts[0])
        if not self._unfed_states:
            return None
        states, self._unfed_states = self._head.begin(torch.cat(self._unfed_states, 1)), []
        start = self._cache.length
        count = states.shape[1]
        self._states = self._feed(states, tokens[:, start + 1 : start + 1 + count])[:, -1:]
        self._tree_builder = TreeBuilder(self._cache.length)
        return self._row(self._states[:, -1])

    def extend(self, token: Tensor) -> DraftDistribution:
        return self._row(self._append(self._feed(self._states[:, -1:], token[:, None])))

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        tree_attention = self._tree_builder.add(parents)
        return self._row(self._append(self._feed(self._states[:, parents + 1], tokens, tree_attention)))

    def _append(self, states: Tensor) -> Tensor:
        """Store the states of the fed tokens, [1,n,H], and return them: [n,H]"""
        self._states = torch.cat([self._states, states], 1)
        return states[0]

    def _feed(self, states: Tensor, tokens: Tensor, tree_attention: TreeAttention | None = None) -> Tensor:
        """Feed the head and return the next states. [1,n,H], int64 [1,n] → [1,n,H]"""
        count, start, device = tokens.shape[1], self._cache.length, tokens.device
        if self._static is not None and self._static.takes(self._cache, count):
            return self._static(tokens, self._cache, tree_attention, states=states).clone()
        self._cache.reserve(count, device)
        if tree_attention is None:
            position_ids = torch.arange(start, start + count, device=device)[None]
            mask = None if count == 1 else causal_mask(position_ids, start + count)
        else:
            position_ids, mask = tree_attention.position_ids(count), tree_attention.mask(count)
        next_states = _next_states(self._head, states, tokens, position_ids, mask, self._cache)
        self._cache.advance(count)
        return next_states

    def _row(self, states: Tensor) -> DraftDistribution:
        """Return the distributions after n states. [n,H] → n rows"""
        logits = self._head.logits(states)[:, : self._vocabulary]
        return DraftDistribution(warp(logits, self._sampling), logits.softmax(-1))

    def commit(self, lengths: Sequence[int], path: AcceptedPath | None = None) -> None:
        (length,) = lengths
        # States of the text's tokens that the target had not read, then of the draft.
        states = self.aux_hidden_states.states
        read = self._num_states + states.shape[1] if self._length is None else self._length
        text, accepted = read - self._num_states, length - read
        self._unfed_states.append(states[:, :text])
        if accepted:
            accepted_nodes = slice(text, text + accepted) if path is None else text + path.nodes[:accepted]
            self._unfed_states.append(states[:, accepted_nodes])
        self._num_states, self._length = length, None
        self._cache.rollback(self._tree_builder.prefix)

    def begin_row(self, row: int, tokens: Tensor) -> None:
        self._cache.adopt(row, 0)
        self._unfed_states, self._num_states, self._tree_builder = [], 0, TreeBuilder(0)

    def keep_rows(self, rows: Tensor) -> None:
        """Do nothing: there is only one row."""

    def close(self) -> None:
        self._cache.release()


def _next_states(
    head: EagleHead, states: Tensor, tokens: Tensor, position_ids: Tensor, mask: Tensor | None, cache: KVCache
) -> Tensor:
    """Return the next states, [1,n,H], and store keys and values where the cache has reserved places. mask: bool
    [1,1,n,L], or ``None`` if all is visible."""

    def attend(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        keys, values = cache.update(key, value, 0)
        return F.scaled_dot_product_attention(query, keys, values, attn_mask=mask, enable_gqa=True)

    return head(states, tokens, position_ids, attend)


def _at_fixed_positions(head: EagleHead, inputs: FixedInputs, cache: KVCache) -> Tensor:
    """Return the next states, [1,n,H], as ``models.cuda_graphs`` requires."""
    assert inputs.states is not None
    return _next_states(head, inputs.states, inputs.tokens, inputs.position_ids, inputs.visible, cache)
