"""Configuration of measurements: settings, runs, and the baselines of a comparison."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import product
from random import Random
from types import MappingProxyType
from typing import Annotated, Literal

from pydantic import Field, field_validator, model_validator

from fsd_core.config.decoding_config import DecodingConfig
from fsd_core.config.drafting import BeamsTopology, ChainTopology, DrafterConfig, TopologyConfig
from fsd_core.errors import IncompatibleOptions, NotApplicable, NotGiven
from fsd_core.frozen import Frozen, content_hash, option
from fsd_core.rules import (
    TREE,
    Autoregressive,
    BeamSampling,
    Block,
    DraftOnly,
    Rule,
    Speculative,
    SpeculativeBeams,
    Verifier,
)


class SettingConfig(Frozen):
    """A model pair with its decoding method: what a team compares and approves. Addressed by its content."""

    pair: str = option("bundled", "Model pair", "Model pair; `pairs` lists them")
    decoding: DecodingConfig = DecodingConfig()
    identity: str = Field(default="", exclude_if=lambda identity: not identity)
    """What the models are where some are in folders of one's own: the id rests on it in place of the pair's name.
    Settings from before it was known keep their ids."""

    @field_validator("decoding")
    @classmethod
    def _measures_texts(cls, decoding: DecodingConfig) -> DecodingConfig:
        if decoding.acceptance.timing_only:
            raise NotApplicable(
                f"The rule '{decoding.acceptance.kind}' writes texts that mean nothing, so no run may use it: it times "
                "the loop, in `bench --synthetic`."
            )
        return decoding

    @property
    def id(self) -> str:
        """First 16 hex digits of the SHA-256 of the canonical JSON."""
        return content_hash(self.at(""))

    def at(self, pair: str) -> SettingConfig:
        """Return the setting with another name of its pair, if it has an identity."""
        return self.model_copy(update={"pair": pair}) if self.identity else self


LONGEST_PROMPT = 1_000_000
"""in characters; the model's context is checked when the prompt is tokenized"""
MOST_ROWS = 256
IN_FLIGHT = 64
"""default of how many prompts may be open at an engine where they arrive at a rate"""
_MOST_A_SECOND = 1000
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
Seed = Annotated[int, Field(ge=0, lt=2**31)]


def _rows() -> int:
    """Return the field of the batch size. Larger batches give more tokens per second, but no time per text."""
    return option(1, "Batch size", "Texts decoded in one batch; 1 measures each alone", ge=1, le=MOST_ROWS)


def _check_rows(rows: int, decoding: DecodingConfig) -> None:
    if rows > 1 and isinstance(decoding.acceptance, Verifier):
        raise IncompatibleOptions(
            f"The rule '{decoding.acceptance.kind}' verifies several drafts of one text at a time, and the batch size "
            f"is {rows}: choose a batch of 1, or a rule for one draft."
        )
    if rows > 1 and decoding.topology is not None and decoding.topology.kind == TREE:
        raise IncompatibleOptions(
            f"A tree is drafted for one text at a time, and the batch size is {rows}: choose a batch of 1, or a chain."
        )
    if rows > 1 and decoding.drafter is not None and decoding.drafter.kind != "draft-model":
        raise IncompatibleOptions(
            f"The drafter '{decoding.drafter.kind}' drafts for one text at a time, and the batch size is {rows}: "
            "choose a batch of 1, or the drafter draft-model."
        )


def _check_rate(rate: float, rows: int, decoding: DecodingConfig) -> None:
    if rate and not decoding.acceptance.by_endpoint:
        raise IncompatibleOptions(
            f"Prompts arrive at a rate at running engines alone, and '{decoding.label}' is decoded here: leave one of "
            "them out, or measure both under batch sizes."
        )
    if rate and rows < 2:
        raise IncompatibleOptions(
            "Where prompts arrive at a rate, several are open at once, and the batch size is 1: expected 2 or more, "
            f"such as {IN_FLIGHT}."
        )


