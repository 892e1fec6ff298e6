"""What a run is made of, as frozen values: nothing here computes, nothing here imports torch.

A method of the literature is a triple, *what is drafted* x *in which shape* x *what
is kept*; each of the three is a union of small models told apart by ``kind``. A new
plug-in adds one class to its union here and one implementation in its package.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from fsd_core.errors import InvalidSetting

DivergenceName = Literal[
    "kl", "reverse-kl", "js", "tv", "ag",
    "top-k-kl", "top-k-reverse-kl", "top-k-js", "top-k-tv", "top-k-ag",
    "random",
]  # fmt: skip
DIVERGENCES: tuple[str, ...] = get_args(DivergenceName)
_UPPER_BOUNDS = {"js": math.log(2), "tv": 1.0, "random": 1.0}


def divergence_upper_bound(name: str) -> float:
    """Largest value the divergence can take, in nats where it has a unit; ``inf`` if unbounded."""
    return _UPPER_BOUNDS.get(name.removeprefix("top-k-"), math.inf)


class Frozen(BaseModel):
    """Immutable, closed to unknown fields, and able to carry infinity through JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def as_json(self) -> dict[str, Any]:
        """The value as plain JSON data; infinity as a string, which reads back."""
        return json.loads(self.model_dump_json())

    @classmethod
    def checked(cls, **values: Any):
        """Builds the value; raises ``InvalidSetting`` with one sentence where pydantic would list its findings."""
        try:
            return cls(**values)
        except ValidationError as error:
            raise InvalidSetting(sentence(error)) from None


def sentence(error: ValidationError) -> str:
    """The first finding of a validation error, as a sentence."""
    first = error.errors()[0]
    cause = first.get("ctx", {}).get("error")
    if cause is not None:  # one of ours: already a sentence
        return str(cause)
    where = ".".join(str(part) for part in first["loc"] if not str(part).startswith("function-")) or "the setting"
    return f"{where}: {first['msg'].lower()}, got {first.get('input')!r}."


# --- what is drafted ---------------------------------------------------------------------------------------------


class DraftModelDrafter(Frozen):
    """The pair's draft model writes the proposal."""

    kind: Literal["draft-model"] = "draft-model"


class PromptLookupDrafter(Frozen):
    """Copies what followed the last n-gram where it stood before; needs no draft model."""

    kind: Literal["prompt-lookup"] = "prompt-lookup"
    max_ngram: int = Field(default=3, ge=1, le=8)


DrafterConfig = Annotated[DraftModelDrafter | PromptLookupDrafter, Field(discriminator="kind")]


# --- in which shape ----------------------------------------------------------------------------------------------


class ChainTopology(Frozen):
    """One candidate per position, ``length`` positions."""

    kind: Literal["chain"] = "chain"
    length: int = Field(default=5, ge=1, le=32)


TopologyConfig = ChainTopology


# --- what is kept ------------------------------------------------------------------------------------------------


class Autoregressive(Frozen):
    """The target alone, one token a forward: the baseline of every speed-up."""

    kind: Literal["autoregressive"] = "autoregressive"


class DraftOnly(Frozen):
    """The draft alone: the other end of the trade-off."""

    kind: Literal["draft-only"] = "draft-only"


class Speculative(Frozen):
    """Lossless speculative decoding."""

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


class _Thresholded(Frozen):
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

    kind: Literal["fsd"] = "fsd"


class FuzzyReducible(_Thresholded):
    """FSD as a verifier distribution: the same output law, never a lower acceptance. Our default."""

    kind: Literal["fsd-reducible"] = "fsd-reducible"
    guard: bool = Field(default=True, description="Leniency never keeps a token that the target's top-k/top-p removes.")


class FuzzyOfficial(Frozen):
    """What the authors' published program computes: greedy draft, `ag` on raw distributions."""

    kind: Literal["fsd-official"] = "fsd-official"
    threshold: float = 0.4

    @field_validator("threshold")
    @classmethod
    def _in_range(cls, value: float) -> float:
        _check_threshold(value, "ag")
        return value


AcceptanceConfig = Annotated[
    Autoregressive | DraftOnly | Speculative | Fuzzy | FuzzyReducible | FuzzyOfficial, Field(discriminator="kind")
]
BASELINES = ("autoregressive", "draft-only")
ACCEPTANCES = (*BASELINES, "speculative", "fsd", "fsd-reducible", "fsd-official")
LOSSLESS = ("autoregressive", "speculative")


