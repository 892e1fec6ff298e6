"""The one loop: draft → score → accept → commit → emit, for any number of texts side by side.

Every method runs here, the autoregressive baseline too (a round that drafts nothing), so that what is compared differs
in the method alone. The target is fed once a round, and one small tensor is read from the device once a round. The
texts of a batch advance by different amounts; each has its own uniforms, and is written as it would be alone.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from fsd_core.acceptance import AcceptanceRule, make_rule
from fsd_core.acceptance.couplings import choose
from fsd_core.config import DecodingConfig, SamplingConfig, Verifier
from fsd_core.decoding.branching import Coupled, Gated, Judge, walk
from fsd_core.decoding.outcome import Outcome
from fsd_core.decoding.room import check_prompt, context_of
from fsd_core.decoding.text import Text
from fsd_core.decoding.trace import StepRecord
from fsd_core.drafters import Drafter, make_drafter
from fsd_core.errors import InvalidSetting
from fsd_core.models.eagle import EagleHead
from fsd_core.models.kv_cache import unseen
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.taps import Taps
from fsd_core.ops.branches import Branches, Way, behind
from fsd_core.ops.rows import Rows
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.transfer import read, send
from fsd_core.ops.warping import allowed, warp
from fsd_core.topologies import DraftTopology, DraftTree, Shape, make_topology


@dataclass(frozen=True, slots=True)
class _Proposal:
    """What a round drafted. ``fed``: how many drafted tokens a text can keep at most, the same for all rows; the target
    is fed the whole of a tree that branches.

    A text with little room drafts fewer than the batch: ``own`` says how many of its tokens are fed and ``judged`` how
    many of its positions are judged; what lies behind them is padding.
    """

    tree: DraftTree | None
    fed: int
    own: list[int]
    judged: list[int]


class Batch:
    """Texts being written side by side, a round at a time.

    ``draft``, ``head``: ``None`` where nothing needs it. ``eos``: ids that end a text. ``rows``: how many texts at
    most. ``capacity``: positions of the longest, see ``decoding.room``. Raises ``InvalidSetting`` for a missing
    draft or head, for a divergence that is infinite with it, or for several rows where only one can be written.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel | None,
        config: DecodingConfig,
        eos: frozenset[int],
        capacity: int,
        rows: int = 1,
        head: EagleHead | None = None,
    ) -> None:
        kind = config.acceptance.kind
        if kind == "draft-only" and draft is None:
            raise InvalidSetting("'draft-only' needs a draft model: give one, or choose autoregressive.")
        self.model = draft if kind == "draft-only" and draft is not None else target
        self._config, self._sampling, self._eos = config, config.sampling, eos
        self._context = context_of(target, draft, config)
        self._tokens = torch.zeros(rows, capacity, dtype=torch.int64, device=self.model.device)
        self.cache = self.model.new_cache(capacity, rows)
        self.texts: list[Text | None] = [None] * rows
        self._rule: AcceptanceRule | None = None
        self._judge_of_trees: Judge | None = None
        self._way: Way | None = None  # through the last tree, if it branched
        self._drafter: Drafter | None = None
        self._topology: DraftTopology | None = None
        if config.drafter is not None and config.topology is not None:
            self._greedy_draft = config.sampling.greedy
            if rows > 1 and config.topology.kind != "chain":
                raise InvalidSetting(f"The shape '{config.topology.kind}' is for one text at a time: choose --batch 1.")
            self._topology = make_topology(config.topology, getattr(config.acceptance, "sampling", ""))
            if isinstance(config.acceptance, Verifier):
                # A greedy target leaves nothing to couple: it writes its token, drafted or not.
                self._judge_of_trees = Coupled(
                    choose("nss" if config.sampling.greedy else kind), self._topology.uniforms
                )
            else:
                self._rule = make_rule(config.acceptance)
                self._greedy_draft |= self._rule.greedy_draft
                self._judge_of_trees = Gated(self._rule, self._sampling)
            sampling = SamplingConfig(temperature=0) if self._greedy_draft else config.sampling
            self._drafter = make_drafter(config, target, draft, head, sampling, capacity, rows)

    @torch.inference_mode()
    def put(self, row: int, prompt: Sequence[int], seed: int) -> Text:
        """Begins a text in a row, in place of what was there. ``seed``: the uniforms' seed.

        Raises ``InvalidSetting`` for an empty prompt, ``PromptTooLong`` for one that fills the context.
        """
        length, context = len(prompt), self._context
        check_prompt(length, context)
        limit = min(self._config.max_new_tokens, context - length)
        limited_by = "length" if limit == self._config.max_new_tokens else "context"
        text = Text(prompt, limit, limited_by, UniformStream(seed, self.model.device))
        self.texts[row] = text
        self._tokens[row, :length] = send(torch.tensor(prompt), self.model.device)
        # Beside others, all but its last token is fed now, so that each round feeds all rows alike; alone, a prompt is
        # fed with the first round.
        self._begin(row, length - 1 if len(self.texts) > 1 else 0)
        return text

    def _begin(self, row: int, length: int) -> None:
        """Feeds the models the first tokens of a row, in place of what they knew of it."""
        tokens = self._tokens[row : row + 1, :length]
        if length:
            self.model.forward(tokens, self.cache.row(row), keep=1)
        self.cache.adopt(row, length)
        if self._drafter is not None:
            self._drafter.begin_row(row, tokens)

    def keep_rows(self, rows: Sequence[int]) -> None:
        """Drops all texts but these."""
        index = send(torch.tensor(rows), self._tokens.device)
        self.texts = [self.texts[row] for row in rows]
        self._tokens = self._tokens[index]
        self.cache.keep_rows(index)
        if self._drafter is not None:
            self._drafter.keep_rows(index)

    @torch.inference_mode()
    def step(self) -> list[StepRecord]:
        """One round of all texts, each of which must be there and unfinished; writes 1 to draft length + 1 tokens of
        each. Of its time, each text is charged an equal share."""
        texts = [text for text in self.texts if text is not None]
        begun = time.perf_counter()
        proposal = self._propose(texts)
        drafted_at = time.perf_counter()
        outcome = self._judge(texts, proposal)
        records = self._emit(texts, outcome, proposal)
        share = len(texts)
        drafting = (drafted_at - begun) / share if proposal.tree else 0.0
        seconds = (time.perf_counter() - begun) / share
        return [replace(record, seconds=seconds, draft_seconds=drafting) for record in records]

    def _propose(self, texts: Sequence[Text]) -> _Proposal:
        nothing = [0] * len(texts)
        if self._drafter is None or self._topology is None:
            return _Proposal(None, 0, nothing, nothing)
        judges_bonus = self._rule is not None and self._rule.judges_bonus
        bonus, taken = int(judges_bonus and self._topology.drafts_bonus), self._topology.uniforms
        # The last token of the limit is the target's: with room for one, nothing is drafted.
        depths = [min(self._topology.length, text.room - 1) for text in texts]
        depth = max(depths)
        if depth < 1:
            return _Proposal(None, 0, nothing, nothing)
        levels = [own + bonus if own else 0 for own in depths]
        tree = self._topology.grow(
            self._drafter.begin(self._tokens, [text.history for text in texts]),
            self._drafter,
            depth + bonus,
            _side_by_side([text.uniforms.take(own * taken) for text, own in zip(texts, levels, strict=True)]),
            self._greedy_draft,
        )
        if tree is None:
            return _Proposal(None, 0, nothing, nothing)
        own = [min(own, tree.depth) for own in depths]
        return _Proposal(tree, min(tree.depth, depth), own, [min(own, tree.depth) for own in levels])

    def _judge(self, texts: Sequence[Text], proposal: _Proposal) -> Outcome:
        tree, fed = proposal.tree, proposal.fed
        feed = unseen(self._tokens, self.cache, [len(text.history) for text in texts])
        if tree is not None and tree.shape is not None and self._judge_of_trees is not None:
            return self._judge_tree(texts[0], feed, tree, tree.shape, self._judge_of_trees)
        feed = feed if tree is None else torch.cat([feed, tree.tokens[:, :fed]], 1)
        logits = self.model.forward(feed, self.cache, keep=fed + 1, taps=self._taps)  # [B,R,V]
        target, raw = warp(logits, self._sampling), logits.softmax(-1)
        uniforms = [text.uniforms.take(2 * own + 1) for text, own in zip(texts, proposal.judged, strict=True)]
        last = torch.stack([own[-1] for own in uniforms])
        if tree is None or self._rule is None:
            emitted = draw(target[:, 0], last)[:, None]
            details = raw.new_zeros(len(texts), 4, 0)
            return Outcome(emitted[:, :0], emitted.new_zeros(len(texts)), emitted, _of(raw, emitted), details)

        judged = tree.size
        rows = Rows(
            tree.tokens, target[:, :judged], tree.warped, raw[:, :judged], tree.raw,
            allowed(logits[:, :judged], self._sampling),
        )  # fmt: skip
        tests = _side_by_side([u[:own] for u, own in zip(uniforms, proposal.judged, strict=True)])
        noise = _side_by_side([u[own : 2 * own] for u, own in zip(uniforms, proposal.judged, strict=True)])
        verdict = self._rule.judge(rows, tests, noise)
        kept, ends = verdict.accepted, fed
        if min(proposal.judged) < judged:  # some texts have drafted less
            own_judged, ends = (send(torch.tensor(own), kept.device) for own in (proposal.judged, proposal.own))
            kept = kept & (torch.arange(judged, device=kept.device) < own_judged[:, None])
        count = kept.long().cumprod(-1).sum(-1)  # [B]
        at = count.clamp_max(judged - 1)
        weights = self._rule.correction(rows.at(at), verdict.divergence.gather(1, at[:, None]))[:, 0]
        if isinstance(ends, Tensor):
            bonus = target[torch.arange(len(texts), device=ends.device), ends]
            weights = torch.where(((count == ends) & (own_judged == ends))[:, None], bonus, weights)
        elif judged == fed:  # the bonus comes from the target
            weights = torch.where((count == fed)[:, None], target[:, fed], weights)
        correction = draw(weights, last)
        padded = F.pad(tree.tokens, (0, fed + 1 - judged))
        emitted = torch.where(torch.arange(fed + 1, device=count.device) < count[:, None], padded, correction[:, None])
        details = torch.stack(
            [
                verdict.strict.double(),
                verdict.divergence.double(),
                rows.of_token(rows.target_raw).double(),
                rows.of_token(rows.draft_raw).double(),
            ],
            1,
        )
        return Outcome(tree.tokens[:, :fed], count, emitted, _of(raw, emitted), details)

    @property
    def _taps(self) -> Taps | None:
        return None if self._drafter is None else self._drafter.taps

    def _judge_tree(self, text: Text, feed: Tensor, tree: DraftTree, shape: Shape, judge: Judge) -> Outcome:
        """Of a text that stands alone. feed: int64 [1,S], the tokens of it that the target has not been fed."""
        depths, sees = behind(feed.shape[1], shape.parents.clamp_min(-1), shape.levels, tree.depth)
        branches = Branches(self.cache.length, depths, sees)
        fed = torch.cat([feed, tree.tokens], 1)
        logits = self.model.forward(fed, self.cache, tree.size + 1, branches, self._taps)
        uniforms = text.uniforms.take(tree.depth + 1, judge.uniforms)
        found = walk(tree, shape, logits, judge, self._sampling, uniforms)
        self._way = found.way
        return found.outcome

    def _emit(self, texts: Sequence[Text], outcome: Outcome, proposal: _Proposal) -> list[StepRecord]:
        """Reads the round from the device, once; brings tokens, texts and caches up to date."""
        parts = [outcome.count[:, None], outcome.emitted, outcome.emitted_probability, outcome.details.flatten(1)]
        parts += [] if outcome.reach is None else [outcome.reach[:, None]]
        rows = read(torch.cat([part.double() for part in (outcome.drafted, *parts)], 1))
        lengths, width, fed = [len(text.history) for text in texts], proposal.fed + 1, proposal.fed
        drafted, judged = proposal.own, proposal.judged
        if outcome.reach is not None:
            drafted = judged = [int(values.pop()) for values in rows]
        if min(lengths) == max(lengths):
            self._tokens[:, lengths[0] : lengths[0] + width] = outcome.emitted
        else:
            starts = send(torch.tensor(lengths), self._tokens.device)
            places = starts[:, None] + torch.arange(width, device=starts.device)
            self._tokens.scatter_(1, places, outcome.emitted)
        valid = [
            length + min(int(values[fed]), own) for length, values, own in zip(lengths, rows, drafted, strict=True)
        ]
        way, self._way = self._way, None
        if way is not None:  # what was kept lies scattered over the tree
            self.cache.compact(lengths[0], way.nodes)
        self.cache.rollback(valid)
        if self._drafter is not None:
            self._drafter.commit(valid, way)
        return [
            text.take(values[fed:], [int(token) for token in values[:own]], positions, width, self._eos)
            for text, values, own, positions in zip(texts, rows, drafted, judged, strict=True)
        ]


def _side_by_side(rows: Sequence[Tensor]) -> Tensor:
    """Rows of different lengths [n], padded with zeros to the longest: [B,N]"""
    width = max(len(row) for row in rows)
    return torch.stack([row if len(row) == width else F.pad(row, (0, width - len(row))) for row in rows])


def _of(probabilities: Tensor, tokens: Tensor) -> Tensor:
    """[B,R,V], int64 [B,R] → [B,R]"""
    return probabilities.gather(-1, tokens[..., None]).squeeze(-1)
