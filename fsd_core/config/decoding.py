"""A decoding method with its parameters, and the short names it goes by."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from fsd_core.config.drafting import (
    ChainTopology,
    DrafterConfig,
    DraftModelDrafter,
    DynamicTreeTopology,
    EagleDrafter,
    MultiDraftTopology,
    PromptLookupDrafter,
    TopologyConfig,
)
from fsd_core.config.methods import (
    BASELINES,
    INFINITE_WITHOUT_Q,
    RULES,
    TOP_K,
    VERIFIERS,
    AcceptanceConfig,
    FuzzyReducible,
)
from fsd_core.config.values import Frozen
from fsd_core.errors import InvalidSetting


class SamplingConfig(Frozen):
    """How a token is drawn from logits: temperature, then top-k, then top-p, as transformers orders them."""

    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="0 is greedy.")
    top_k: int = Field(default=0, ge=0, description="0 is off.")
    top_p: float = Field(default=1.0, gt=0, le=1)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


def shape_for(
    kind: str,
    length: int | None = None,
    drafts: int | None = None,
    *,
    tree: bool = False,
    tree_width: int | None = None,
    tree_tokens: int | None = None,
) -> TopologyConfig:
    """The shape that a rule judges: a chain, or a dynamic ``tree``; for a verifier of several drafts so many (two for
    ``spec-hub``).

    ``length``: of the longest way, whatever the shape. ``tree_width``, ``tree_tokens``: a tree's ``top_k`` and
    ``total_tokens``. The usual numbers stand where none are given. Raises ``InvalidSetting`` for numbers out of range,
    and for a tree to be judged by a verifier of several drafts.
    """
    if kind in VERIFIERS:
        if tree:
            raise InvalidSetting(
                f"The rule '{kind}' judges several drafts of each position, not a tree: choose it without a tree, or "
                "one of " + ", ".join(k for k in RULES if k not in (*VERIFIERS, *BASELINES)) + "."
            )
        wanted = 2 if kind == "spec-hub" else drafts
        return MultiDraftTopology.checked(**_given(length=length, drafts=wanted))
    if not tree:
        return ChainTopology.checked(**_given(length=length))
    return DynamicTreeTopology.checked(**_given(length=length, top_k=tree_width, total_tokens=tree_tokens))


def _given(**values: int | None) -> dict[str, int]:
    return {name: value for name, value in values.items() if value is not None}


class DecodingConfig(Frozen):
    """A decoding method with its parameters. Baselines have neither drafter nor topology."""

    acceptance: AcceptanceConfig = FuzzyReducible()
    drafter: DrafterConfig | None = DraftModelDrafter()
    topology: TopologyConfig | None = ChainTopology()
    sampling: SamplingConfig = SamplingConfig()
    max_new_tokens: int = Field(default=128, ge=1, le=8192)

    @model_validator(mode="before")
    @classmethod
    def _shape_follows_rule(cls, values: Any) -> Any:
        """Baselines draft nothing, and a verifier of several drafts is given several where no shape is named."""
        if isinstance(values, dict):
            acceptance = values.get("acceptance")
            kind = acceptance.get("kind") if isinstance(acceptance, dict) else getattr(acceptance, "kind", None)
            if kind in BASELINES:
                values = {**values, "drafter": None, "topology": None}
            elif kind in VERIFIERS and "topology" not in values:
                values = {**values, "topology": shape_for(kind)}
        return values

    @model_validator(mode="after")
    def _triple_is_possible(self):
        kind = self.acceptance.kind
        if kind in BASELINES:
            return self
        if self.drafter is None or self.topology is None:
            raise InvalidSetting(f"The rule '{kind}' judges drafted tokens: choose a drafter and a topology.")
        if self.drafter.kind == "prompt-lookup" and (self.divergence or "").removeprefix(TOP_K) in INFINITE_WITHOUT_Q:
            raise InvalidSetting(
                f"The divergence '{self.divergence}' is infinite against a copied token, which has no distribution of "
                "its own, so nothing would ever be accepted: choose kl, js or tv, or the drafter 'draft-model'."
            )
        self._check_shape(kind, self.topology)
        return self

    def _check_shape(self, kind: str, topology: TopologyConfig) -> None:
        several = isinstance(topology, MultiDraftTopology)
        if several != (kind in VERIFIERS):
            shape = "multi-draft" if kind in VERIFIERS else "chain' or 'dynamic-tree"
            raise InvalidSetting(
                f"The rule '{kind}' judges drafts of the shape '{shape}': choose it, or one of "
                f"{', '.join(VERIFIERS if several else (k for k in RULES if k not in (*VERIFIERS, *BASELINES)))}."
            )
        if isinstance(topology, MultiDraftTopology) and kind == "spec-hub" and topology.drafts != 2:
            raise InvalidSetting(f"'spec-hub' couples two drafts, not {topology.drafts}: choose 2, or greedy-optimal.")
        if not isinstance(topology, ChainTopology) and isinstance(self.drafter, PromptLookupDrafter):
            raise InvalidSetting(
                "Trees and several drafts per position come from a distribution, which a copied token has not: choose "
                "the drafter 'draft-model' or 'eagle', or a chain."
            )

    @property
    def threshold(self) -> float | None:
        return getattr(self.acceptance, "threshold", None)

    @property
    def divergence(self) -> str | None:
        return getattr(self.acceptance, "divergence", None)

    @property
    def label(self) -> str:
        """A short name for legends, such as ``FSD reducible · js ≤ 0.1 · γ 5``.

        Parameters beside threshold and draft length are named where they are not the default and are read.
        """
        return self._named("off" if self.threshold is None else f"≤ {self.threshold:g}", draft_length=True)

    def family(self, thresholds: str) -> str:
        """A name for several thresholds, told in words: ``FSD reducible · js 0.05 to 0.6``."""
        return self._named(thresholds, draft_length=self.topology is not None and self.topology != ChainTopology())

    def _named(self, thresholds: str, *, draft_length: bool) -> str:
        parts = [self.acceptance.title]
        if self.divergence:
            parts.append(f"{self._divergence_named} {thresholds}")
        if not getattr(self.acceptance, "guard", True):
            parts.append("no guard")
        if isinstance(self.drafter, PromptLookupDrafter):
            default = self.drafter.max_ngram == PromptLookupDrafter().max_ngram
            parts.append("prompt lookup" if default else f"prompt lookup {self.drafter.max_ngram}-gram")
        if isinstance(self.drafter, EagleDrafter):
            parts.append("EAGLE")
        if isinstance(self.topology, MultiDraftTopology):
            parts.append(f"{self.topology.drafts} drafts")
        if isinstance(self.topology, DynamicTreeTopology):
            parts.append(f"tree {self.topology.total_tokens}")
            if self.topology.top_k != DynamicTreeTopology().top_k:
                parts.append(f"top {self.topology.top_k}")
        if self.topology and draft_length:
            parts.append(f"γ {self.topology.length}")
        if not self.sampling.greedy:
            parts.append(f"t {self.sampling.temperature:g}")
        return " · ".join(parts)

    @property
    def _divergence_named(self) -> str:
        """``top-20-js`` for the divergence top-k-js with another k than the default."""
        name, k = self.divergence or "", getattr(self.acceptance, "divergence_top_k", None)
        if not name.startswith(TOP_K) or k == FuzzyReducible().divergence_top_k:
            return name
        return f"top-{k}-{name.removeprefix(TOP_K)}"
