"""A decoding method with its parameters: rule x drafter x topology x sampling, and its displayed name."""

from __future__ import annotations

import json
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, SerializeAsAny, field_validator, model_validator

from fsd_core.config.drafting import (
    DRAFTERS,
    TOPOLOGIES,
    BeamsTopology,
    ChainTopology,
    DrafterConfig,
    DraftModelDrafter,
    MissingDrafter,
    MissingTopology,
    MultiDraftTopology,
    SearchTreeTopology,
    TopologyConfig,
)
from fsd_core.errors import IncompatibleOptions, Malformed, NotApplicable, OutOfRange
from fsd_core.frozen import Frozen, before_fields, option
from fsd_core.rules import (
    CHAIN,
    EVERY_RULE,
    INFINITE_WITHOUT_Q,
    RULES,
    TOP_K,
    VERIFIERS,
    FuzzyReducible,
    MissingRule,
    Rule,
    SpeculativeBeams,
    Truncation,
    Verifier,
)

GIVEN = ("messages", "tools", "documents", "add_generation_prompt", "strftime_now", "raise_exception", "date_string")
"""arguments that the program passes to a template, or that would change its date: a setting cannot give them"""


class TemplateConfig(Frozen):
    """Arguments of the chat template, and the day that it is told as today's.

    Many templates name today's date. With the real one a setting would ask something else every day.
    """

    arguments: str = option(
        "", "Template arguments", 'Arguments of the chat template as JSON, such as {"enable_thinking": false}',
        max_length=2000,
    )  # fmt: skip
    """canonical JSON of an object; empty if there is none"""
    date: str = option(
        "2025-01-01", "Template date", "The day that a chat template is told as today's, as YYYY-MM-DD",
    )  # fmt: skip

    @field_validator("arguments")
    @classmethod
    def _canonical(cls, text: str) -> str:
        if not text.strip():
            return ""
        try:
            values = json.loads(text)
        except (ValueError, RecursionError):
            values = None
        if not isinstance(values, dict):
            raise Malformed(
                f"The template arguments {text[:60]!r} are no JSON object: expected one such as "
                '{"enable_thinking": false}.'
            )
        for name, value in values.items():
            if name in GIVEN or not name.isidentifier():
                raise Malformed(
                    f"The template argument {name[:40]!r} cannot be given: expected a name that the template reads, "
                    f"other than {', '.join(GIVEN)}."
                )
            if not isinstance(value, str | int | float):
                raise Malformed(
                    f"The template argument {name[:40]!r} is {json.dumps(value)[:40]}: expected a text, a number, true "
                    "or false."
                )
        return json.dumps(values, sort_keys=True) if values else ""

    @field_validator("date")
    @classmethod
    def _is_day(cls, text: str) -> str:
        try:
            return date.fromisoformat(text.strip()).isoformat()
        except ValueError:
            raise Malformed(f"The template date {text[:40]!r} is no day: expected one such as 2025-01-01.") from None

    @property
    def values(self) -> dict[str, Any]:
        """The arguments by name."""
        return json.loads(self.arguments) if self.arguments else {}

    def filled(self, arguments: str) -> TemplateConfig:
        """Return these, with the arguments of a pair, which are JSON as here, where there are none of their name."""
        if not arguments:
            return self
        return self.model_copy(update={"arguments": json.dumps(json.loads(arguments) | self.values, sort_keys=True)})

    @property
    def day(self) -> date:  # pyrefly: ignore[not-a-type]  # of datetime, not the field of its name
        return date.fromisoformat(self.date)

    def label_parts(self) -> list[str]:
        """Return the differences from the default, such as ``enable_thinking false``."""
        parts = [
            f"{name} {str(value).lower() if isinstance(value, bool) else value}" for name, value in self.values.items()
        ]
        return parts + [f"dated {self.date}"] * (self.date != TemplateConfig().date)


TemplateField = Annotated[TemplateConfig, Field(exclude_if=lambda template: template == TemplateConfig())]
"""of values older than templates: the default is not stored, so that they keep their hashes"""

LOWEST_TEMPERATURE = 1e-20
"""lowest temperature above 0; logits divided by a lower one soon overflow float32"""