class SamplingConfig(Frozen):
    """How a token is drawn from logits: temperature, then top-k, then top-p, as transformers orders them."""

    temperature: float = Field(default=0.0, ge=0, allow_inf_nan=False, description="0 is greedy.")
    top_k: int = Field(default=0, ge=0, description="0 is off.")
    top_p: float = Field(default=1.0, gt=0, le=1)

    @property
    def greedy(self) -> bool:
        return self.temperature == 0


class DecodingConfig(Frozen):
    """A decoding method with its parameters. Baselines have neither drafter nor topology."""

    acceptance: AcceptanceConfig = FuzzyReducible()
    drafter: DrafterConfig | None = DraftModelDrafter()
    topology: TopologyConfig | None = ChainTopology()
    sampling: SamplingConfig = SamplingConfig()
    max_new_tokens: int = Field(default=128, ge=1, le=8192)

    @model_validator(mode="before")
    @classmethod
    def _baselines_draft_nothing(cls, values: Any) -> Any:
        if isinstance(values, dict):
            acceptance = values.get("acceptance")
            kind = acceptance.get("kind") if isinstance(acceptance, dict) else getattr(acceptance, "kind", None)
            if kind in BASELINES:
                values = {**values, "drafter": None, "topology": None}
        return values

    @model_validator(mode="after")
    def _triple_is_possible(self):
        kind = self.acceptance.kind
        if kind in BASELINES:
            return self
        if self.drafter is None or self.topology is None:
            raise InvalidSetting(f"The rule '{kind}' judges drafted tokens: choose a drafter and a topology.")
        divergence = getattr(self.acceptance, "divergence", "ag" if kind == "fsd-official" else None)
        if self.drafter.kind == "prompt-lookup" and (divergence or "").removeprefix("top-k-") in ("reverse-kl", "ag"):
            raise InvalidSetting(
                f"The divergence '{divergence}' is infinite against a copied token, which has no distribution of its "
                "own, so nothing would ever be accepted: choose kl, js or tv, or the drafter 'draft-model'."
            )
        return self

    @property
    def threshold(self) -> float | None:
        return getattr(self.acceptance, "threshold", None)

    @property
    def divergence(self) -> str | None:
        return getattr(self.acceptance, "divergence", "ag" if self.acceptance.kind == "fsd-official" else None)

    @property
    def label(self) -> str:
        """A short name for legends, such as ``FSD reducible · js ≤ 0.1 · γ 5``."""
        names = {
            "autoregressive": "Target alone", "draft-only": "Draft alone", "speculative": "SD",
            "fsd": "FSD", "fsd-reducible": "FSD reducible", "fsd-official": "FSD official",
        }  # fmt: skip
        parts = [names[self.acceptance.kind]]
        if self.divergence:
            parts.append(
                f"{self.divergence} off" if self.threshold is None else f"{self.divergence} ≤ {self.threshold:g}"
            )
        if self.drafter and self.drafter.kind != "draft-model":
            parts.append(self.drafter.kind.replace("-", " "))
        if self.topology:
            parts.append(f"γ {self.topology.length}")
        if not self.sampling.greedy:
            parts.append(f"t {self.sampling.temperature:g}")
        return " · ".join(parts)


class SettingConfig(Frozen):
    """A model pair and how it decodes: what a team compares and approves. Addressed by its content."""

    pair: str = "bundled"
    decoding: DecodingConfig = DecodingConfig()

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return content_hash(self)


class RunConfig(Frozen):
    """One run: setting x task x prompts x seed, and the arithmetic it is done in."""

    setting: SettingConfig = SettingConfig()
    task: str = "arithmetic"
    limit: int = Field(default=50, ge=1)
    seed: int = Field(default=0, ge=0, lt=2**31)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"


class SweepConfig(Frozen):
    """Several settings of one pair on the same prompts, once per seed."""

    name: str = ""
    pair: str = "bundled"
    task: str = "arithmetic"
    limit: int = Field(default=50, ge=1)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**31)], ...] = (0,)
    decodings: tuple[DecodingConfig, ...] = Field(min_length=1)
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = "auto"
    device: str = "auto"

    def runs(self) -> list[RunConfig]:
        """The runs in the order they are done: all settings of a seed before the next seed; no run twice."""
        configs = (
            RunConfig(
                setting=SettingConfig(pair=self.pair, decoding=decoding),
                task=self.task, limit=self.limit, seed=seed, dtype=self.dtype, device=self.device,
            )
            for seed in self.seeds
            for decoding in self.decodings
        )  # fmt: skip
        return list(dict.fromkeys(configs))


def content_hash(value: Frozen) -> str:
    """First 16 hex digits of the SHA-256 of a value's canonical JSON."""
    canonical = json.dumps(value.as_json(), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:16]
