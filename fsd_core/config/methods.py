"""What is kept of a draft: the acceptance rules, a union of small values told apart by ``kind``.

A method of the literature is a triple, *what is drafted* x *in which shape* x *what is kept*; the first two are in
``config.drafting``. A new plug-in adds one class to its union and one implementation in its package.
"""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal, get_args

from pydantic import Field, field_validator, model_validator

from fsd_core.config.values import Frozen, members
from fsd_core.errors import InvalidSetting

DivergenceName = Literal[
    "kl", "reverse-kl", "js", "tv", "ag",
    "top-k-kl", "top-k-reverse-kl", "top-k-js", "top-k-tv", "top-k-ag",
    "random",
]  # fmt: skip
DIVERGENCES: tuple[str, ...] = get_args(DivergenceName)
TOP_K = "top-k-"
INFINITE_WITHOUT_Q = ("reverse-kl", "ag")
"""those that divide by q, and are infinite where a drafter gives a token that the target might write no probability"""
_UPPER_BOUNDS = {"js": math.log(2), "tv": 1.0, "random": 1.0}


def divergence_upper_bound(name: str) -> float:
    """Largest value the divergence can take, in nats where it has a unit; ``inf`` if unbounded."""
    return _UPPER_BOUNDS.get(name.removeprefix(TOP_K), math.inf)


class _Rule(Frozen):
    """An acceptance rule, or a baseline, which has nothing to accept."""

    title: ClassVar[str]
    """its name in labels, tables and plots"""
    lossless: ClassVar[bool] = False
    """whether the output has the target's distribution whatever the parameters are"""
    baseline: ClassVar[bool] = False
    """whether one model writes alone"""
    timing_only: ClassVar[bool] = False
    """whether its texts mean nothing, so that no run may use it"""


class Autoregressive(_Rule):
    """The target alone, one token a forward: the baseline of every speed-up."""

    title, lossless, baseline = "Target alone", True, True
    kind: Literal["autoregressive"] = "autoregressive"


class DraftOnly(_Rule):
    """The draft alone: the other end of the trade-off."""

    title, baseline = "Draft alone", True
    kind: Literal["draft-only"] = "draft-only"


class Speculative(_Rule):
    """Lossless speculative decoding."""

    title, lossless = "SD", True
    kind: Literal["speculative"] = "speculative"


def _check_threshold(threshold: float | None, divergence: str) -> float | None:
    if threshold is None:
        return None
    bound = divergence_upper_bound(divergence)
    expected = f"a number from 0 to {bound:.4g}" if math.isfinite(bound) else "a number of at least 0"
    if math.isnan(threshold) or threshold < 0:
        raise InvalidSetting(f"The threshold {threshold} cannot be used: expected {expected}, or 'off' for exact SD.")
    if threshold > bound * (1 + 1e-12):
        raise InvalidSetting(
            f"The threshold {threshold:g} is beyond the range of the divergence '{divergence}': expected {expected}. "
            f"At {bound:.4g} every draft token is already accepted."
        )
    return float(threshold)


class _Thresholded(_Rule):
    """Accept where ``divergence`` <= ``threshold`` (nats for the entropies); ``None`` is off: exact SD."""

    divergence: DivergenceName = "js"
    threshold: float | None = 0.1
    divergence_top_k: int = Field(default=50, ge=1, description="Only read by the top-k divergences.")

    @model_validator(mode="after")
    def _in_range(self):
        _check_threshold(self.threshold, self.divergence)
        return self


class Fuzzy(_Thresholded):
    """FSD as the paper states it."""

    title = "FSD"
    kind: Literal["fsd"] = "fsd"


class FuzzyReducible(_Thresholded):
    """FSD as a verifier distribution: the same output law, never a lower acceptance. Our default."""

    title = "FSD reducible"
    kind: Literal["fsd-reducible"] = "fsd-reducible"
    guard: bool = Field(default=True, description="Leniency never keeps a token that the target's top-k/top-p removes.")


class FuzzyOfficial(_Rule):
    """What the authors' published program computes: greedy draft, `ag` on raw distributions."""

    title = "FSD official"
    divergence: ClassVar[DivergenceName] = "ag"
    kind: Literal["fsd-official"] = "fsd-official"
    threshold: float = 0.4

    @field_validator("threshold")
    @classmethod
    def _in_range(cls, value: float) -> float:
        _check_threshold(value, cls.divergence)
        return value


DraftSampling = Literal["with_replacement", "without_replacement", "greedy"]
"""How the first tokens of several drafts come about: each drawn from q; one after the other from what is left of q; or
the likeliest of q, and one drawn from the rest."""


class Verifier(_Rule):
    """A lossless verifier of several drafts per position; see ``acceptance.couplings``."""

    lossless = True
    sampling: ClassVar[DraftSampling] = "with_replacement"


class RecursiveRejection(Verifier):
    """Each draft in turn against what is left of p."""

    title = "RRS"
    kind: Literal["rrs"] = "rrs"


class RecursiveRejectionWithout(Verifier):
    """The same for drafts that are all different."""

    title, sampling = "RRS without replacement", "without_replacement"
    kind: Literal["rrs-without-replacement"] = "rrs-without-replacement"


class KSeq(Verifier):
    """Each draft against the same lowered p."""

    title = "K-SEQ"
    kind: Literal["k-seq"] = "k-seq"


class NaiveSampling(Verifier):
    """A sample of p, kept where it happens to be drafted."""

    title = "NSS"
    kind: Literal["nss"] = "nss"


class FirstDraft(Verifier):
    """Speculative decoding on the first draft, whose correction may hit another."""

    title = "Naive"
    kind: Literal["naive"] = "naive"


class SpecHub(Verifier):
    """The draft's likeliest token as a hub, and one other."""

    title, sampling = "SpecHub", "greedy"
    kind: Literal["spec-hub"] = "spec-hub"


class GreedyOptimal(Verifier):
    """The optimal verifier of greedy drafts."""

    title, sampling = "Greedy, optimal", "greedy"
    kind: Literal["greedy-optimal"] = "greedy-optimal"


class Synthetic(_Rule):
    """Keeps a drafted token with a set probability, whatever the models say: to time the loop alone."""

    title, timing_only = "Synthetic", True
    kind: Literal["synthetic"] = "synthetic"
    probability: float = Field(default=0.8, ge=0, le=1)


AcceptanceConfig = Annotated[
    Autoregressive
    | DraftOnly
    | Speculative
    | Fuzzy
    | FuzzyReducible
    | FuzzyOfficial
    | RecursiveRejection
    | RecursiveRejectionWithout
    | KSeq
    | NaiveSampling
    | FirstDraft
    | SpecHub
    | GreedyOptimal
    | Synthetic,
    Field(discriminator="kind"),
]


RULES = {kind: rule for kind, rule in members(AcceptanceConfig).items() if not rule.timing_only}
"""those that a user may choose"""
VERIFIERS: dict[str, type[Verifier]] = {kind: rule for kind, rule in RULES.items() if issubclass(rule, Verifier)}
"""those of several drafts per position"""
ACCEPTANCES = tuple(RULES)
BASELINES = tuple(kind for kind, rule in RULES.items() if rule.baseline)
LOSSLESS = tuple(kind for kind, rule in RULES.items() if rule.lossless)
