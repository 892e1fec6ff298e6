"""The one loop: draft → score → accept → commit → emit, for any number of texts at once.

Strings that are searched for in a text while it is written: marks of thoughts, and strings that end it.

Both are strings, which a tokenizer may cut into any tokens, so they are looked for in the text of the last tokens. A
round ends with the token that completes one: whatever was drafted after it has been judged as if it had not been
written. That changes no distribution, because the tokens before it alone decide that the others are dropped.

Turns a configuration and loaded models into the parts that the loop runs.

Only this module chooses what is proposed, in which structure, how it is verified and which model writes. It refuses
what a missing or unsuitable model rules out. (The configuration itself refuses what no model could make work.) The
settings name each part, so a new one needs no change of this file.

Every method runs here, including the autoregressive baseline (a round that drafts nothing), so compared runs differ
only in the method. Each round feeds the target once and reads one small tensor from the device. The texts of a batch
advance by different amounts. Each has its own uniforms, and equals its batch-size-1 result.

A :class:`Method` supplies the parts that run.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from fsd_core.config import (
    BeamSampling,
    BeamsTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    RecentAcceptance,
    SamplingConfig,
    SpeculativeBeams,
    TopologySettings,
)
from fsd_core.config.decoding_config import EVERYWHERE, THOUGHTS, LenientIn
from fsd_core.decoding.trace import Kind, RoundRecord
from fsd_core.decoding.verification import (
    DraftProposal,
    RoundResult,
    Verification,
    make_verification,
    padded,
    write_one,
)
from fsd_core.drafters import DrafterFactory
from fsd_core.errors import IncompatibleModels, IncompatibleOptions, NotGiven, PromptTooLong
from fsd_core.models.caches import uncached_tokens
from fsd_core.models.conversation import CHANNELS, MARKS
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import ModelSet
from fsd_core.models.prompt import template_marks
from fsd_core.ops.distributions import UniformStream
from fsd_core.ops.kernels import AcceptedPath, to_device, to_host
from fsd_core.rules import MissingRule
from fsd_core.rules.base import BEAMS
from fsd_core.topologies import DraftTopology

_ENDS = dict((*MARKS, *CHANNELS))
"""end marks of thoughts, by their begin marks"""
_SLACK = 8
"""tokens looked at beyond the longest string, for some have no character of their own"""


class Mark(NamedTuple):
    """A string that was completed: the number of new tokens up to there, and the string."""

    tokens: int
    text: str


class TextMarks:
    """Looks for strings in texts. ``decode``: token ids to text, special tokens included. ``stops``: strings that end a
    text. ``thoughts``: whether marks of thoughts are looked for, those of the model's ``own`` template among them."""

    def __init__(
        self, decode: Callable[[Sequence[int]], str], stops: Sequence[str], *, thoughts: bool,
        own: Iterable[tuple[str, str]] = (),
    ) -> None:  # fmt: skip
        self._decode, self.stops, self._ends = decode, tuple(stops), _ENDS | dict(own) if thoughts else {}
        self._window = _SLACK + max(map(len, (*stops, *self._ends, *self._ends.values())))

    def opened(self, prompt: Sequence[int]) -> str | None:
        """Return the end mark of the thought that a prompt leaves open, if any. Some templates open one."""
        text = self._decode(prompt[-self._window :]).rstrip()
        return next((end for begin, end in self._ends.items() if text.endswith(begin)), None)

    def first(self, history: Sequence[int], emitted: Sequence[int], thought: str | None) -> Mark | None:
        """Return the first string that new tokens complete. ``history``: the tokens before them. ``thought``: the end
        mark of the text's open thought."""
        wanted = (*self.stops, *((thought,) if thought is not None else self._ends))
        window = list(history[-self._window :])
        before = len(self._decode(window))

        def completed(count: int) -> str | None:
            text = self._decode([*window, *emitted[:count]])
            return next((mark for mark in wanted if text.find(mark, max(0, before - len(mark) + 1)) >= 0), None)

        if completed(len(emitted)) is None:
            return None
        return next(Mark(count, mark) for count in range(1, len(emitted) + 1) if (mark := completed(count)))

    def after(self, mark: str) -> str | None:
        """Return the end mark of the thought that ``mark`` opens; ``None`` if it opens none."""
        return self._ends.get(mark)


