"""Where a configuration and loaded models become the parts that the loop runs.

What is proposed, in which shape, how it is verified and which model writes is chosen here, and here alone; what cannot
be for want of a model, or with it, is refused here. (What cannot be whatever the models are, the configuration itself
refuses.) Each part is named by its settings, so that a new one needs no change of this file.
"""

from __future__ import annotations

from dataclasses import dataclass

from fsd_core.config import DecodingConfig, DrafterSettings, SamplingConfig, TopologySettings
from fsd_core.decoding.verification import Verification, make_verification
from fsd_core.drafters import DrafterFactory
from fsd_core.errors import InvalidSetting, PromptTooLong
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.model_set import ModelSet
from fsd_core.rules import MissingRule
from fsd_core.topologies import DraftTopology

DRAFT_ALONE = "draft-only"
"""the baseline that the draft model writes"""


@dataclass(frozen=True, slots=True)
class Speculation:
    """What is drafted for a text, and how it is verified."""

    chosen: tuple[DrafterSettings, TopologySettings]
    """the settings of the two that follow"""
    drafter: DrafterFactory
    topology: DraftTopology
    verification: Verification
    greedy_draft: bool
    """whether the draft proposes its likeliest tokens"""
    max_fed_tokens: int
    """tokens that are fed behind a text in a round at most"""

    @property
    def drafts_bonus(self) -> bool:
        """Whether the token behind the longest path is drafted, because it is judged like the others."""
        return self.verification.judges_bonus and self.topology.drafts_bonus


@dataclass(frozen=True, slots=True)
class Method:
    """A way to write texts, ready to run. It holds no state of a text, so any number of batches may share it."""

    model: LanguageModel
    """the one that writes: the target, or the draft where it decodes alone"""
    sampling: SamplingConfig
    max_new_tokens: int
    context: int
    """positions that all models at work have"""
    speculation: Speculation | None
    """``None`` for the baselines, which draft nothing"""

    def capacity(self, prompt: int) -> int:
        """Positions that a text takes in the caches behind a prompt of so many tokens, drafted ones included."""
        drafted = 0 if self.speculation is None else self.speculation.max_fed_tokens + 1
        return min(prompt + self.max_new_tokens, max(prompt + 1, self.context)) + drafted + 1

    def check_prompt(self, prompt: int) -> None:
        """Raises ``InvalidSetting`` for a prompt of no tokens, ``PromptTooLong`` for one that fills the context."""
        if not prompt:
            raise InvalidSetting("The prompt is empty: write at least one word.")
        if prompt >= self.context:
            raise PromptTooLong(
                f"The prompt has {prompt} tokens, and the models' context holds {self.context}: shorten it to at most "
                f"{self.context - 1}."
            )

    def check_batch_size(self, texts: int) -> None:
        """Raises ``InvalidSetting`` for more texts side by side than the method can write."""
        if texts == 1 or self.speculation is None:
            return
        drafter, topology = self.speculation.chosen
        if not self.speculation.topology.side_by_side:
            raise InvalidSetting(f"The topology '{topology.kind}' is for one text at a time: choose --batch 1.")
        if not self.speculation.drafter.side_by_side:
            raise InvalidSetting(f"The drafter '{drafter.kind}' writes one text at a time: choose --batch 1.")


def compose(models: ModelSet, config: DecodingConfig) -> Method:
    """The method that a configuration describes, with these models.

    Raises ``InvalidSetting`` for a draft model or an EAGLE head that is missing, and for a divergence that is infinite
    with the head, and for a rule, a drafter or a topology of a package that is not installed.
    """
    if isinstance(config.acceptance, MissingRule):
        config.acceptance.refuse()
    sampling = config.sampling
    if sampling.greedy and config.acceptance.samples_target:
        sampling = SamplingConfig(temperature=1)
    model, speculation = _writer(models, config), _speculation(models, config, sampling)
    context = model.context
    if speculation is not None and speculation.drafter.context is not None:
        context = min(context, speculation.drafter.context)
    return Method(model, sampling, config.max_new_tokens, context, speculation)


def _writer(models: ModelSet, config: DecodingConfig) -> LanguageModel:
    if config.acceptance.kind != DRAFT_ALONE:
        return models.target
    if models.draft is None:
        raise InvalidSetting(f"'{DRAFT_ALONE}' needs a draft model: give one, or choose autoregressive.")
    return models.draft


def _speculation(models: ModelSet, config: DecodingConfig, of_target: SamplingConfig) -> Speculation | None:
    if config.drafter is None or config.topology is None:
        return None
    topology: DraftTopology = config.topology.load().for_method(config)
    verification = make_verification(config.topology.judged_as, config.acceptance, of_target, config.strict_first)
    greedy = config.sampling.greedy or verification.greedy_draft
    sampling = SamplingConfig(temperature=0) if greedy else config.sampling
    drafter: DrafterFactory = config.drafter.load().for_models(models, config, sampling)
    chosen = config.drafter, config.topology
    return Speculation(chosen, drafter, topology, verification, greedy, config.topology.max_fed_tokens)