class RunConfig(Frozen):
    """One run: setting x task x prompts x seed, with its dtype and device."""

    setting: SettingConfig = SettingConfig()
    task: str = option("arithmetic", "Task", "The prompts, and how they are scored")
    limit: int = option(50, "Prompts", "How many of the task's prompts, from the first", ge=1)
    seed: int = option(0, "Seed", "Seed of all randomness", plural="Seeds", ge=0, lt=2**31)
    dtype: Dtype = option("auto", "dtype", "dtype of the models")
    device: str = option("auto", "Device", "auto, cpu, cuda or cuda:N (FSD_DEVICE, or auto)")
    batch: int = _rows()
    first: int = option(0, "First prompt", "So many of the task's prompts are passed over", before=0, ge=0)
    shuffled: bool = option(
        False, "Shuffled", "Take the task's prompts in an order that is drawn by the seed", before=False
    )
    whole_groups: bool = option(
        False, "Groups drawn", "Groups of prompts are drawn as wholes, each as likely as a prompt alone", before=False
    )
    again: bool = option(False, "Timed again", "A second time on prompts that are done, for the times", before=False)
    rate: float = option(
        0.0, "Request rate", "Prompts that arrive at an engine in a second; at 0 the next is asked when one ends",
        before=0.0, ge=0, le=_MOST_A_SECOND,
    )  # fmt: skip

    @model_validator(mode="after")
    def _side_by_side(self):
        _check_rows(self.batch, self.setting.decoding)
        _check_rate(self.rate, self.batch, self.setting.decoding)
        return self

    def at(self, pair: str) -> RunConfig:
        """Return the run as :meth:`SettingConfig.at` has its setting."""
        return self.model_copy(update={"setting": self.setting.at(pair)})

    @property
    def load(self) -> tuple[int, float]:
        """Batch size and request rate: runs must share both for their speeds to be compared."""
        return self.batch, self.rate

    @property
    def load_text(self) -> str:
        """The load in words, such as ``4 at once`` or ``2 a second``."""
        return f"{self.rate:g} a second" if self.rate else f"{self.batch} at once"

    def positions(
        self, size: int, repeats: Container[int] = (), groups: Mapping[int, str] = MappingProxyType({})
    ) -> list[int]:
        """Return the indices of the used prompts out of ``size``, in order, without those in ``repeats``.

        The same seed draws the same order. Where it is drawn, prompts of one group (``groups``: by index) stand
        together: at a place of the group's own, or, in runs from before ``whole_groups``, at that of its first prompt,
        so that large groups came early.
        """
        order: Sequence[int] = range(size)
        if self.shuffled and self.whole_groups:
            members: dict[int | str, list[int]] = {}
            for i in order:
                members.setdefault(groups.get(i, i), []).append(i)
            order = [i for unit in Random(self.seed).sample(list(members), len(members)) for i in members[unit]]
        elif self.shuffled:
            order = Random(self.seed).sample(order, size)
            first: dict[str, int] = {}
            place = {i: first.setdefault(groups[i], at) if i in groups else at for at, i in enumerate(order)}
            order = sorted(order, key=place.__getitem__)
        return [i for i in order if i not in repeats][self.first : self.first + self.limit]


class SweepConfig(Frozen):
    """Several settings of one pair on the same prompts, once per seed."""

    name: str = ""
    pair: str = "bundled"
    task: str = "arithmetic"
    limit: int = Field(default=50, ge=1)
    seeds: tuple[Seed, ...] = (0,)
    decodings: tuple[DecodingConfig, ...] = Field(min_length=1)
    dtype: Dtype = "auto"
    device: str = "auto"
    batch: int = _rows()
    batches: tuple[Annotated[int, Field(ge=1, le=MOST_ROWS)], ...] = option(
        (), "Batch sizes", "Several, in place of one: each setting is measured with each", before=()
    )
    rates: tuple[Annotated[float, Field(gt=0, le=_MOST_A_SECOND)], ...] = option(
        (), "Request rates", "Each engine is measured with each; the batch size is how many may be open at once",
        before=(),
    )  # fmt: skip
    identity: str = Field(default="", exclude_if=lambda identity: not identity)

    @model_validator(mode="after")
    def _side_by_side(self):
        for batch, rate, decoding in product(self.batches or (self.batch,), self.rates or (0.0,), self.decodings):
            _check_rows(batch, decoding)
            _check_rate(rate, batch, decoding)
        if self.rates and self.batches:
            raise NotGiven("Where prompts arrive at a rate, the batch size is how many may be open at once: give one.")
        return self

    def setting_of(self, decoding: DecodingConfig) -> SettingConfig:
        """Return the setting that a decoding is with the pair."""
        return SettingConfig(pair=self.pair, decoding=decoding, identity=self.identity)

    def runs(self) -> list[RunConfig]:
        """Return the runs in execution order: all settings of a seed and a batch size before the next; no run twice."""
        configs = (
            RunConfig(
                setting=self.setting_of(decoding), task=self.task, limit=self.limit, seed=seed, dtype=self.dtype,
                device=self.device, batch=batch, rate=rate,
            )
            for seed in self.seeds
            for rate in self.rates or (0.0,)
            for batch in self.batches or (self.batch,)
            for decoding in self.decodings
        )  # fmt: skip
        return list(dict.fromkeys(configs))


