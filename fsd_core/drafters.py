"""The code of the drafters, which propose tokens, named by their settings (:mod:`fsd_core.config.drafting`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.config import INFINITE_WITHOUT_Q, TOP_K, CopyingDrafter, DecodingConfig, SamplingConfig
from fsd_core.config.drafting import END_OF_TEXT, SuffixDrafter, TrigramDrafter
from fsd_core.errors import IncompatibleOptions, InvalidSetting, NotGiven
from fsd_core.models.caches import KVCache, causal_mask, uncached_tokens
from fsd_core.models.draft_weights import EagleHead, TrigramCounts
from fsd_core.models.forward import AuxHiddenStates, FixedInputs, StaticForward
from fsd_core.models.forwards import STATIC_ROPE
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet
from fsd_core.models.model_pairs import NO_HEAD
from fsd_core.ops.distributions import DraftDistribution, one_hot, warp
from fsd_core.ops.kernels import AcceptedPath, TreeAttention, TreeBuilder


@dataclass(frozen=True, slots=True)
class DrafterFactory:
    """Makes one drafter for each batch, from models already checked to suit it."""

    new: Callable[[int, int], Drafter]
    """(capacity, rows) → a drafter for ``rows`` texts of up to ``capacity`` tokens"""
    context: int | None = None
    """positions of the models that it drafts with; ``None`` if no fewer than the target's"""
    side_by_side: bool = False
    """whether it drafts for several texts at once"""


class Drafter(Protocol):
    """Proposes continuations of the texts of a batch. Holds its own cache, and updates it after a round.

    ``begin`` and ``extend`` return ``None`` if the drafter has nothing to propose.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        """Return the factory of a method's drafters. ``sampling``: how they sample.

        Raises ``InvalidSetting`` for a missing model, and for a method that cannot work with it.
        """
        ...

    @property
    def aux_hidden_states(self) -> AuxHiddenStates | None:
        """Target hidden states that it drafts from: filled at each forward, and read at the next ``commit``."""
        ...

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        """Return the distributions after the texts so far. ``texts``: their tokens on the host, B of them; ``tokens``:
        int64 [B,T], which begin with the same tokens on the device."""
        ...

    def extend(self, token: Tensor) -> DraftDistribution | None:
        """Return the distribution after ``token`` (int64 [B]), which was chosen from the last returned one."""
        ...

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        """Return the n distributions after n more nodes of a tree on one text. ``tokens``: int64 [1,n]; ``parents``:
        int64 [n], their parents' indices in feeding order, −1 for the text."""
        ...

    def commit(self, lengths: Sequence[int], path: AcceptedPath | None = None) -> None:
        """Keep only the first ``lengths`` tokens of the texts; the others were rejected. ``path``: if a tree was fed,
        its accepted nodes."""
        ...

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Start a new text in a row. ``tokens``: int64 [1,S], its part to be read at once; S may be 0."""
        ...

    def keep_rows(self, rows: Tensor) -> None:
        """Drop all texts but these, int64 [rows kept]; the others have ended."""
        ...

    def close(self) -> None:
        """Release the cache after the end of all texts."""
        ...


__all__ = ["Drafter", "DrafterFactory"]


class Copying:
    """Proposes the tokens that its settings copy. q = 1 on each, so lossless decoding accepts it with probability p(x).

    One text at a time (B = 1).
    """

    aux_hidden_states = None

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        settings, target = config.drafter, models.target
        assert isinstance(settings, CopyingDrafter)
        return DrafterFactory(lambda capacity, rows: cls(settings, target.vocabulary, target.device))

    def __init__(self, settings: CopyingDrafter, vocabulary: int, device: torch.device) -> None:
        self._settings, self._vocabulary, self._device = settings, vocabulary, device
        self._text: Sequence[int] = ()  # grows while it is written, so that at its end it is all there
        self._copied: Sequence[int] = ()
        self._index = 0

    def _row(self) -> DraftDistribution | None:
        if self._index >= len(self._copied):
            return None
        token = torch.full((1,), self._copied[self._index], device=self._device)
        self._index += 1
        point = one_hot(token, self._vocabulary)
        return DraftDistribution(point, point)

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        self._text = history
        self._copied, self._index = self.proposed(history), 0
        return self._row()

    def proposed(self, history: Sequence[int]) -> Sequence[int]:
        """Return the proposed continuation of a text."""
        return self._settings.copied(history)

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        """Return what may follow the text and the tokens of ``path``, with its probability, the likeliest first."""
        return self._settings.successors([*self._text, *path])

    def extend(self, token: Tensor) -> DraftDistribution | None:
        return self._row()

    def extend_level(self, tokens: Tensor, parents: Tensor) -> DraftDistribution:
        raise NotImplementedError("there is one continuation to copy; configurations refuse several")

    def commit(self, lengths: Sequence[int], path: AcceptedPath | None = None) -> None:
        """Do nothing: no state is kept between rounds."""

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Do nothing: no prompt has to be read."""

    def keep_rows(self, rows: Tensor) -> None:
        """Do nothing: there is only one row."""

    def close(self) -> None:
        """Do nothing: there is no cache."""


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


class MissingHead(InvalidSetting):
    """There is no head to draft with."""

    code = "missing-head"