class SequenceState:
    """Prompt and continuation, its limit, and the uniforms that decide it.

    ``limit``: maximum number of tokens to write; ``limited_by``: its reason. ``marks``: what is looked for in it.
    ``stop_reason``: ``None`` until the end.
    """

    def __init__(
        self,
        prompt: Sequence[int],
        limit: int,
        limited_by: str,
        uniforms: UniformStream,
        marks: TextMarks | None = None,
    ) -> None:
        self.history = list(prompt)
        self.uniforms = uniforms
        self.stop_reason: str | None = None
        self.acceptance = RecentAcceptance()
        self._marks = marks
        self._thought = None if marks is None else marks.opened(prompt)
        self._prompt_length, self._limit, self._limited_by = len(prompt), limit, limited_by

    @property
    def written_tokens(self) -> int:
        """Number of answer tokens so far."""
        return len(self.history) - self._prompt_length

    @property
    def is_thinking(self) -> bool:
        """Whether the text is inside of a thought. Known only if thoughts are looked for."""
        return self._thought is not None

    @property
    def remaining_tokens(self) -> int:
        """Number of tokens that may still be written."""
        return self._limit - self.written_tokens

    def take(
        self, values: Sequence[float], drafted: Sequence[int], judged: int, width: int, eos: frozenset[int]
    ) -> RoundRecord:
        """Apply a round's result and return its record, untimed.

        ``values``: read from the device: the number of accepted drafted tokens, ``width`` emitted tokens, their
        probabilities, and four figures for each judged position (see ``RoundResult``). ``drafted``: the tokens that the
        target was fed for this text. ``judged``: how many of its positions were judged.
        """
        fed, count = len(drafted), int(values[0])
        emitted = [int(value) for value in values[1 : 1 + width]][: min(count, fed) + 1]
        probability = values[1 + width : 1 + 2 * width]
        figures = values[1 + 2 * width :]
        positions = len(figures) // 4
        strict, divergence, p, q = (figures[i * positions : (i + 1) * positions] for i in range(4))
        accepted = min(count, fed)
        self.acceptance = self.acceptance.after(accepted, fed)
        end = next((i + 1 for i, token in enumerate(emitted) if token in eos), None)
        if end is not None:
            self.stop_reason = "eos"
        marks = self._marks
        if marks is not None and (mark := marks.first(self.history, emitted[:end], self._thought)):
            end, self._thought = mark.tokens, marks.after(mark.text)
            self.stop_reason = "eos" if mark.text in marks.stops or emitted[end - 1] in eos else None
        if end is not None:  # drafts after it were neither accepted nor rejected
            emitted, drafted, accepted = emitted[:end], drafted[:end], min(accepted, end)
        self.history += emitted
        if self.stop_reason is None and self.remaining_tokens <= 0:
            self.stop_reason = self._limited_by
        recorded = min(judged, len(emitted))
        return RoundRecord(
            drafted=tuple(drafted),
            accepted=accepted,
            emitted=tuple(emitted),
            kinds=tuple(_kind(i, count, fed, strict) for i in range(len(emitted))),
            divergence=tuple(divergence[:recorded]),
            target_probability=tuple(p[:recorded]),
            draft_probability=tuple(q[:recorded]),
            emitted_probability=tuple(probability[: len(emitted)]),
            seconds=0.0,
        )


def _kind(position: int, count: int, fed: int, strict: Sequence[float]) -> Kind:
    if fed == 0:
        return "plain"
    if position < count and not strict[position]:
        return "lenient"
    if position == fed:
        return "bonus"
    return "strict" if position < count else "correction"


DRAFT_ALONE = "draft-only"
"""the baseline written by the draft model"""