USUAL_BASELINES = (Autoregressive().kind, Speculative().kind)
"""kinds of the rules that a setting is compared with, the target alone first"""


def with_baselines(decodings: Sequence[DecodingConfig], *, everything: bool = False) -> list[DecodingConfig]:
    """Return the settings, preceded by the target alone and by exact SD.

    Exact SD runs with each drafter and each topology of the settings; a chain replaces several drafts. ``everything``:
    all of :func:`baselines_of` come first.
    """
    baselines = baselines_of(decodings)
    if not everything:
        baselines = [
            decoding
            for decoding in baselines
            if decoding.acceptance.kind in (*USUAL_BASELINES, BeamSampling().kind)
            and decoding.sampling == decodings[0].sampling
        ]
    return list(dict.fromkeys([*baselines, *decodings]))


def baselines_of(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the baselines that a comparison at matched points needs.

    They are the target alone, exact SD with each drafter and topology, block verification of each chain whose drafter
    has a distribution, and the draft alone. A rule that truncates the target adds the target alone with the same
    truncation, if sampling options express it.
    """
    first = decodings[0]
    shapes = _shapes(decodings)

    def drafted(rule: Rule, drafter: DrafterConfig, topology: TopologyConfig) -> DecodingConfig:
        return DecodingConfig(acceptance=rule, drafter=drafter, topology=topology, **first.shared)

    exact = [drafted(Speculative(), *shape) for shape in shapes]
    block = [
        drafted(Block(), drafter, topology)
        for drafter, topology in shapes
        if topology.judged_as in Block.shapes and drafter.has_distribution
    ]
    single_models = [DecodingConfig(acceptance=rule, **first.shared) for rule in (Autoregressive(), DraftOnly())]
    alone = [single_models[0], *truncated(decodings), *beam_samplings(decodings)]
    return list(dict.fromkeys([*alone, *exact, *block, single_models[1]]))


def beam_samplings(decodings: Iterable[DecodingConfig]) -> list[DecodingConfig]:
    """Return beam sampling with as many beams as each setting of speculative beams may have, which is their law."""
    return list(
        dict.fromkeys(
            DecodingConfig(
                acceptance=BeamSampling(beams=decoding.acceptance.widest(decoding.topology.drafts)), **decoding.shared
            )
            for decoding in decodings
            if isinstance(decoding.acceptance, SpeculativeBeams) and isinstance(decoding.topology, BeamsTopology)
        )
    )


def with_exact_baselines(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return the candidates of a calibration: the settings, preceded by exact SD and block verification of their
    drafts."""
    exact = (
        decoding
        for decoding in baselines_of(decodings)
        if decoding.acceptance.lossless and not decoding.acceptance.baseline
    )
    return list(dict.fromkeys([*exact, *decodings]))


def truncated(decodings: Iterable[DecodingConfig]) -> list[DecodingConfig]:
    """Return the target alone with the truncation of each rule that truncates, if sampling options express it.

    At temperature 0 the target alone already equals that.
    """
    baselines: dict[DecodingConfig, None] = {}
    for decoding in decodings:
        confined = decoding.sampling.confined(decoding.acceptance.truncation)
        if confined not in (None, decoding.sampling):
            baselines[DecodingConfig(**decoding.shared | {"acceptance": Autoregressive(), "sampling": confined})] = None
    return list(baselines)


def missing(decodings: Sequence[DecodingConfig]) -> list[DecodingConfig]:
    """Return those of :func:`baselines_of` that are not among the settings."""
    return [decoding for decoding in baselines_of(decodings) if decoding not in decodings] if decodings else []


def _shapes(decodings: Iterable[DecodingConfig]) -> list[tuple[DrafterConfig, TopologyConfig]]:
    """Return every drafter with every topology among the settings; a chain replaces several drafts and beams."""
    return list(
        dict.fromkeys(
            (
                decoding.drafter,
                decoding.topology
                if decoding.topology.judged_as in Speculative.shapes
                else ChainTopology(length=decoding.topology.length),
            )
            for decoding in decodings
            if decoding.drafter is not None and decoding.topology is not None
        )
    )