class EagleProposer:
    """Drafts with the head and a cache of its own, one text at a time. Li et al. 2024, 2025; see
    :mod:`fsd_core.models.draft_weights`.

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


_MOST_TOKENS = 4096
"""tokens of earlier answers that are looked at, the latest; reading them takes some milliseconds a round"""


class SuffixProposer(Copying):
    """Copies from the text, and with the memory ``run`` from the answers before it (Oliaro et al. 2024).

    The drafters of one factory share the answers, so they last as long as the run that decodes with it.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        settings, target = config.drafter, models.target
        assert isinstance(settings, SuffixDrafter)
        answers: list[int] = []
        return DrafterFactory(lambda capacity, rows: cls(settings, target.vocabulary, target.device, answers))

    def __init__(self, settings: SuffixDrafter, vocabulary: int, device: torch.device, answers: list[int]) -> None:
        super().__init__(settings, vocabulary, device)
        self._suffix, self._answers = settings, answers
        self._matched = settings.matched(())
        self._prompt = 0

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        if not self._text:
            self._text, self._prompt = history, len(history)
        return super().begin(tokens, texts)

    def proposed(self, history: Sequence[int]) -> Sequence[int]:
        self._matched = self._suffix.matched(history, self._answers)
        return self._matched.draft

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        return self._suffix.successors_in(self._matched, path)

    def begin_row(self, row: int, tokens: Tensor) -> None:
        self._keep_answer()

    def close(self) -> None:
        """Keep the answer: there is no cache to release."""
        self._keep_answer()

    def _keep_answer(self) -> None:
        if self._suffix.learns_from_run and self._text:
            self._answers += [*self._text[self._prompt :], END_OF_TEXT]
            del self._answers[:-_MOST_TOKENS]
        self._text = ()


Pair = tuple[int, int]
_MOST_PAIRS = 100_000
"""learned pairs that are kept, those learned last"""


class TrigramTable:
    """Which tokens may follow two others, and with which weights; see :class:`TrigramDrafter`."""

    def __init__(self, settings: TrigramDrafter, counts: TrigramCounts | None = None) -> None:
        """``counts``: of training texts, which it begins with."""
        self._settings, self._counts = settings, counts
        self._learned: dict[Pair, dict[int, float]] = {}  # the pair learned last at the end

    def learn(self, tokens: Sequence[int]) -> None:
        """Add the tri-grams of ``tokens``, each as often as it occurs."""
        step, cap = self._settings.step, self._settings.cap
        if not step:
            return
        for first, second, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
            following = self._learned.pop((first, second), {})
            following[token] = min(cap, following.get(token, 0.0) + step)
            self._learned[first, second] = following
        while len(self._learned) > _MOST_PAIRS:
            del self._learned[next(iter(self._learned))]

    def weights(self, pair: Pair) -> dict[int, float]:
        """Return the weights of the tokens that may follow a pair."""
        weights = {} if self._counts is None else self._counts.following(pair)
        for token, weight in self._learned.get(pair, {}).items():
            weights[token] = min(self._settings.cap, weights.get(token, 0.0) + weight)
        return weights

    def successors(self, pair: Pair) -> list[tuple[int, float]]:
        """Return the heaviest successors of a pair with their probabilities, the likeliest first."""
        heaviest = sorted(self.weights(pair).items(), key=lambda item: (-item[1], item[0]))[
            : self._settings.most_successors
        ]
        total = sum(weight for _, weight in heaviest)
        return [(token, weight / total) for token, weight in heaviest]

    def forget(self) -> None:
        """Drop what was learned."""
        self._learned.clear()


class TrigramProposer(Copying):
    """Proposes the likeliest successor of the last two tokens, then of the next two (Liu et al. 2025).

    With the memory ``run`` the drafters of one factory share the table, so it lasts as long as the run that decodes
    with it.
    """

    @classmethod
    def for_models(cls, models: ModelSet, config: DecodingConfig, sampling: SamplingConfig) -> DrafterFactory:
        settings, topology, target = config.drafter, config.topology, models.target
        assert isinstance(settings, TrigramDrafter)
        assert topology is not None
        most = topology.length + 1  # a rule may judge the token behind the draft like the others
        counts = models.trigrams if settings.table == "pair" else None
        of_run = TrigramTable(settings, counts) if settings.learns_from_run else None

        def new(capacity: int, rows: int) -> TrigramProposer:
            return cls(settings, target.vocabulary, target.device, of_run or TrigramTable(settings, counts), most)

        return DrafterFactory(new)

    def __init__(
        self, settings: TrigramDrafter, vocabulary: int, device: torch.device, table: TrigramTable, most: int
    ) -> None:
        """``most``: most tokens of a chain."""
        super().__init__(settings, vocabulary, device)
        self._trigrams, self._table, self._most = settings, table, most
        self._has_read_prompt = False

    def begin(self, tokens: Tensor, texts: Sequence[Sequence[int]]) -> DraftDistribution | None:
        (history,) = texts
        self._table.learn(history[-self._trigrams.window :] if self._has_read_prompt else history)
        self._has_read_prompt = True
        return super().begin(tokens, texts)

    def proposed(self, history: Sequence[int]) -> Sequence[int]:
        tokens: list[int] = []
        while len(tokens) < self._most and (following := self.successors(tokens)):
            tokens.append(following[0][0])
        return tokens

    def successors(self, path: Sequence[int]) -> Sequence[tuple[int, float]]:
        pair = [*self._text[-2:], *path[-2:]][-2:]
        return self._table.successors((pair[0], pair[1])) if len(pair) == 2 else ()

    def begin_row(self, row: int, tokens: Tensor) -> None:
        """Forget the text before: a new one begins."""
        self._has_read_prompt = False
        if not self._trigrams.learns_from_run:
            self._table.forget()
