"""Plans: of what a model is trained, how much, and for how long.

A field with a help text is an option of the command that trains, and all fields are stored with the model. Torch is not
imported, because commands are made of plans.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from fsd_core.models.model_pairs import DRAFTED, SMOLLM2
from fsd_core.models.sources import HubModel
from fsd_plugins.training.generators import DRAFT_STYLE, TARGET_STYLE, Style

TARGETS: dict[str, Path | HubModel] = {DRAFTED: SMOLLM2}
"""models that drafts and adapters are trained for"""


def asked(help: str, default: Any = MISSING, *, low: int = 1, high: int | None = None, name: str = "") -> Any:
    """Return a field that is an option, by default of the field's name, for whole numbers from ``low`` to ``high``.
    ``{like}`` in its help becomes the model whose value it has otherwise."""
    return field(default=default, metadata={"help": help, "low": low, "high": high, "name": name})


@dataclass(frozen=True)
class Schedule:
    """``steps`` batches. Rates rise over 50 steps, stay until half of the steps, then fall linearly to zero."""

    steps: int = asked("Batches. [default: as the {like}]")
    batch: int = asked("Texts of a batch. [default: as the shipped one]", 64)
    adamw_lr: float = 3e-3
    muon_lr: float | None = 0.02
    """rate of matrices between hidden states; ``None``: AdamW takes these too"""
    every: int = 250
    """steps between two evaluations, each followed by a checkpoint"""

    def factor(self, step: int) -> float:
        """Return the share of the peak rates at a step."""
        return min(1.0, (step + 1) / 50, (self.steps - step) / (0.5 * self.steps))


@dataclass(frozen=True)
class Plan:
    """What every training has."""

    schedule: Schedule

    @classmethod
    def options(cls) -> dict[str, Field[Any]]:
        """Return the fields that are options, by the options' names."""
        asked_for = [one for one in (*fields(Schedule), *fields(cls)) if "help" in one.metadata]
        return {one.metadata["name"] or one.name: one for one in asked_for}

    def changed(self, **given: Any) -> Self:
        """Return the plan with the values of options that are not ``None``."""
        values = {name: value for name, value in given.items() if value is not None}
        timed = {name: values.pop(name) for name in ("steps", "batch") if name in values}
        own = {self.options()[name].name: value for name, value in values.items()}
        return replace(self, schedule=replace(self.schedule, **timed), **own)


@dataclass(frozen=True)
class TextsPlan(Plan):
    """What is learnt from texts that a target writes and reads."""

    texts: int = asked("Texts that the target writes. [default: as the {like}]", 2_000)
    longest_answer: int = 160
    existing: int = asked("Texts that it reads. [default: as the {like}]", 0, low=0)
    """texts that the target reads, in addition to those that it writes"""
    own_prompts: int = asked(
        "Of the texts, answers to prompts that the target writes itself. [default: none, and all of a Llama of your "
        "own]",
        0,
        low=0,
    )
    side_by_side: int = 96
    """texts that are written at once"""
    head_tokens: int | None = None
    """tokens that the head covers, at most; ``None``: all"""
    anew: bool = False
    """whether the target reads each batch anew (``target_texts.reread``); existing texts are then left out"""


@dataclass(frozen=True)
class DraftPlan(TextsPlan):
    """Size of the draft and of its training data, and its schedule."""

    layers: tuple[int, ...] = (0, 1, -1)
    """layers of the target that initialise the draft"""
    longest_read: int = 200
    """answer tokens of the existing texts"""
    problems: int = asked("Texts it writes with each adapter. [default: as the {like}]", 768)
    """texts that the target writes with each shipped adapter for it, to problems like those the adapter learnt from"""


DRAFT_PLAN = DraftPlan(Schedule(steps=1100, batch=16, every=100), existing=6_000, head_tokens=16_384)


@dataclass(frozen=True)
class HeadPlan(TextsPlan):
    """Size of a head, its training data and its schedule."""

    generation: Literal[1, 3] = asked("1: EAGLE's; 3: EAGLE-3's. [default: as the {like}]", 3, high=3)
    steps: int = asked("Steps of EAGLE-3's training-time test, 1 to 8; 1 is none.", 1, high=8, name="test_steps")
    """one more than the number of its own states that it learns to go on from: 1 is no training-time test"""

    @property
    def weights(self) -> dict[str, float]:
        """Weights of the loss."""
        first = self.generation == 1
        return {"states_weight": float(first), "distribution_weight": 0.1 if first else 1.0}

    @property
    def noise(self) -> float:
        """Width of the noise on the training states."""
        return 0.2 if self.generation == 1 else 0.0


HEAD_PLANS = {
    DRAFTED: HeadPlan(
        Schedule(steps=600, batch=16, every=100),
        texts=2_048,
        existing=6_000,
        side_by_side=128,
        head_tokens=16_384,
        steps=3,
    ),
    "bundled": HeadPlan(Schedule(steps=800, batch=32, every=200), texts=3_840, side_by_side=128, generation=1),
}


@dataclass(frozen=True)
class AdapterPlan(Plan):
    """Size of the adapter, and its schedule."""

    rank: int = 16
    mix: Mapping[str, float] = field(default_factory=lambda: {"short": 0.65, "arithmetic": 0.15, "gsm8k": 0.2})
    """shares of the problems: generated with one or two steps, generated with more, from GSM8K's training split"""


ADAPTER_PLAN = AdapterPlan(Schedule(steps=280, batch=16, adamw_lr=1e-3, muon_lr=None, every=50))


@dataclass(frozen=True)
class BundledPlan(Plan):
    """Size of one model, its training schedule and the style of its corpus."""

    hidden: int
    layers: int
    intermediate: int
    heads: int
    kv_heads: int
    style: Style


BUNDLED_PLANS = {  # the draft first: it takes minutes and can be tested while the target trains
    "draft": BundledPlan(
        Schedule(steps=650), hidden=96, layers=2, intermediate=256, heads=4, kv_heads=4, style=DRAFT_STYLE
    ),
    "target": BundledPlan(
        Schedule(steps=1250), hidden=160, layers=12, intermediate=432, heads=4, kv_heads=2, style=TARGET_STYLE
    ),
}

Parts = Literal["softmax", "local", "global", "all"]
"""what learns of grouped linear attention: the own group, earlier groups too, the convolution too. ``softmax`` is the
bundled target's attention, to compare with."""


@dataclass(frozen=True)
class LinearPlan(BundledPlan):
    """The bundled target's plan with the sizes of its attention, and which parts of it learn."""

    group: int = 16
    taps: int = 16
    parts: Parts = "all"
    held_at_zero: ClassVar[dict[Parts, tuple[str, ...]]] = {
        "local": ("past_scale", "kernel"),
        "global": ("kernel",),
        "all": (),
    }
    """parameters that do not learn, by what does"""


LINEAR_PLAN = LinearPlan(**vars(BUNDLED_PLANS["target"]))