EVERYWHERE, THOUGHTS = "everywhere", "thoughts"
LenientIn = Literal["everywhere", "thoughts", "answers"]
JUDGING_OPTIONS = ("strict_first", "lenient_in")
"""options that say which tokens of a text a lossy rule judges"""


class SamplingConfig(Frozen):
    """How a token is sampled from logits: temperature, top-k, top-p, then min-p, in transformers' order."""

    temperature: float = option(0.0, "Temperature", "0 is greedy", ge=0, allow_inf_nan=False)
    top_k: int = option(0, "Top-k", "Sampling from the k likeliest; 0 is off", ge=0)
    top_p: float = option(1.0, "Top-p", "Nucleus sampling; 1 is off", gt=0, le=1)
    min_p: float = option(
        0.0, "Min-p", "Leave out tokens less likely than this share of the likeliest; 0 is off", before=0.0, ge=0, le=1
    )

    @field_validator("temperature")
    @classmethod
    def _can_be_divided_by(cls, value: float) -> float:
        if 0 < value < LOWEST_TEMPERATURE:
            raise OutOfRange(
                f"The temperature {value:g} is too low to divide by: expected 0, which is greedy, or at least "
                f"{LOWEST_TEMPERATURE:g}."
            )
        return value

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def cut(self) -> list[str]:
        """Truncation of unlikely tokens as text; empty without truncation."""
        parts = [f"top-k {self.top_k}"] * bool(self.top_k) + [f"top-p {self.top_p:g}"] * (self.top_p < 1)
        return parts + [f"min-p {self.min_p:g}"] * (self.min_p > 0)

    def confined(self, truncation: Truncation | None) -> SamplingConfig | None:
        """Return this sampling with a rule's truncation added.

        Greedy sampling is returned unchanged; ``None`` if no option expresses the truncation.
        """
        if self.greedy or truncation is None:
            return self if self.greedy else None
        top_k = min((k for k in (self.top_k, truncation.top_k) if k), default=0)
        return self.model_copy(update={"top_k": top_k, "min_p": max(self.min_p, truncation.min_p)})


def _rule(value: Any) -> Any:
    """Return the rule that ``kind`` names, read as it was stored; a ``MissingRule`` if its package is not installed."""
    if not isinstance(value, dict):
        return value
    rule = EVERY_RULE.get(str(value.get("kind")), MissingRule)
    return rule(**before_fields(rule) | value)


AcceptanceConfig = Annotated[SerializeAsAny[Rule], BeforeValidator(_rule)]


def topologies_for(rule: type[Rule]) -> tuple[str, ...]:
    """Return the kinds of the topologies that a rule judges, its default first; baselines judge none."""
    return tuple(
        kind for structure in rule.shapes for kind, shape in TOPOLOGIES.items() if shape.judged_as == structure
    )


def chosen_shape(rule: type[Rule], shape: str | None) -> str | None:
    """Return a rule's topology: ``shape`` if the rule judges it, else its first; ``None`` for baselines."""
    kinds = topologies_for(rule)
    return (shape if shape in kinds else kinds[0]) if kinds else None