@dataclass(frozen=True, slots=True)
class Speculation:
    """The drafting for a text and its verification."""

    settings: tuple[DrafterSettings, TopologySettings]
    """settings of the drafter and the topology"""
    drafter: DrafterFactory
    topology: DraftTopology
    verification: Verification
    greedy_draft: bool
    """whether the draft proposes its likeliest tokens"""
    max_fed_tokens: int
    """maximum number of tokens fed after a text in a round"""

    @property
    def drafts_bonus(self) -> bool:
        """Whether the token after the longest path is drafted, because it is judged like the others."""
        return self.verification.judges_bonus and self.topology.drafts_bonus


@dataclass(frozen=True, slots=True)
class BeamPlan:
    """How a text is written as beams. Without a draft model every layer has ``most`` beams."""

    least: int
    most: int
    """beams of a layer"""
    confidence: float = 1.0
    """chance with which drafts must fill a layer"""
    draft: LanguageModel | None = None
    length: int = 0
    """layers drafted per round"""
    drafts: int = 0
    """drafts per layer"""


@dataclass(frozen=True, slots=True)
class Method:
    """A way to write texts, ready to run. It holds no state of a text, so batches may share it."""

    writer: Literal["target", "draft"]
    """who writes: the target, or the draft if it decodes alone"""
    model: LanguageModel
    """the model that writes"""
    sampling: SamplingConfig
    max_new_tokens: int
    speculation: Speculation | None
    """``None`` for the baselines, which draft nothing"""
    marks: TextMarks | None
    """strings that are searched for in texts, if any"""
    strict_first: int
    lenient_in: LenientIn
    beams: BeamPlan | None = None
    """``None`` for methods that write one text"""

    def num_strict(self, written: int, is_thinking: bool) -> int:
        """Return how many of a text's next tokens the strict test judges, whatever the rule. ``written``: the tokens of
        its answer before them."""
        is_lenient = self.lenient_in == EVERYWHERE or is_thinking == (self.lenient_in == THOUGHTS)
        return max(0, self.strict_first - written) if is_lenient else self.max_new_tokens

    @property
    def context(self) -> int:
        """Positions of the model that writes."""
        return self.model.context

    @property
    def draft_context(self) -> int:
        """Positions up to which something is drafted, for drafts may have fewer."""
        return (self.speculation.drafter.context if self.speculation else None) or self.context

    def capacity(self, prompt: int) -> int:
        """Return the cache positions of a text with a prompt of ``prompt`` tokens, drafted tokens included."""
        drafted = 0 if self.speculation is None else self.speculation.max_fed_tokens + 1
        length = min(prompt + self.max_new_tokens, max(prompt + 1, self.context))
        if (plan := self.beams) is not None:  # at worst the beams share nothing but the prompt
            return prompt + plan.most * (length - prompt + 1) + plan.length * plan.drafts
        return length + drafted + 1

    def check_prompt(self, prompt: int) -> None:
        """Raise ``InvalidSetting`` for an empty prompt, ``PromptTooLong`` for one that fills the context."""
        if not prompt:
            raise NotGiven("The prompt is empty: write at least one word.")
        if prompt >= self.context:
            raise PromptTooLong(
                f"The prompt has {prompt} tokens, and the model's context holds {self.context}: shorten it to at most "
                f"{self.context - 1}."
            )

    def check_batch_size(self, texts: int) -> None:
        """Raise ``InvalidSetting`` for more texts at once than the method can write."""
        if texts == 1:
            return
        if self.beams is not None:
            raise IncompatibleOptions("Beams are written for one text at a time: choose --batch 1.")
        if self.model.one_text:
            raise IncompatibleOptions(
                f"A {self.model.kind} model keeps a recurrent state, which is of one text at a time: choose --batch 1."
            )
        if self.speculation is None:
            return
        drafter, topology = self.speculation.settings
        if not self.speculation.topology.side_by_side:
            raise IncompatibleOptions(f"The topology '{topology.kind}' is for one text at a time: choose --batch 1.")
        if not self.speculation.drafter.side_by_side:
            raise IncompatibleOptions(f"The drafter '{drafter.kind}' writes one text at a time: choose --batch 1.")


