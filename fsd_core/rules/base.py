"""What an acceptance rule is: frozen values that judge rows of distributions.

A rule holds its configuration, what a person must know to choose it, and its arithmetic. The arithmetic is written in
methods of the tensors it is given, so that a rule's file imports no torch and the pages can read it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, NamedTuple, NoReturn

from pydantic import ConfigDict

from fsd_core.errors import InvalidSetting
from fsd_core.frozen import Frozen, changed
from fsd_core.plugins import not_installed

if TYPE_CHECKING:
    from torch import Tensor

    from fsd_core.ops.scored_draft import ScoredDraft

CHAIN, TREE, SEVERAL = "chain", "dynamic-tree", "multi-draft"
"""the structures of a draft: a chain, a tree, several chains"""


@dataclass(frozen=True)
class AcceptanceResult:
    """The judgement of each position, as if all before it had been accepted. All tensors but one are [B,R].

    ``accepted``: whether the drafted token is kept. ``strict``: whether lossless speculative decoding would have
    kept it with the same uniform. ``divergence``: the rule's own, or Jensen-Shannon where it has none. ``weight``: what
    a rule that judges positions together hands on to its correction. ``distribution``, [B,R,V]: what a rule of the
    general form writes from, for its correction.
    """

    accepted: Tensor
    strict: Tensor
    divergence: Tensor
    weight: Tensor | None = None
    distribution: Tensor | None = None

    def at(self, position: Tensor) -> AcceptanceResult:
        """One position of each row of the batch. ``position``: int64 [B] → R = 1"""
        there = position[:, None]
        weight = None if self.weight is None else self.weight.gather(1, there)
        known = None if self.distribution is None else self.distribution.take_along_dim(there[..., None], 1)
        return AcceptanceResult(
            self.accepted.gather(1, there),
            self.strict.gather(1, there),
            self.divergence.gather(1, there),
            weight,
            known,
        )


@dataclass(frozen=True)
class Knob:
    """The one number that trades quality for speed."""

    field: str
    """the rule's field that holds it"""
    grid: tuple[float, ...]
    """values that show the trade-off, where nobody names any"""
    strict: float | None = None
    """the value at which the rule is lossless speculative decoding, which is written ``off``"""
    is_off: bool = True
    """whether there is such a value"""
    rising: bool = True
    """whether a larger value forgives more; otherwise a smaller one does"""
    monotone: bool = True
    """whether forgiving more never accepts less at a position"""

    def by_leniency(self, values: Iterable[float]) -> list[float]:
        """The values, the strictest first."""
        return sorted(values, reverse=not self.rising)


class Truncation(NamedTuple):
    """Options of sampling that confine the target to the tokens of which a rule keeps drafted ones."""

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
    """its name in labels, tables and plots"""
    long_title: ClassVar[str] = ""
    """its name where it is chosen; the title where there is none"""
    explanation: ClassVar[str]
    """what it does, in one sentence"""
    note: ClassVar[str] = ""
    """what else a user must know to choose it"""
    lossless: ClassVar[bool] = False
    """whether the output has the target's distribution whatever the parameters are"""
    baseline: ClassVar[bool] = False
    """whether one model writes alone"""
    timing_only: ClassVar[bool] = False
    """whether its texts mean nothing, so that no run may use it"""
    shapes: ClassVar[tuple[str, ...]] = (CHAIN, TREE)
    """the structures of drafts that it judges"""
    drafts: ClassVar[int | None] = None
    """the number of drafts per position that it needs; ``None`` if any number will do"""
    knob: ClassVar[Knob | None] = None
    symbol: ClassVar[str] = "circle"
    """its marker in figures, by plotly's name"""
    colour: ClassVar[str | None] = None
    """its colour in figures, as #rrggbb; ``None`` takes the next of the palette"""
    judges_bonus: ClassVar[bool] = False
    """Whether the token after a fully accepted draft is drafted and judged like the others. Without it that token
    comes from the target, which makes a lossy rule's output depend on the draft length."""
    greedy_draft: ClassVar[bool] = False
    """whether the draft proposes its likeliest token whatever the sampling settings"""
    needs_distribution: ClassVar[bool] = False
    """whether it reads what else the draft might have written, which copied tokens do not tell"""
    judges_together: ClassVar[bool] = False
    """whether its judgement of a position depends on other positions of the draft"""
    greedy_note: ClassVar[str] = ""
    """what it does at temperature 0, where that is not what it does elsewhere"""

    kind: str
    """its name in settings and on the command line"""

    def judge(self, rows: ScoredDraft, uniforms: Tensor, noise: Tensor) -> AcceptanceResult:
        """Judges drafted tokens.

        ``uniforms``: [B,R] in [0,1) for the acceptance tests; ``noise``: [B,R] for the ``random`` divergence.
        """
        self.refuse()

    def correction(self, row: ScoredDraft, result: AcceptanceResult) -> Tensor:
        """Weights from which the recovered token is drawn, in place of a rejected one.

        ``row``: the rejected position alone, R = 1. ``result``: what :meth:`judge` said of it, [B,1]. Returns [B,1,V],
        not negative, with a positive sum.
        """
        self.refuse()

    def refuse(self) -> NoReturn:
        """Raises ``InvalidSetting`` with what the rule does not do."""
        raise InvalidSetting(f"'{self.kind}' judges no single drafts, so it has no acceptance test.")

    @classmethod
    def can_be_off(cls) -> bool:
        """Whether its knob has a value at which it is lossless speculative decoding."""
        return cls.knob is not None and cls.knob.is_off

    @property
    def bonus_is_judged(self) -> bool:
        """``judges_bonus``, where no field of the rule says otherwise."""
        return self.judges_bonus

    @property
    def samples_target(self) -> bool:
        """Whether tokens are drawn from the raw target, where the target writes them, though nothing is sampled."""
        return False

    @property
    def truncation(self) -> Truncation | None:
        """What confines the target, sampled alone, to the tokens of which the rule keeps drafted ones, whatever the
        draft is. ``None`` if no option of sampling does."""
        return Truncation()

    @property
    def knob_value(self) -> float | None:
        """The value of its knob; ``None`` if the knob is off or the rule has none."""
        return getattr(self, self.knob.field) if self.knob else None

    def words(self, knob: str) -> list[str]:
        """The parts of its label behind the title. ``knob``: its value in words, such as ``≤ 0.1``."""
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

    def words(self, knob: str) -> list[str]:
        return [self.kind]

    def refuse(self) -> NoReturn:
        raise not_installed("rule", self.kind)


def passes(verifier_of_token: Tensor, draft_of_token: Tensor, uniforms: Tensor) -> Tensor:
    """Whether u < π(x)/q(x), written without a division. [B,R] each → bool [B,R]

    Probability min(1, π(x)/q(x)): u lies in [0,1), so π ≥ q > 0 always passes and π = 0 never does.
    """
    return uniforms * draft_of_token < verifier_of_token  # float64, as the uniforms are


def residual(verifier: Tensor, draft: Tensor) -> Tensor:
    """(π−q)₊, or π itself where rounding makes that all zero. [B,R,V], [B,R,V] → [B,R,V]"""
    rest = (verifier - draft).clamp_min(0)
    return rest.where(rest.sum(-1, keepdim=True) > 0, verifier)


def strictly(rows: ScoredDraft, uniforms: Tensor) -> Tensor:
    """Whether lossless speculative decoding keeps each drafted token: u < p(x)/q(x). [B,R] → bool [B,R]"""
    return passes(rows.of_token(rows.target), rows.of_token(rows.draft), uniforms)
