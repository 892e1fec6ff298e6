"""Why a setting takes longer than its baseline: the responsible part, and the acceptance that would break even."""

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
    """A run's time per answer relative to its baseline's: ``length`` times the costs of a round, over its tokens."""

    time: float
    """ratio of seconds per answer to the baseline's; above 1"""
    length: float
    """ratio of tokens per answer"""
    tokens: float
    """per round"""
    draft: float
    """share of a round's time that goes to drafting"""
    verification: float
    """the rest of a round's time, relative to that of the baseline's rounds"""
    parts: tuple[str, ...]
    """the parts that would end the slowdown if they were as in the baseline; acceptance if no other would"""
    break_even: float
    """tokens per round at which both would take equally long per answer"""
    most: int | None
    """maximum tokens per round; ``None`` if the topology does not fix it"""
    acceptance: float | None
    """of each drafted token that is judged, to break even on a chain; ``None`` if no value does"""
    mixed: tuple[str, ...] = ()
    """the conditions that differ between and within the two runs, so that the times are not one figure"""

    def sentence(self) -> str:
        """Return the text that pages show."""
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
    """Return why a run is slower. ``None`` for baselines, and if the interval over the shared prompts does not show it
    to be slower."""
    both = shared(run, baseline, prompts)
    done = [i for i in sorted(both[0]) if "failed" not in (both[0][i].outcome, both[1][i].outcome)]
    run_counts, baseline_counts = ([side[i] for i in done] for side in both)
    if (
        not run.decoding.drafter
        or run.id == baseline.id
        or not all(_sum(side, "tokens") for side in (run_counts, baseline_counts))
    ):
        return None
    if not all(_sum(side, "seconds") and _sum(side, "rounds") for side in (run_counts, baseline_counts)):
        return None
    time_ratio = quotient_interval(
        [(count.seconds, 1) for count in run_counts], [(count.seconds, 1) for count in baseline_counts]
    )
    if time_ratio is None or time_ratio.low <= 1:
        return None
    time, length = (_sum(run_counts, name) / _sum(baseline_counts, name) for name in ("seconds", "tokens"))
    draft, baseline_draft = _draft_share(run), _draft_share(baseline)
    run_round, baseline_round = (_sum(side, "seconds") / _sum(side, "rounds") for side in (run_counts, baseline_counts))
    verification = (1 - draft) * run_round / ((1 - baseline_draft) * baseline_round)
    tokens = _sum(run_counts, "tokens") / _sum(run_counts, "rounds")
    time_without = {
        LONGER: time / length,
        DRAFT: time * (1 - draft + min(draft, baseline_draft * baseline_round / run_round)),
        VERIFICATION: time * (draft + (1 - draft) * min(1.0, 1 / verification)),
    }
    break_even, most = time * tokens, _max_tokens(run)
    parts = tuple(part for part, ratio in time_without.items() if ratio <= 1) or (ACCEPTANCE,)
    acceptance = _acceptance(run, break_even)
    mixed = ratio_mixed(run, baseline)
    return Slowdown(time, length, tokens, draft, verification, parts, break_even, most, acceptance, mixed)


def _sum(counts: Sequence[PromptCounts], name: str) -> float:
    return sum(getattr(count, name) for count in counts)


def _draft_share(run: RunView) -> float:
    values = metrics(run)
    return min(1.0, values.get("draft_seconds", 0.0) / values["seconds"]) if values.get("seconds") else 0.0


def _max_tokens(run: RunView) -> int | None:
    topology = run.decoding.topology
    return topology.length + 1 if topology is not None and topology.kind == "chain" else None


def _acceptance(run: RunView, tokens: float) -> float | None:
    """Solve (1 − α^(γ+1))/(1 − α) = tokens for α: the expected tokens of a chain's round (Leviathan et al. 2023)."""
    from scipy.optimize import root_scalar

    most = _max_tokens(run)
    if most is None or not 1 < tokens < most:
        return None
    return float(root_scalar(lambda a: sum(a**i for i in range(most)) - tokens, bracket=(0, 1)).root)
