"""The one loop: draft → score → accept → commit → emit, for any number of texts at once.

Every method runs here, including the autoregressive baseline (a round that drafts nothing), so compared runs differ
only in the method. Each round feeds the target once and reads one small tensor from the device. The texts of a batch
advance by different amounts. Each has its own uniforms, and equals its batch-size-1 result.

A :class:`fsd_core.decoding.composition.Method` supplies the parts that run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

import torch
from torch import Tensor

from fsd_core.decoding.composition import Method
from fsd_core.decoding.proposal import DraftProposal, padded
from fsd_core.decoding.sequence_state import SequenceState
from fsd_core.decoding.trace import RoundRecord
from fsd_core.decoding.verification import RoundResult, write_one
from fsd_core.errors import IncompatibleModels
from fsd_core.models.kv_cache import uncached_tokens
from fsd_core.ops.sampling import UniformStream
from fsd_core.ops.transfer import to_device, to_host
from fsd_core.ops.tree_attention import AcceptedPath


class Batch:
    """Texts being written together, one round at a time.

    ``eos``: ids that end a text. ``rows``: maximum number of texts. ``capacity``: positions of the longest, see
    ``Method.capacity``. As a context manager it closes itself. Raises ``InvalidSetting`` for more rows than the method
    can write.
    """

    def __init__(
        self, method: Method, eos: frozenset[int], capacity: int, rows: int = 1, *, keep_logits: bool = False
    ) -> None:
        """With ``keep_logits``, :meth:`likeliest` tells what the target would have written in the last round."""
        method.check_batch_size(rows)
        self.model = method.model
        self._method, self._speculation, self._eos = method, method.speculation, eos
        self._tokens = torch.zeros(rows, capacity, dtype=torch.int64, device=self.model.device)
        self.cache = self.model.new_cache(capacity, rows)
        self._drafter = None if method.speculation is None else method.speculation.drafter.new(capacity, rows)
        self.texts: list[SequenceState | None] = [None] * rows
        self._keep_logits = keep_logits
        self._judged: tuple[Tensor, AcceptedPath | None] | None = None  # logits of the last round, and its path

    def __enter__(self) -> Batch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Release the caches, which may serve the next texts. Nothing can be written afterwards."""
        self.cache.release()
        if self._drafter is not None:
            self._drafter.close()

    @torch.inference_mode()
    def put(self, row: int, prompt: Sequence[int], seed: int) -> SequenceState:
        """Start a text in a row, replacing the one before. ``seed``: the uniforms' seed.

        Raises ``InvalidSetting`` for an empty prompt, ``PromptTooLong`` for one that fills the context.
        """
        length, requested = len(prompt), self._method.max_new_tokens
        self._method.check_prompt(length)
        limit = min(requested, self._method.context - length)
        limited_by = "length" if limit == requested else "context"
        uniforms = UniformStream(seed, self.model.device)
        text = SequenceState(prompt, limit, limited_by, uniforms, self._method.marks)
        self.texts[row] = text
        self._tokens[row, :length] = to_device(torch.tensor(prompt), self.model.device)
        # In a larger batch, all but the prompt's last token is fed now, so that each round feeds all rows alike. At
        # batch size 1 the prompt is fed in the first round.
        self._begin(row, length - 1 if len(self.texts) > 1 else 0)
        return text

    def _begin(self, row: int, length: int) -> None:
        """Feed the models the first tokens of a row, replacing its earlier contents."""
        tokens = self._tokens[row : row + 1, :length]
        if length:
            self.model.forward(tokens, self.cache.row(row), logits_to_keep=1)
        self.cache.adopt(row, length)
        if self._drafter is not None:
            self._drafter.begin_row(row, tokens if length < self._method.draft_context else tokens[:, :0])

    @torch.inference_mode()
    def keep_rows(self, rows: Sequence[int]) -> None:
        """Drop all texts but these."""
        index = to_device(torch.tensor(rows), self._tokens.device)
        self.texts = [self.texts[row] for row in rows]
        self._tokens = self._tokens[index]
        self.cache.keep_rows(index)
        if self._drafter is not None:
            self._drafter.keep_rows(index)

    @torch.inference_mode()
    def run_round(self) -> list[RoundRecord]:
        """Run one round of all texts. Every row must hold an unfinished text. Writes 1 to draft length + 1 tokens of
        each, and charges each text an equal share of the time."""
        texts = [text for text in self.texts if text is not None]
        started = time.perf_counter()
        proposal = self._propose(texts)
        drafted_at = time.perf_counter()
        records = self._emit(texts, self._verify(texts, proposal), proposal)
        num_texts = len(texts)
        drafting = 0.0 if proposal is None else (drafted_at - started) / num_texts
        seconds = (time.perf_counter() - started) / num_texts
        return [replace(record, seconds=seconds, draft_seconds=drafting) for record in records]

    @torch.inference_mode()
    def likeliest(self) -> list[list[int]]:
        """Return the target's likeliest token at each position of the last round, for each text.

        Empty if it drafted nothing, or if logits are not kept.
        """
        if self._judged is None:
            return [[] for _ in self.texts]
        logits, path = self._judged
        if path is not None:  # a tree's logits are those after the text, then those after each node
            logits = logits[:, torch.cat([path.nodes.new_zeros(1), path.nodes + 1])]
        return [[int(token) for token in row] for row in to_host(logits.argmax(-1))]

    def _propose(self, texts: Sequence[SequenceState]) -> DraftProposal | None:
        """Return the drafts for the texts, or ``None`` if nothing is drafted."""
        if self._drafter is None or self._speculation is None:
            return None
        topology, bonus = self._speculation.topology, int(self._speculation.drafts_bonus)
        _, settings = self._speculation.settings
        context = self._method.draft_context
        # The target writes the last token within the limit, so nothing is drafted if one remains.
        depths = [
            max(
                0,
                min(
                    settings.next_length(text.acceptance),
                    text.remaining_tokens - 1,
                    context - len(text.history) - bonus,
                ),
            )
            for text in texts
        ]
        depth = max(depths)
        # The draft reads all texts or none, so one that its context does not hold keeps it from the others.
        if depth < 1 or any(len(text.history) >= context for text in texts):
            return None
        levels = [drafted + bonus if drafted else 0 for drafted in depths]
        tree = topology.grow(
            self._drafter.begin(self._tokens, [text.history for text in texts]),
            self._drafter,
            depth + bonus,
            padded(
                [
                    text.uniforms.take(drafted * topology.num_uniforms)
                    for text, drafted in zip(texts, levels, strict=True)
                ]
            ),
            self._speculation.greedy_draft,
        )
        if tree is None:
            return None
        lengths = tree.lengths or [tree.depth] * len(texts)
        drafted = [min(pair) for pair in zip(depths, lengths, strict=True)]
        judged = [min(pair) for pair in zip(levels, lengths, strict=True)]
        if tree.lengths is not None:  # a text with little room may have gone on alone
            tree = tree.cut(max(judged))
        strict = [self._method.num_strict(text.written_tokens, text.is_thinking) for text in texts]
        return DraftProposal(tree, min(tree.depth, depth), drafted, judged, strict)

    def _verify(self, texts: Sequence[SequenceState], proposal: DraftProposal | None) -> RoundResult:
        """Feed the target its uncached tokens and the drafts, and decide what is written."""
        uncached = uncached_tokens(self._tokens, self.cache, [len(text.history) for text in texts])
        uniforms = [text.uniforms for text in texts]
        aux = None if self._drafter is None else self._drafter.aux_hidden_states
        self._judged = None
        if proposal is None or self._speculation is None:
            logits = self.model.forward(uncached, self.cache, logits_to_keep=1, aux_hidden_states=aux)
            return write_one(logits, self._method.sampling, uniforms)
        verification = self._speculation.verification
        feed = verification.feed(uncached, proposal, self.cache.length)
        logits = self.model.forward(feed.tokens, self.cache, feed.logits_to_keep, feed.tree_attention, aux)
        result = verification.verify(proposal, logits, uniforms)
        if self._keep_logits:
            self._judged = logits, result.path
        return result

    def _emit(
        self, texts: Sequence[SequenceState], result: RoundResult, proposal: DraftProposal | None
    ) -> list[RoundRecord]:
        """Read the round from the device, once. Update tokens, texts and caches."""
        parts = [result.count[:, None], result.emitted, result.emitted_probability, result.details.flatten(1)]
        parts += [] if result.reach is None else [result.reach[:, None]]
        rows = to_host(torch.cat([part.double() for part in (result.drafted, *parts)], 1))
        lengths, fed = [len(text.history) for text in texts], result.drafted.shape[1]
        drafted = judged = [0] * len(texts)
        if result.reach is not None:
            drafted = judged = [int(values.pop()) for values in rows]
        elif proposal is not None:
            drafted, judged = proposal.drafted, proposal.judged
        self._write(lengths, result.emitted)
        records = [
            text.take(values[fed:], [int(token) for token in values[:num_drafted]], positions, fed + 1, self._eos)
            for text, values, num_drafted, positions in zip(texts, rows, drafted, judged, strict=True)
        ]
        # All but the last token of each text has been fed. A text that ended has less left of what was accepted.
        valid = [len(text.history) - 1 for text in texts]
        if result.path is not None:  # the accepted nodes are scattered over the tree
            self.cache.compact(lengths[0], result.path.nodes)
        self.cache.rollback(valid)
        if self._drafter is not None:
            self._drafter.commit(valid, result.path)
        for record in records:
            _check_numbers(record, self._method.writer)
        return records

    def _write(self, lengths: Sequence[int], emitted: Tensor) -> None:
        """Write ``emitted``, int64 [B,R], after texts of these lengths."""
        width = emitted.shape[1]
        if min(lengths) == max(lengths):
            self._tokens[:, lengths[0] : lengths[0] + width] = emitted
        else:
            starts = to_device(torch.tensor(lengths), self._tokens.device)
            positions = starts[:, None] + torch.arange(width, device=starts.device)
            self._tokens.scatter_(1, positions, emitted)


def _check_numbers(record: RoundRecord, writer: str) -> None:
    """Raise ``IncompatibleModels`` if a model computed no numbers. What the round has read tells it."""
    if any(map(math.isnan, (*record.emitted_probability, *record.target_probability))):
        raise IncompatibleModels.not_numbers(writer)
    if any(map(math.isnan, record.draft_probability)):
        raise IncompatibleModels.not_numbers("draft")