class DecodingConfig(Frozen):
    """A decoding method with its parameters. Baselines have neither drafter nor topology."""

    acceptance: AcceptanceConfig = FuzzyReducible()
    drafter: DrafterConfig | None = DraftModelDrafter()
    topology: TopologyConfig | None = ChainTopology()
    sampling: SamplingConfig = SamplingConfig()
    template: TemplateField = TemplateConfig()
    strict_first: int = option(
        0, "Strict first", "So many tokens of an answer are judged strictly, whatever the rule is", unit="tokens",
        before=0, ge=0, le=8192,
    )  # fmt: skip
    lenient_in: LenientIn = option(
        EVERYWHERE, "Applies in", "Where the rule judges: everywhere, in thoughts alone or in answers alone; "
        "elsewhere the strict test judges", before=EVERYWHERE,
    )  # fmt: skip
    max_new_tokens: int = option(128, "Longest answer", "Longest text, in tokens", unit="tokens", ge=1, le=8192)

    @model_validator(mode="before")
    @classmethod
    def _shape_follows_rule(cls, values: Any) -> Any:
        """Give baselines no drafter, and multi-draft verifiers several drafts if no topology is named."""
        if isinstance(values, dict) and "acceptance" in values:
            rule = _rule(values["acceptance"])
            values = {**values, "acceptance": rule}
            if isinstance(rule, Rule) and rule.baseline:
                values |= {"drafter": None, "topology": None}
            elif isinstance(rule, Verifier) and "topology" not in values:
                shape = MultiDraftTopology() if rule.drafts is None else MultiDraftTopology(drafts=rule.drafts)
                values["topology"] = shape
            elif isinstance(rule, SpeculativeBeams) and "topology" not in values:
                values["topology"] = BeamsTopology()
        return values

    @model_validator(mode="after")
    def _triple_is_possible(self):
        kind = self.acceptance.kind
        if self.acceptance.writes_beams:
            self._check_beams(kind)
        if self.acceptance.baseline:
            return self
        if self.drafter is None or self.topology is None:
            raise IncompatibleOptions(f"The rule '{kind}' judges drafted tokens: choose a drafter and a topology.")
        if not self.drafter.has_distribution and (self.divergence or "").removeprefix(TOP_K) in INFINITE_WITHOUT_Q:
            raise IncompatibleOptions(
                f"The divergence '{self.divergence}' is infinite for a copied token, so nothing would ever be "
                "accepted: choose kl, js or tv, or the drafter 'draft-model'."
            )
        if not self.drafter.has_distribution and self.acceptance.needs_distribution:
            alternatives = ", ".join(k for k, r in RULES.items() if CHAIN in r.shapes and not r.needs_distribution)
            drafters = " or ".join(repr(k) for k, d in DRAFTERS.items() if d.has_distribution)
            raise IncompatibleOptions(
                f"The rule '{kind}' asks how likely the draft found other tokens, which the drafter "
                f"'{self.drafter.kind}' cannot say: choose the drafter {drafters}, or one of the rules {alternatives}."
            )
        if self.drafter.learns_from_run and not (self.sampling.greedy and self.acceptance.lossless):
            raise IncompatibleOptions(
                f"The drafter '{self.drafter.kind}' with the memory 'run' drafts by the order of the prompts, and so "
                "would the texts change: choose temperature 0 and a lossless rule, or the memory 'text'."
            )
        if self.acceptance.lossless and (narrowed := self.narrowed_by):
            raise NotApplicable(f"The rule '{kind}' is strict everywhere: leave out {narrowed[0]}, or choose another.")
        self._check_shape(self.acceptance, self.topology)
        return self

    def _check_beams(self, kind: str) -> None:
        if self.sampling.greedy:
            raise IncompatibleOptions(
                f"At temperature 0 all beams are the greedy text: choose a temperature above 0 for '{kind}', or "
                "another rule."
            )
        if narrowed := self.narrowed_by:
            raise NotApplicable(f"The rule '{kind}' judges beams, not single tokens: leave out {narrowed[0]}.")
        if not isinstance(self.drafter, DraftModelDrafter | MissingDrafter | None):
            raise IncompatibleOptions(
                f"The rule '{kind}' drafts beams with the pair's draft model, not with '{self.drafter.kind}': choose "
                f"the drafter '{DraftModelDrafter().kind}'."
            )
        if isinstance(self.acceptance, SpeculativeBeams) and isinstance(self.topology, BeamsTopology):
            self.acceptance.check_widths(self.topology.drafts)

    def _check_shape(self, rule: Rule, topology: TopologyConfig) -> None:
        if isinstance(topology, MissingTopology):
            return
        if topology.judged_as not in rule.shapes:
            shapes = " or ".join(f"'{shape}'" for shape in topologies_for(type(rule)))
            alternatives = ", ".join(kind for kind, other in RULES.items() if topology.judged_as in other.shapes)
            raise IncompatibleOptions(
                f"The rule '{rule.kind}' judges drafts of the shape {shapes}: choose it, or one of {alternatives}."
            )
        if isinstance(topology, MultiDraftTopology) and rule.drafts not in (None, topology.drafts):
            optimal = next(kind for kind, other in VERIFIERS.items() if other.optimal)
            raise IncompatibleOptions(
                f"'{rule.kind}' couples {rule.drafts} drafts, not {topology.drafts}: choose {rule.drafts}, or "
                f"{optimal}."
            )
        self._check_tokens_to_choose_from(topology)

    def _check_tokens_to_choose_from(self, topology: TopologyConfig) -> None:
        """Raise ``InvalidSetting`` if a branching topology cannot learn from the drafter what may follow."""
        if self.drafter is None or topology.judged_as == CHAIN:
            return
        if topology.searches and not self.drafter.has_successors:
            raise IncompatibleOptions(
                f"The topology '{topology.kind}' searches what a drafter has looked up, and the drafter "
                f"'{self.drafter.kind}' looks nothing up: choose the drafter "
                f"{' or '.join(repr(kind) for kind, d in DRAFTERS.items() if d.has_successors)}, or another topology."
            )
        if not topology.searches and not self.drafter.has_distribution:
            search = f" or a {SearchTreeTopology.title.lower()}" if self.drafter.has_successors else ""
            raise IncompatibleOptions(
                "Trees and several drafts per position need a drafter with a distribution of its own: choose the "
                f"drafter {' or '.join(repr(kind) for kind, d in DRAFTERS.items() if d.has_distribution)}, or a "
                f"chain{search}."
            )

    @property
    def shared(self) -> dict[str, Any]:
        """The fields that a method and its baseline have alike: what is asked, and how the target is sampled."""
        return {"sampling": self.sampling, "template": self.template, "max_new_tokens": self.max_new_tokens}

    @property
    def narrowed_by(self) -> list[str]:
        """Names of the :data:`JUDGING_OPTIONS` that leave a part of the text to the strict test."""
        return [name for name in JUDGING_OPTIONS if getattr(self, name) != type(self).model_fields[name].default]

    @property
    def threshold(self) -> float | None:
        """Value of the rule's knob; ``None`` is off, or no knob."""
        return self.acceptance.knob_value

    @property
    def divergence(self) -> str | None:
        return getattr(self.acceptance, "divergence", None)

    @property
    def label(self) -> str:
        """Short name for legends, such as ``FSD reducible · js ≤ 0.1 · γ 5``.

        Parameters besides threshold and draft length are named if they are read and not the default.
        """
        return self._named("off" if self.threshold is None else f"≤ {self.threshold:g}", draft_length=True)

    def family(self, thresholds: str, lengths: str = "") -> str:
        """Return the name of settings with several thresholds, such as ``FSD reducible · js 0.05 to 0.6``.

        Several draft lengths are named as well.
        """
        if lengths and self.topology is not None:
            return f"{self._named(thresholds, draft_length=False)} · γ {lengths}"
        return self._named(thresholds, draft_length=self.topology is not None and self.topology != ChainTopology())

    @property
    def line(self) -> str:
        """Name of settings that differ only in the knob, such as ``FSD reducible · js · γ 5``."""
        return self._named("", draft_length=True)

    def without_knob(self) -> DecodingConfig:
        """Return the method with its knob at 0, which settings that differ only in the knob share."""
        rule = self.acceptance.without_knob()
        return self if rule is self.acceptance else self.model_copy(update={"acceptance": rule})

    def _named(self, knob: str, *, draft_length: bool) -> str:
        parts = [self.acceptance.title, *self.acceptance.label_parts(knob)]
        if self.drafter:
            parts += self.drafter.label_parts()
        if self.topology:
            parts += self.topology.label_parts() + ([f"γ {self.topology.length}"] if draft_length else [])
        if self.strict_first:
            parts.append(f"strict first {self.strict_first}")
        if self.lenient_in != EVERYWHERE:
            parts.append(f"lenient in {self.lenient_in}")
        if not self.sampling.greedy:
            parts += [f"t {self.sampling.temperature:g}", *self.sampling.cut]
        parts += self.template.label_parts()
        return " · ".join(" ".join(part.split()) for part in parts if part)
