"""Turns a configuration and loaded models into the parts that the loop runs.

Only this module chooses what is proposed, in which structure, how it is verified and which model writes. It refuses
what a missing or unsuitable model rules out. (The configuration itself refuses what no model could make work.) The
settings name each part, so a new one needs no change of this file.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from transformers import PreTrainedTokenizerBase

from fsd_core.config import (
    BeamSampling,
    BeamsTopology,
    DecodingConfig,
    DrafterSettings,
    DraftModelDrafter,
    SamplingConfig,
    SpeculativeBeams,
    TopologySettings,
)
from fsd_core.config.decoding_config import EVERYWHERE, THOUGHTS, LenientIn
from fsd_core.decoding.text_marks import TextMarks
from fsd_core.decoding.verification import Verification, make_verification
from fsd_core.drafters import DrafterFactory
from fsd_core.errors import IncompatibleOptions, NotGiven, PromptTooLong
from fsd_core.models.chat_template import template_marks
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.model_set import ModelSet
from fsd_core.rules import MissingRule
from fsd_core.rules.base import BEAMS
from fsd_core.topologies import DraftTopology

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
