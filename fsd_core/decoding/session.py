"""The one loop: draft → score → accept → commit → emit.

Every method runs here, the autoregressive baseline too (a round that drafts
nothing), so that what is compared differs in the method alone. The target is fed
once a round, and one small tensor is read from the device once a round.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import torch
from torch import Tensor

from fsd_core.acceptance import AcceptanceRule, make_rule
from fsd_core.config import DecodingConfig, SamplingConfig
from fsd_core.decoding.trace import Kind, StepRecord
from fsd_core.drafters import Drafter, make_drafter
from fsd_core.errors import InvalidSetting, PromptTooLong
from fsd_core.models.language_model import LanguageModel
from fsd_core.ops.rows import Rows
from fsd_core.ops.sampling import UniformStream, draw
from fsd_core.ops.warping import allowed, warp
from fsd_core.topologies import DraftTopology, DraftTree, make_topology


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What one round came to, on the device. R = drafted tokens that the target was fed, plus one."""

    count: Tensor
    """drafted tokens kept, the closing one included; int64 [B]"""
    emitted: Tensor
    """int64 [B,R]: the kept ones, then the correction or bonus, then leftovers"""
    emitted_probability: Tensor
    """[B,R] under the raw target"""
    details: Tensor
    """strict (0/1), divergence, p(x), q(x) of each judged position, [B,4,J]; J = 0 if nothing was drafted"""


