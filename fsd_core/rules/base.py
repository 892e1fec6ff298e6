"""Base class of acceptance rules: frozen settings that judge drafted tokens.

A rule holds its configuration, its user-facing descriptions and its arithmetic. The arithmetic only uses methods of its
input tensors, so a rule's file imports no torch and the pages can import it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal, NamedTuple, NoReturn, get_args

from pydantic import ConfigDict

from fsd_core.errors import NotApplicable
from fsd_core.frozen import Frozen, changed
from fsd_core.plugins import not_installed

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.distributions import ScoredDraft


DivergenceName = Literal[
    "kl", "reverse-kl", "js", "tv", "ag",
    "top-k-kl", "top-k-reverse-kl", "top-k-js", "top-k-tv", "top-k-ag",
    "random",
]  # fmt: skip
DIVERGENCES: tuple[str, ...] = get_args(DivergenceName)
TOP_K = "top-k-"
OVER_TOP_K = tuple(name for name in DIVERGENCES if name.startswith(TOP_K))
"""divergences over the target's k likeliest tokens only, which read that k"""
INFINITE_WITHOUT_Q = ("reverse-kl", "ag")
"""divergences that divide by q: infinite if q = 0 for a token that the target may write"""
_UPPER_BOUNDS = {"js": math.log(2), "tv": 1.0, "random": 1.0}
_TITLES = {
    "kl": "KL(q‖p) of draft against target",
    "reverse-kl": "KL(p‖q) of target against draft",
    "js": "Jensen–Shannon",
    "tv": "total variation",
    "ag": "arithmetic–geometric",
}


def divergence_upper_bound(name: str) -> float:
    """Return the largest value that the divergence can take, in nats if it has a unit; ``inf`` if unbounded."""
    return _UPPER_BOUNDS.get(name.removeprefix(TOP_K), math.inf)


def divergence_unit(name: str) -> str:
    """Return ``nats``, or nothing if the divergence is a plain number."""
    return "" if name.endswith(("tv", "random")) else "nats"


def divergence_title(name: str) -> str:
    """Return a divergence's name with its meaning."""
    if name == "random":
        return "random · a coin in place of a divergence"
    base = name.removeprefix(TOP_K)
    suffix = ", over the target's top k" if base != name else ""
    return f"{name} · {_TITLES[base]}{suffix}"


def divergence_fact(name: str) -> str:
    """Return the sentence that helps a user to choose a threshold for it."""
    if name == "random":
        return "The threshold is the chance that a token is kept: the control that shows what a divergence is worth."
    if name.endswith(("js", "ag")):
        return (
            "The published experiments' “JS” was computed as ag: their thresholds, such as 0.4, do not carry over to "
            "js (js 0.22 is about ag 0.31, js 0.42 about ag 1.75)."
        )
    return "The useful range shifts with pair and task: sweep it in an experiment."


CHAIN, TREE, SEVERAL, BEAMS = "chain", "dynamic-tree", "multi-draft", "beams"
"""draft structures: a chain, a tree, several chains, beams"""


@dataclass(frozen=True)
class AcceptanceResult:
    """Result per position, assuming that all earlier positions were accepted. All tensors but one are [B,R].

    ``accepted``: whether the drafted token is accepted. ``strict``: whether lossless speculative decoding would accept
    it with the same uniform. ``divergence``: the rule's own, or Jensen-Shannon if it has none. ``weight``: what a rule
    that judges positions together passes to its correction. ``distribution``, [B,R,V]: what a rule of the general form
    writes from; its correction reuses it.
    """

    accepted: Tensor
    strict: Tensor
    divergence: Tensor
    weight: Tensor | None = None
    distribution: Tensor | None = None

    def at(self, position: Tensor) -> AcceptanceResult:
        """Return one position of each row of the batch. ``position``: int64 [B] → R = 1"""
        index = position[:, None]
        weight = None if self.weight is None else self.weight.gather(1, index)
        distribution = None if self.distribution is None else self.distribution.take_along_dim(index[..., None], 1)
        return AcceptanceResult(
            self.accepted.gather(1, index),
            self.strict.gather(1, index),
            self.divergence.gather(1, index),
            weight,
            distribution,
        )


@dataclass(frozen=True)
class Knob:
    """The one number that trades quality for speed."""

    field: str
    """name of the rule's field"""
    grid: tuple[float, ...]
    """default values of a sweep, which show the trade-off"""
    strict: float | None = None
    """the value that ``off`` stands for: the rule is then lossless speculative decoding"""
    is_off: bool = True
    """whether such a value exists"""
    rising: bool = True
    """whether a larger value is more lenient; otherwise a smaller one is"""
    monotone: bool = True
    """whether a more lenient value never accepts less at a position"""

    def by_leniency(self, values: Iterable[float]) -> list[float]:
        """Return the values, strictest first."""
        return sorted(values, reverse=not self.rising)


class Truncation(NamedTuple):
    """Sampling options that restrict the target to the tokens that a rule can accept."""

    top_k: int = 0
    """0 is off"""
    min_p: float = 0.0
    """0 is off"""


