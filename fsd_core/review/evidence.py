"""Whether runs meet what a use asks for: met, not met, or undecided, each with the figure and its interval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.analysis.cells import against, cell, ratio_mixed
from fsd_core.formatting import decimals, number
from fsd_core.metrics import METRICS
from fsd_core.review.pooling import Pool, pooled
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.noninferiority import verdict
from fsd_core.storage.records import same_weights
from fsd_core.storage.review_events import Requirements

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView

_EXACT = "Lossless: it writes what the target says, however many prompts there are"
Outcome = Literal["met", "not met", "undecided"]
REQUIREMENT_TITLES = {name: field.title or name for name, field in Requirements.model_fields.items()}


class RequirementCheck(NamedTuple):
    """One requirement against one pair of runs."""

    requirement: str
    """its field in ``Requirements``"""
    outcome: Outcome
    told: str
    """in words, with the interval"""


class Evidence(NamedTuple):
    """A measurement of the proposed setting and the baseline's on the same prompts."""

    ours: Pool
    theirs: Pool
    findings: tuple[RequirementCheck, ...]

    @property
    def run(self) -> RunView:
        return self.ours.run

    @property
    def baseline(self) -> RunView:
        return self.theirs.run

    @property
    def prompts(self) -> Prompts:
        """Of both, by the ids of :attr:`run` and :attr:`baseline`."""
        return _prompts(self.ours, self.theirs)

    @property
    def shared(self) -> int:
        """Prompts that both did."""
        return len(self.ours.prompts.keys() & self.theirs.prompts.keys())


def evidence(
    requirements: Requirements, runs: Sequence[RunView], baselines: Sequence[RunView], prompts: Prompts
) -> list[Evidence]:
    """Each run beside the baseline of its task and seed, with what can be said of it. Turns of a calibration are one,
    beside the baseline's turns in the same.

    A run without such a baseline stands beside the first one, with which it has no prompt in common: all is undecided.
    """
    found, measured = [], pooled(baselines, prompts)
    for ours in pooled(runs, prompts):
        theirs = max(measured, key=lambda other: _likeness(ours, other))  # of those that are as like, the first
        both = ours.run, theirs.run, _prompts(ours, theirs)
        found.append(Evidence(ours, theirs, tuple(_findings(requirements, *both))))
    return found


def _likeness(ours: Pool, other: Pool) -> tuple[bool, bool, bool]:
    run, baseline = ours.run, other.run
    task, seed = run.task == baseline.task, run.seed == baseline.seed
    return task, task and seed, task and seed and ours.calibration == other.calibration


def _prompts(ours: Pool, theirs: Pool) -> Prompts:
    return {ours.run.id: ours.prompts, theirs.run.id: theirs.prompts}


def overall(found: Sequence[Evidence]) -> dict[str, Outcome]:
    """Of each requirement: met where all runs meet it, not met where one does not, else undecided."""
    outcomes: dict[str, set[Outcome]] = {}
    for one in found:
        for finding in one.findings:
            outcomes.setdefault(finding.requirement, set()).add(finding.outcome)
    return {
        requirement: "not met" if "not met" in seen else "undecided" if "undecided" in seen else "met"
        for requirement, seen in outcomes.items()
    }


def evidence_hash(requirements: Requirements, runs: Sequence[RunView], baselines: Sequence[RunView]) -> str:
    """16 hex digits of what an approval rests on: the requirements and what each run has measured.

    It changes where runs go on, are scored again or deleted.
    """
    kept = [
        [role, run.id, run.status, run.prompts_done, round(run.decoding_seconds, 6)]
        + [(run.metrics or {}).get(key) for key in ("correct", "wrong", "truncated", "failed", "tokens")]
        for role, some in (("run", runs), ("baseline", baselines))
        for run in some
    ]
    text = json.dumps([requirements.as_json(), kept], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _findings(requirements: Requirements, run: RunView, baseline: RunView, prompts: Prompts) -> list[RequirementCheck]:
    found = []
    if requirements.margin is not None:
        found.append(_accuracy(requirements.margin, run, baseline, prompts))
    if requirements.least_speedup is not None:
        ratio = against(run, baseline, METRICS["tokens_per_second"], prompts)
        told, outcome = _ratio(ratio, "as fast", requirements.least_speedup, 1)
        if mixed := ratio_mixed(run, baseline):
            outcome, told = "undecided", f"{told}, but measured under other conditions ({', '.join(mixed)})"
        found.append(RequirementCheck("least_speedup", outcome, told))
    if requirements.longest_answers is not None:
        ratio = against(run, baseline, METRICS["mean_tokens"], prompts)
        told, outcome = _ratio(ratio, "as long", requirements.longest_answers, -1)
        found.append(RequirementCheck("longest_answers", outcome, told))
    return found


def _accuracy(margin: float, run: RunView, baseline: RunView, prompts: Prompts) -> RequirementCheck:
    paired = cell(run, baseline, METRICS["accuracy"], prompts).paired
    if paired is None:
        return RequirementCheck("margin", "undecided", "no scored prompt in common with the baseline")
    said = verdict(paired, margin)
    outcome: Outcome = {"non-inferior": "met", "worse": "not met"}.get(said.kind, "undecided")  # pyright: ignore[reportAssignmentType]
    low, high = (100 * end for end in paired.interval)
    points = (
        f"{number(100 * paired.difference, 1, signed=True)} points "
        f"[{number(low, 1, signed=True)}, {number(high, 1, signed=True)}] on {paired.n:,} prompts"
    )
    if outcome == "undecided" and _exact(run, baseline):
        return RequirementCheck("margin", "met", f"{points}: {_EXACT}")
    return RequirementCheck("margin", outcome, f"{points}: {said.sentence(margin)}")


def _exact(run: RunView, baseline: RunView) -> bool:
    """Whether both write what the same target says, sampled alike: then chance alone tells them apart."""
    ours, theirs = run.decoding, baseline.decoding
    return (
        ours.acceptance.lossless and theirs.acceptance.lossless
        and (run.pair, run.config.dtype, ours.sampling, ours.max_new_tokens)
        == (baseline.pair, baseline.config.dtype, theirs.sampling, theirs.max_new_tokens)
        and same_weights(run.weights, baseline.weights)
    )  # fmt: skip


def _ratio(ratio: Estimate | None, words: str, bound: float, better: int) -> tuple[str, Outcome]:
    """What is said of a ratio that should be at least (``better`` 1) or at most (−1) ``bound``."""
    if ratio is None:
        return "no prompt in common with the baseline", "undecided"
    digits = decimals(*ratio)
    told = f"{number(ratio.value, digits)} times {words}"
    if ratio.low is None or ratio.high is None:
        return f"{told}, decided by too few prompts for an interval", "undecided"
    told += f" [{number(ratio.low, digits)}, {number(ratio.high, digits)}]"
    sure, against_it = (
        (ratio.low >= bound, ratio.high < bound) if better > 0 else (ratio.high <= bound, ratio.low > bound)
    )
    return told, "met" if sure else "not met" if against_it else "undecided"