class Session:
    """One text being written (B = 1), a round at a time.

    ``prompt``: token ids. ``draft``: ``None`` where nothing needs it. ``eos``: ids that end the text. ``seed``: the
    uniforms' seed. Raises ``InvalidSetting`` for an empty prompt or a missing draft, ``PromptTooLong`` for one that
    fills the context.
    """

    def __init__(
        self,
        target: LanguageModel,
        draft: LanguageModel | None,
        config: DecodingConfig,
        prompt: list[int],
        seed: int,
        eos: frozenset[int],
    ) -> None:
        if not prompt:
            raise InvalidSetting("The prompt is empty: write at least one word.")
        kind = config.acceptance.kind
        if kind == "draft-only" and draft is None:
            raise InvalidSetting("'draft-only' needs a draft model: give one, or choose autoregressive.")
        self.model = draft if kind == "draft-only" and draft is not None else target
        self._sampling, self._eos = config.sampling, eos
        context = self.model.context
        if draft is not None and config.drafter is not None and config.drafter.kind == "draft-model":
            context = min(context, draft.context)
        if len(prompt) >= context:
            raise PromptTooLong(
                f"The prompt has {len(prompt)} tokens, and the models' context holds {context}: shorten it to at most "
                f"{context - 1}."
            )
        self._limit = min(config.max_new_tokens, context - len(prompt))
        self._limited_by = "length" if self._limit == config.max_new_tokens else "context"
        self.stop_reason: str | None = None
        self.history = list(prompt)
        self._prompt_length = len(prompt)

        depth = 0 if config.topology is None else config.topology.length + 1
        capacity = len(prompt) + self._limit + depth + 1
        self._tokens = torch.zeros(1, capacity, dtype=torch.int64, device=self.model.device)
        self._tokens[0, : len(prompt)] = torch.tensor(prompt)
        self.cache = self.model.new_cache(capacity)
        self._uniforms = UniformStream(seed, self.model.device)
        self._rule: AcceptanceRule | None = None
        self._drafter: Drafter | None = None
        self._topology: DraftTopology | None = None
        if config.drafter is not None and config.topology is not None:
            self._rule = make_rule(config.acceptance)
            self._greedy_draft = self._rule.greedy_draft or config.sampling.greedy
            sampling = SamplingConfig(temperature=0) if self._greedy_draft else config.sampling
            self._drafter = make_drafter(config.drafter, target, draft, sampling, capacity)
            self._topology = make_topology(config.topology)

    @torch.inference_mode()
    def step(self) -> StepRecord:
        """One round. Writes 1 to draft length + 1 tokens; call until ``stop_reason`` is set."""
        begun = time.perf_counter()
        tree, fed = self._propose()
        drafted_at = time.perf_counter()
        outcome = self._judge(tree, fed)
        record = self._emit(outcome, tree, fed)
        seconds = time.perf_counter() - begun
        return StepRecord(**record, seconds=seconds, draft_seconds=drafted_at - begun if tree else 0.0)

    def _propose(self) -> tuple[DraftTree | None, int]:
        """The drafted tree and how many of its tokens the target is fed (all but a closing one)."""
        length = len(self.history)
        room = self._limit - (length - self._prompt_length)
        if self._drafter is None or self._topology is None or self._rule is None or room < 2:
            return None, 0
        depth = min(self._topology.length, room - 1)
        levels = depth + self._rule.judges_bonus
        tree = self._topology.grow(
            self._drafter.begin(self._tokens[:, :length], self.history),
            self._drafter.extend,
            levels,
            self._uniforms.take(1, levels),
            self._greedy_draft,
        )
        return tree, 0 if tree is None else min(tree.size, depth)

    def _judge(self, tree: DraftTree | None, fed: int) -> _Outcome:
        length = len(self.history)
        unseen = self._tokens[:, self.cache.length : length]
        feed = unseen if tree is None else torch.cat([unseen, tree.tokens[:, :fed]], 1)
        logits = self.model.forward(feed, self.cache, keep=fed + 1)  # [B,R,V]
        target, raw = warp(logits, self._sampling), logits.softmax(-1)
        if tree is None or self._rule is None:
            emitted = draw(target[:, 0], self._uniforms.take(1))[:, None]
            details = raw.new_zeros(1, 4, 0)
            return _Outcome(emitted.new_zeros(1), emitted, raw.gather(-1, emitted[..., None]).squeeze(-1), details)

        judged = tree.size
        rows = Rows(
            tree.tokens, target[:, :judged], tree.warped, raw[:, :judged], tree.raw,
            allowed(logits[:, :judged], self._sampling),
        )  # fmt: skip
        uniforms = self._uniforms.take(1, 2 * judged + 1)
        verdict = self._rule.judge(rows, uniforms[:, :judged], uniforms[:, judged : 2 * judged])
        count = verdict.accepted.long().cumprod(-1).sum(-1)  # [B]
        at = count.clamp_max(judged - 1)
        weights = self._rule.correction(rows.at(at), verdict.divergence.gather(1, at[:, None]))[:, 0]
        if judged == fed:  # the bonus comes from the target
            weights = torch.where((count == fed)[:, None], target[:, fed], weights)
        correction = draw(weights, uniforms[:, -1])
        padded = torch.nn.functional.pad(tree.tokens, (0, fed + 1 - judged))
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
        return _Outcome(count, emitted, raw.gather(-1, emitted[..., None]).squeeze(-1), details)

    def _emit(self, outcome: _Outcome, tree: DraftTree | None, fed: int) -> dict:
        """Reads the round from the device, once; brings tokens, history and caches up to date."""
        parts = [outcome.count[:, None], outcome.emitted, outcome.emitted_probability, outcome.details.flatten(1)]
        drafted_tokens = tree.tokens if tree is not None else outcome.emitted[:, :0]
        values = torch.cat([part.double() for part in (*parts, drafted_tokens)], 1)[0].tolist()  # the one read
        width, judged = fed + 1, outcome.details.shape[-1]
        count = int(values[0])
        emitted = [int(v) for v in values[1 : 1 + width]][: count + 1]
        probability = values[1 + width : 1 + 2 * width]
        rest = values[1 + 2 * width :]
        strict, divergence, p, q = (rest[i * judged : (i + 1) * judged] for i in range(4))
        drafted = [int(v) for v in rest[4 * judged :]][:fed]

        accepted = min(count, fed)
        length = len(self.history)
        self._tokens[:, length : length + width] = outcome.emitted
        self.cache.rollback(length + accepted)
        if self._drafter is not None:
            self._drafter.commit(length + accepted)

        ended = next((i + 1 for i, token in enumerate(emitted) if token in self._eos), None)
        if ended is not None:  # what was drafted behind the end was neither kept nor refused
            emitted, drafted, accepted = emitted[:ended], drafted[:ended], min(accepted, ended)
            self.stop_reason = "eos"
        self.history += emitted
        if self.stop_reason is None and len(self.history) - self._prompt_length >= self._limit:
            self.stop_reason = self._limited_by
        shown = min(judged, len(emitted))
        return {
            "drafted": tuple(drafted),
            "accepted": accepted,
            "emitted": tuple(emitted),
            "kinds": tuple(_kind(i, count, fed, strict) for i in range(len(emitted))),
            "divergence": tuple(divergence[:shown]),
            "target_probability": tuple(p[:shown]),
            "draft_probability": tuple(q[:shown]),
            "emitted_probability": tuple(probability[: len(emitted)]),
        }


def _kind(position: int, count: int, fed: int, strict: list[float]) -> Kind:
    if fed == 0:
        return "plain"
    if position < count and not strict[position]:
        return "lenient"
    if position == fed:
        return "bonus"
    return "strict" if position < count else "correction"