class Rule(Frozen):
    """An acceptance rule, or a baseline, which drafts nothing.

    A rule for single drafts implements ``judge`` and ``correction``. It is exact for drafted tokens that were sampled
    independently from ``rows.draft`` (a point mass included).
    """

    title: ClassVar[str]
    """name in labels, tables and plots"""
    long_title: ClassVar[str] = ""
    """name in menus; if empty, the title"""
    explanation: ClassVar[str]
    """one sentence about what it does"""
    note: ClassVar[str] = ""
    """anything else that a user must know to choose it"""
    lossless: ClassVar[bool] = False
    """whether the output has the target's distribution for all parameter values"""
    baseline: ClassVar[bool] = False
    """whether a single model writes the text"""
    timing_only: ClassVar[bool] = False
    """whether its texts are meaningless, so that no run may use it"""
    by_endpoint: ClassVar[bool] = False
    """whether a running engine writes the texts, so that an endpoint is chosen and not a rule"""
    logged: ClassVar[bool] = False
    """whether its figures were measured elsewhere, so that nothing here can run or verify it"""
    shapes: ClassVar[tuple[str, ...]] = (CHAIN, TREE)
    """draft structures that it judges"""
    drafts: ClassVar[int | None] = None
    """required number of drafts per position; ``None`` allows any number"""
    knob: ClassVar[Knob | None] = None
    writes_beams: ClassVar[bool] = False
    """whether it writes several texts at once and answers with the best, which needs a temperature above 0"""
    exact_for: ClassVar[str] = ""
    """kind of the rule whose distribution it keeps exactly, if that is not the target's own sampling"""
    symbol: ClassVar[str] = "circle"
    """plotly marker in figures"""
    colour: ClassVar[str | None] = None
    """colour in figures, as #rrggbb; ``None`` takes the next one of the palette"""
    judges_bonus: ClassVar[bool] = False
    """Whether the token after a fully accepted draft is drafted and judged like the others. Otherwise it comes from the
    target, which makes a lossy rule's output depend on the draft length."""
    greedy_draft: ClassVar[bool] = False
    """whether the draft proposes its argmax, whatever the sampling settings"""
    needs_distribution: ClassVar[bool] = False
    """whether it reads the draft's full distribution, which copied tokens do not have"""
    judges_together: ClassVar[bool] = False
    """whether its judgement of a position depends on other positions of the draft"""
    greedy_note: ClassVar[str] = ""
    """its behaviour at temperature 0, if that differs from sampling"""

    kind: str
    """name in settings and on the command line"""

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        """Judge drafted tokens.

        ``uniforms``: [B,R] in [0,1) for the acceptance tests; ``noise``: [B,R] for the ``random`` divergence.
        """
        self.refuse()

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        """Return the weights from which the recovered token is sampled after a rejection.

        ``row``: the rejected position alone, R = 1. ``result``: the result of :meth:`judge` for it, [B,1]. Returns
        [B,1,V], non-negative, with a positive sum.
        """
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raise ``InvalidSetting`` that says what the rule cannot do."""
        raise NotApplicable(f"'{self.kind}' judges no single drafts, so it has no acceptance test.")

    @classmethod
    def can_be_off(cls) -> bool:
        """Whether its knob has a value at which it is lossless speculative decoding."""
        return cls.knob is not None and cls.knob.is_off

    @property
    def bonus_is_judged(self) -> bool:
        """``judges_bonus``, unless a field of the rule overrides it."""
        return self.judges_bonus

    @property
    def is_exact(self) -> bool:
        """Whether the output has the target's distribution: ``lossless``, unless a field of the rule decides."""
        return self.lossless

    @property
    def samples_target(self) -> bool:
        """Whether the target's own tokens are sampled from its raw distribution even under greedy settings."""
        return False

    @property
    def truncation(self) -> Truncation | None:
        """Sampling options that restrict the target alone to the tokens that the rule can accept from any draft.

        ``None`` if no sampling options do that.
        """
        return Truncation()

    @property
    def knob_value(self) -> float | None:
        """Value of its knob; ``None`` if the knob is off or the rule has none."""
        return getattr(self, self.knob.field) if self.knob else None

    def without_knob(self) -> Rule:
        """Return the rule with its knob at 0, which rules that differ only in the knob share."""
        return self if self.knob is None else self.model_copy(update={self.knob.field: 0.0})

    def label_parts(self, knob: str) -> list[str]:
        """Return the parts of its label after the title. ``knob``: its value as text, such as ``≤ 0.1``."""
        if self.knob is None:
            return changed(self)
        return [
            f"{self.knob.field.replace('_', ' ')} {knob.removeprefix('≤ ')}".strip(),
            *changed(self, self.knob.field),
        ]


class MissingRule(Rule):
    """A rule of a package that is not installed. Its runs can be read and compared, but it cannot be run."""

    model_config = ConfigDict(extra="allow")
    title, shapes, symbol = "Missing rule", (CHAIN, TREE, SEVERAL), "x"
    explanation = "A rule of a package that is not installed here."
    kind: str

    def label_parts(self, knob: str) -> list[str]:
        return [self.kind]

    def refuse(self) -> NoReturn:
        raise not_installed("rule", self.kind)


def passes(verifier_of_token: Tensor, draft_of_token: Tensor, uniforms: Tensor) -> Tensor:
    """Return whether u < π(x)/q(x), computed without a division. [B,R] each → bool [B,R]

    The probability is min(1, π(x)/q(x)): u lies in [0,1), so π ≥ q > 0 always passes and π = 0 never does.
    """
    return uniforms * draft_of_token < verifier_of_token  # float64, like the uniforms


def residual(verifier: Tensor, draft: Tensor) -> Tensor:
    """Return (π−q)₊, or π itself if rounding makes that all zero. [B,R,V], [B,R,V] → [B,R,V]"""
    difference = (verifier - draft).clamp_min(0)
    return difference.where(difference.sum(-1, keepdim=True) > 0, verifier)


def strictly(rows: ScoredDraft, uniforms: Tensor) -> Tensor:
    """Return whether lossless speculative decoding accepts each drafted token: u < p(x)/q(x). [B,R] → bool [B,R]"""
    return passes(rows.of_token(rows.target), rows.of_token(rows.draft), uniforms)
