"""Drafts with a smaller language model of the same tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from torch import Tensor

from fsd_core.config import INFINITE_WITHOUT_Q, TOP_K, DecodingConfig, SamplingConfig
from fsd_core.drafters.base import DrafterFactory
from fsd_core.errors import IncompatibleOptions, NotGiven
from fsd_core.models.kv_cache import uncached_tokens
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.model_set import ModelSet
from fsd_core.ops.scored_draft import DraftDistribution
from fsd_core.ops.tree_attention import AcceptedPath, TreeBuilder
from fsd_core.ops.warping import warp


class DraftModelProposer:
    """The pair's draft model, sampled with the target's settings (Leviathan et al. 2023, Chen et al. 2023)."""

    aux_hidden_states = None

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        """Return the factory. Raises ``InvalidSetting`` without a draft model, for branches of one with recurrent
        layers, and for a divergence that is infinite with one that lacks some of the target's tokens."""
        if models.draft is None:
            raise NotGiven(
                "The drafter 'draft-model' needs a draft model: give one, or choose prompt-lookup, suffix or trigram."
            )
        if not models.draft.covers_all and config.divergence in INFINITE_WITHOUT_Q:
            raise IncompatibleOptions(
                f"The divergence '{config.divergence}' is infinite with this draft, which lacks some of the target's "
                f"{models.target.vocabulary} tokens, so nothing would ever be accepted: choose kl, js, tv or "
                f"{TOP_K}{config.divergence}."
            )
        if config.topology is not None:
            models.draft.check_shape(config.topology.judged_as, f"the topology '{config.topology.kind}'")
        side_by_side = not models.draft.one_text
        return DrafterFactory(partial(cls, models.draft, sampling), models.draft.context, side_by_side)

    def __init__(self, model: LanguageModel, sampling: SamplingConfig, capacity: int, rows: int = 1) -> None:
        self._model, self._sampling = model, sampling
        self._cache = model.new_cache(capacity, rows)
        self._tree_builder = TreeBuilder(0)  # of the current draft

    def _row(self, tokens: Tensor) -> DraftDistribution:
        logits = self._model.forward(tokens, self._cache, logits_to_keep=1)[:, 0]
        return DraftDistribution(warp(logits, self._sampling), logits.softmax(-1))

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution:
        # Feed all tokens not in the cache yet: the prompt at first, later the last token, and the one before it if the
        # whole draft was accepted.
        self._tree_builder = TreeBuilder(len(texts[0]))
        return self._row(uncached_tokens(tokens, self._cache, [len(text) for text in texts]))

    def extend(self, token: Tensor) -> DraftDistribution:
        return self._row(token[:, None])

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        tree_attention = self._tree_builder.add(parents)
        logits = self._model.forward(
            tokens, self._cache, logits_to_keep=tokens.shape[1], tree_attention=tree_attention
        )[0]
        return DraftDistribution(warp(logits, self._sampling), logits.softmax(-1))

    def commit(self, lengths: Sequence[int], path: AcceptedPath | None = None) -> None:
        if path is not None:
            start = self._tree_builder.prefix
            fed = max(lengths[0] - start - 1, 0)  # the last accepted node may not have been fed
            if fed:
                self._cache.compact(start, path.fed[:fed])
            self._cache.rollback(start + fed)
        self._cache.rollback(lengths)

    def begin_row(self, row: int, tokens: Tensor) -> None:
        if tokens.shape[1]:
            self._model.forward(tokens, self._cache.row(row), logits_to_keep=1)
        self._cache.adopt(row, tokens.shape[1])

    def keep_rows(self, rows: Tensor) -> None:
        self._cache.keep_rows(rows)

    def close(self) -> None:
        self._cache.release()
