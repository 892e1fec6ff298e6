"""Why a setting takes longer than its baseline: which part does it, and the acceptance that would break even."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.cells import ratio_mixed, shared
from fsd_core.analysis.series import metrics
from fsd_core.conditions import MIXED_MARK, mixed_sentence
from fsd_core.statistics.ratios import quotient_interval

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsd_core.storage.records import PromptCounts, Prompts, RunView

LONGER, DRAFT, VERIFICATION, ACCEPTANCE = (
    "longer answers", "the draft is too dear", "the verification is too dear", "too little is accepted"
)  # fmt: skip


class Slowdown(NamedTuple):
    """A run's time per answer beside its baseline's: ``length`` times the costs of a round, over its tokens."""

    time: float
    """ratio of seconds per answer to the baseline's; above 1"""
    length: float
    """ratio of tokens per answer"""
    tokens: float
    """per round"""
    draft: float
    """share of a round's time that goes to drafting"""
    verification: float
    """what is left of a round's time, over the same of the baseline's rounds"""
    parts: tuple[str, ...]
    """what would end the slowdown if it were as at the baseline; acceptance where nothing else would"""
    break_even: float
    """tokens per round at which both would take as long per answer"""
    most: int | None
    """tokens that a round can bring; ``None`` where its shape does not say"""
    acceptance: float | None
    """of each drafted token that is judged, to break even on a chain; ``None`` where none would do"""
    mixed: tuple[str, ...] = ()
    """why the times are not one figure: the conditions that differ between and within the two runs"""

    def sentence(self) -> str:
        """What a page says of it."""
        reach = f"{self.break_even:.2f} tokens per pass"
        if self.acceptance is not None:
            reach += f", an acceptance of {100 * self.acceptance:.0f} % for each drafted token"
        elif self.most is not None:
            reach += f", which {self.most} at most cannot reach"
        return (
            f"{self.time:.2f}×{MIXED_MARK * bool(self.mixed)} the baseline's time per answer: {', '.join(self.parts)}. "
            f"Answers are {self.length:.2f}× as long, a pass brings {self.tokens:.2f} tokens, drafting takes "
            f"{100 * self.draft:.0f} % of a round, and the rest {self.verification:.2f}× that of the baseline's. "
            f"It would break even at {reach}. {mixed_sentence(self.mixed)}"
        ).rstrip()


def slowdown(run: RunView, baseline: RunView, prompts: Prompts) -> Slowdown | None:
    """``None`` for a run that the interval of the shared prompts does not show to be slower, and for baselines."""
    both = shared(run, baseline, prompts)
    done = [i for i in sorted(both[0]) if "failed" not in (both[0][i].outcome, both[1][i].outcome)]
    ours, theirs = ([side[i] for i in done] for side in both)
    if not run.decoding.drafter or run.id == baseline.id or not all(_sum(side, "tokens") for side in (ours, theirs)):
        return None
    if not all(_sum(side, "seconds") and _sum(side, "rounds") for side in (ours, theirs)):
        return None
    surely = quotient_interval([(one.seconds, 1) for one in ours], [(one.seconds, 1) for one in theirs])
    if surely is None or surely.low <= 1:
        return None
    time, length = (_sum(ours, name) / _sum(theirs, name) for name in ("seconds", "tokens"))
    draft, other_draft = _draft_share(run), _draft_share(baseline)
    round_, other = (_sum(side, "seconds") / _sum(side, "rounds") for side in (ours, theirs))
    verification = (1 - draft) * round_ / ((1 - other_draft) * other)
    tokens = _sum(ours, "tokens") / _sum(ours, "rounds")
    ended = {
        LONGER: time / length,
        DRAFT: time * (1 - draft + min(draft, other_draft * other / round_)),
        VERIFICATION: time * (draft + (1 - draft) * min(1.0, 1 / verification)),
    }
    break_even, most = time * tokens, _most(run)
    parts = tuple(part for part, left in ended.items() if left <= 1) or (ACCEPTANCE,)
    acceptance = _acceptance(run, break_even)
    mixed = ratio_mixed(run, baseline)
    return Slowdown(time, length, tokens, draft, verification, parts, break_even, most, acceptance, mixed)


def _sum(counts: Sequence[PromptCounts], name: str) -> float:
    return sum(getattr(one, name) for one in counts)


def _draft_share(run: RunView) -> float:
    found = metrics(run)
    return min(1.0, found.get("draft_seconds", 0.0) / found["seconds"]) if found.get("seconds") else 0.0


def _most(run: RunView) -> int | None:
    topology = run.decoding.topology
    return topology.length + 1 if topology is not None and topology.kind == "chain" else None


def _acceptance(run: RunView, tokens: float) -> float | None:
    """α of (1 − α^(γ+1))/(1 − α) = tokens, the expected tokens of a chain's round (Leviathan et al. 2023)."""
    from scipy.optimize import root_scalar

    most = _most(run)
    if most is None or not 1 < tokens < most:
        return None
    return float(root_scalar(lambda a: sum(a**i for i in range(most)) - tokens, bracket=(0, 1)).root)