def compose(models: ModelSet, config: DecodingConfig) -> Method:
    """Return the method that a configuration describes, with these models.

    Raises ``InvalidSetting`` for a missing draft model or EAGLE head, for a divergence that is infinite with the head,
    for a rule, a drafter or a topology of a package that is not installed, for a running engine in place of a rule, for
    branches or beams of a model with recurrent layers, and for leniency in thoughts or answers without a tokenizer.
    """
    if isinstance(config.acceptance, MissingRule) or config.acceptance.by_endpoint or config.acceptance.logged:
        config.acceptance.refuse()
    sampling = config.sampling
    if sampling.greedy and config.acceptance.samples_target:
        sampling = SamplingConfig(temperature=1)
    model, beams = _writer(models, config), _beams(models, config)
    speculation = None if beams else _speculation(models, config, sampling)
    writer = "draft" if config.acceptance.kind == DRAFT_ALONE else "target"
    marks = _text_marks(model, models.tokenizer, config)
    return Method(
        writer, model, sampling, config.max_new_tokens, speculation, marks, config.strict_first, config.lenient_in,
        beams,
    )  # fmt: skip


def _beams(models: ModelSet, config: DecodingConfig) -> BeamPlan | None:
    """Return how beams are written; ``None`` for a method that writes one text. Raises ``InvalidSetting``."""
    rule, topology = config.acceptance, config.topology
    for model in filter(None, (models.target, models.draft if topology else None) if rule.writes_beams else ()):
        model.check_shape(BEAMS, f"the rule '{rule.kind}'")
    if isinstance(rule, BeamSampling):
        return BeamPlan(rule.beams, rule.beams)
    if not isinstance(rule, SpeculativeBeams):
        return None
    if not isinstance(topology, BeamsTopology) or not isinstance(config.drafter, DraftModelDrafter):
        for part in filter(None, (topology, config.drafter)):
            part.load()  # says which package is missing
        raise IncompatibleOptions(
            f"The rule '{rule.kind}' judges drafts of the shape 'beams' of a draft model: choose them."
        )
    if models.draft is None:
        raise NotGiven(f"The rule '{rule.kind}' drafts with a draft model: give one, or choose beam-sampling.")
    most = rule.widest(topology.drafts)
    return BeamPlan(rule.least, most, rule.confidence, models.draft, topology.length, topology.drafts)


def _text_marks(
    model: LanguageModel, tokenizer: PreTrainedTokenizerBase | None, config: DecodingConfig
) -> TextMarks | None:
    """Return the strings to search for in texts. Without a tokenizer the caller searches for strings that end them."""
    thoughts = config.lenient_in != EVERYWHERE
    if tokenizer is None:
        if thoughts:
            raise NotGiven(f"lenient_in={config.lenient_in!r} is read from texts: give the tokenizer.")
        return None
    if not thoughts and not model.stop_strings:
        return None

    def decode(ids: Sequence[int]) -> str:
        return str(tokenizer.decode(list(ids), skip_special_tokens=False, clean_up_tokenization_spaces=False))

    return TextMarks(decode, model.stop_strings, thoughts=thoughts, own=template_marks(tokenizer) if thoughts else ())


def _writer(models: ModelSet, config: DecodingConfig) -> LanguageModel:
    if config.acceptance.kind != DRAFT_ALONE:
        return models.target
    if models.draft is None:
        raise NotGiven(f"'{DRAFT_ALONE}' needs a draft model: give one, or choose autoregressive.")
    return models.draft


def _speculation(models: ModelSet, config: DecodingConfig, target_sampling: SamplingConfig) -> Speculation | None:
    if config.drafter is None or config.topology is None:
        return None
    models.target.check_shape(config.topology.judged_as, f"the topology '{config.topology.kind}'")
    topology: DraftTopology = config.topology.load().for_method(config)
    verification = make_verification(config.topology.judged_as, config.acceptance, target_sampling)
    greedy = config.sampling.greedy or verification.greedy_draft
    sampling = SamplingConfig(temperature=0) if greedy else config.sampling
    drafter: DrafterFactory = config.drafter.load().for_models(models, config, sampling)
    settings = config.drafter, config.topology
    return Speculation(settings, drafter, topology, verification, greedy, config.topology.max_fed_tokens)


class Closing:
    """A context that closes itself."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        raise NotImplementedError


class Batch(Closing):
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
