"""Requirements of a use checked against runs: met, not met, or undecided, each with its figure and interval."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.analysis.cells import accuracy_difference, against, ratio_mixed, speedup, unseen_runaways
from fsd_core.analysis.prompt_identity import rendered_differently
from fsd_core.analysis.reading_versions import read_differently
from fsd_core.analysis.same_distribution import same_distribution
from fsd_core.conditions import MOST_TAKEN, taken
from fsd_core.evaluation.run_costs import cost_per_solved_task, price_of
from fsd_core.evaluation.runaways import Runaways
from fsd_core.formatting import count, decimals, number
from fsd_core.metrics import METRICS
from fsd_core.review.pooling import Pool, pooled
from fsd_core.review.worst_ratios import worst_length, worst_speed
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.noninferiority import identical, verdict
from fsd_core.storage.review_events import Requirements

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Prompts, RunView

_EXACT = "Lossless: it writes what the target says, however many prompts there are"
Outcome = Literal["met", "not met", "undecided"]
REQUIREMENT_TITLES = {name: field.title or name for name, field in Requirements.model_fields.items()}


class RequirementCheck(NamedTuple):
    """One requirement against one pair of runs."""

    requirement: str
    """its field in ``Requirements``"""
    outcome: Outcome
    text: str
    """result as text, with the interval"""


class Evidence(NamedTuple):
    """A measurement of the proposed setting and one of the baseline on the same prompts."""

    setting_pool: Pool
    baseline_pool: Pool
    findings: tuple[RequirementCheck, ...]

    @property
    def run(self) -> RunView:
        return self.setting_pool.run

    @property
    def baseline(self) -> RunView:
        return self.baseline_pool.run

    @property
    def prompts(self) -> Prompts:
        """Prompts of both, by the ids of :attr:`run` and :attr:`baseline`."""
        return _prompts(self.setting_pool, self.baseline_pool)

    @property
    def shared(self) -> int:
        """Number of prompts that both completed."""
        return len(self.setting_pool.prompts.keys() & self.baseline_pool.prompts.keys())

    @property
    def runaways(self) -> Runaways | None:
        """Runaways that were seen, and how many more there may be; ``None`` for a lossless setting."""
        return unseen_runaways(self.run, self.baseline, self.prompts)


def evidence(
    requirements: Requirements, runs: Sequence[RunView], baselines: Sequence[RunView], prompts: Prompts,
    repository: Repository | None = None,
) -> list[Evidence]:  # fmt: skip
    """Pair each run with the baseline of its task and seed and check the requirements. The rounds of a calibration
    count as one run, paired with the baseline's rounds of the same calibration.

    A run without such a baseline is paired with the first one. They share no prompt, so everything is undecided.
    ``repository`` says which texts are identical, and when a calibration ended.
    """
    results = []
    for pool, reference in matched_pools(repository, runs, baselines, prompts):
        both = pool.run, reference.run, _prompts(pool, reference)
        same = repository is not None and _same_texts(repository, pool, reference)
        results.append(Evidence(pool, reference, tuple(_findings(requirements, *both, same_texts=same))))
    return results


def matched_pools(
    repository: Repository | None, runs: Sequence[RunView], baselines: Sequence[RunView], prompts: Prompts
) -> list[tuple[Pool, Pool]]:  # fmt: skip
    """Return each measurement of the setting with that of the baseline which is compared with it."""
    references = pooled(repository, baselines, prompts)
    return [
        (pool, max(references, key=partial(_similarity, pool)))  # the first of equally similar ones
        for pool in (pooled(repository, runs, prompts) if references else ())
    ]


def _same_texts(repository: Repository, pool: Pool, reference: Pool) -> bool:
    """Return whether every prompt that both did was answered with the same text."""
    ids = ([run.id for run in side.runs] for side in (pool, reference))
    differing = repository.differing_texts(*ids) if pool.run.task == reference.run.task else {}
    return bool(differing) and not any(differing.values())


def _similarity(pool: Pool, other: Pool) -> tuple[bool, bool, bool]:
    run, baseline = pool.run, other.run
    task, seed = run.task == baseline.task, run.seed == baseline.seed
    return task, task and seed, task and seed and pool.calibration == other.calibration


def _prompts(pool: Pool, reference: Pool) -> Prompts:
    return {pool.run.id: pool.prompts, reference.run.id: reference.prompts}


def overall(results: Sequence[Evidence]) -> dict[str, Outcome]:
    """Return the outcome per requirement: met if all runs meet it, not met if one does not, else undecided."""
    outcomes: dict[str, set[Outcome]] = {}
    for result in results:
        for check in result.findings:
            outcomes.setdefault(check.requirement, set()).add(check.outcome)
    return {
        requirement: "not met" if "not met" in seen else "undecided" if "undecided" in seen else "met"
        for requirement, seen in outcomes.items()
    }


def evidence_hash(requirements: Requirements, runs: Sequence[RunView], baselines: Sequence[RunView]) -> str:
    """Return 16 hex digits that identify what an approval rests on: the requirements and the measurement of each run.

    The hash changes when runs continue, are rescored or deleted.
    """
    measurements = [
        [role, run.id, run.status, run.prompts_done, round(run.decoding_seconds, 6)]
        + [(run.metrics or {}).get(key) for key in ("correct", "wrong", "truncated", "failed", "tokens")]
        for role, group in (("run", runs), ("baseline", baselines))
        for run in group
    ]
    text = json.dumps([requirements.as_json(), measurements], sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _findings(
    requirements: Requirements, run: RunView, baseline: RunView, prompts: Prompts, *, same_texts: bool = False
) -> list[RequirementCheck]:
    checks, both = [], (run, baseline, prompts)
    rare = unseen_runaways(run, baseline, prompts)
    if requirements.margin is not None:
        checks.append(_accuracy(requirements.margin, run, baseline, prompts, same_texts=same_texts))
    if requirements.least_speedup is not None:
        ratio = speedup(run, baseline, prompts)
        text, outcome = _ratio(
            ratio,
            "as fast",
            requirements.least_speedup,
            1,
            rare,
            worst_speed(ratio, rare, *both),
            " by time per answer",
        )
        if mixed := ratio_mixed(run, baseline):
            outcome, text = "undecided", f"{text}, but measured under other conditions ({', '.join(mixed)})"
        elif (share := taken_of(prompts)) is not None and share > MOST_TAKEN:
            outcome, text = "undecided", f"{text}, but other programs took {100 * share:.0f} % of the time"
        checks.append(RequirementCheck("least_speedup", outcome, text))
    if requirements.longest_answers is not None:
        ratio = against(run, baseline, METRICS["mean_tokens"], prompts)
        text, outcome = _ratio(
            ratio, "as long", requirements.longest_answers, -1, rare, worst_length(ratio, rare, *both)
        )
        checks.append(RequirementCheck("longest_answers", outcome, text))
    if requirements.highest_cost is not None:
        checks.append(_cost(requirements.highest_cost, run, prompts))
    same_template = run.decoding.template == baseline.decoding.template
    if same_template and (positions := rendered_differently([run, baseline], prompts)):
        told = f", but {len(positions):,} of the prompts were not rendered to the same tokens"
        checks = [RequirementCheck(check.requirement, "undecided", check.text + told) for check in checks]
    return checks


def _cost(bound: float, run: RunView, prompts: Prompts) -> RequirementCheck:
    """Check the cost per solved task of the setting alone, at the price of the machine that measured it."""
    price, counts = price_of(run), [*prompts[run.id].values()]
    if price is None:
        text = "no price per hour is known: set FSD_PRICE_PER_HOUR, or measure it with --price-per-hour"
        return RequirementCheck("highest_cost", "undecided", text)
    cost = cost_per_solved_task(counts, price)
    at_price = f"at {price:g} per hour"
    if cost is None:
        return RequirementCheck("highest_cost", "undecided", f"no prompt is known to be solved, {at_price}")
    digits = decimals(*cost)
    text, outcome = f"{number(cost.value, digits)} per solved task", "undecided"
    if cost.low is None or cost.high is None:
        return RequirementCheck("highest_cost", outcome, f"{text} {at_price}, by too few prompts for an interval")
    text += f" [{number(cost.low, digits)}, {number(cost.high, digits)}] {at_price}"
    if run.speed_mixed:
        text += f", but measured under conditions that differ in {', '.join(run.speed_mixed)}"
    elif (share := taken_of({run.id: prompts[run.id]})) is not None and share > MOST_TAKEN:
        text += f", but other programs took {100 * share:.0f} % of the time"
    else:
        outcome = "met" if cost.high <= bound else "not met" if cost.low > bound else "undecided"
    return RequirementCheck("highest_cost", outcome, text)


def taken_of(prompts: Prompts) -> float | None:
    """Return the share of the time of the prompts of all runs that other programs took; ``None`` if unknown."""
    counts = (count for side in prompts.values() for count in side.values() if count.timed)
    return taken((count.seconds, count.cpu_seconds) for count in counts)


def _accuracy(
    margin: float, run: RunView, baseline: RunView, prompts: Prompts, *, same_texts: bool
) -> RequirementCheck:
    paired = accuracy_difference(run, baseline, prompts)
    if paired is None:
        return RequirementCheck("margin", "undecided", "no scored prompt in common with the baseline")
    if same_texts and same_distribution(run, baseline):
        return RequirementCheck("margin", "met", f"{identical(paired).sentence(margin)}. {_EXACT}")
    result = verdict(paired, margin)
    outcome: Outcome = {"non-inferior": "met", "worse": "not met"}.get(result.kind, "undecided")  # pyright: ignore[reportAssignmentType]
    if readings := read_differently([run, baseline]):
        outcome = "undecided"
    if outcome == "undecided" and same_distribution(run, baseline):
        return RequirementCheck("margin", "met", f"{paired.text}: {_EXACT}")
    text = f"{paired.text}: {result.sentence(margin)}"
    return RequirementCheck("margin", outcome, f"{text}. {readings}" if readings else text)


def _ratio(
    ratio: Estimate | None, comparison: str, bound: float, better: int, rare: Runaways | None, worst: float | None,
    by: str = "",
) -> tuple[str, Outcome]:  # fmt: skip
    """Return text and outcome for a ratio that should be at least (``better`` 1) or at most (−1) ``bound``.

    Its interval cannot know of runaways that no prompt showed. So it is met only on so many prompts that runaways of
    1 % would have been seen, or if it would hold with all that may be unseen (``worst``). Runaways only make a setting
    slower and its answers longer, so what is not met needs no more prompts. ``rare``: the setting's runaways, ``None``
    where it has those of the baseline. ``by`` names the quantity of the ratio.
    """
    if ratio is None:
        return "no prompt in common with the baseline", "undecided"
    digits = decimals(*ratio)
    text = f"{number(ratio.value, digits)} times {comparison}"
    if ratio.low is None or ratio.high is None:
        return f"{text}{by}, decided by too few prompts for an interval", "undecided"
    text += f" [{number(ratio.low, digits)}, {number(ratio.high, digits)}]{by}"
    met, failed = (ratio.low >= bound, ratio.high < bound) if better > 0 else (ratio.high <= bound, ratio.low > bound)
    if rare is not None and worst is not None:
        text += f"; {rare.sentence}, with them {number(worst, digits)} times"
        if met and rare.prompts_lacking and better * worst < better * bound:
            return f"{text}. {count(rare.prompts_lacking, f'more {rare.unit}')} would show runaways of 1 %", "undecided"
    return text, "met" if met else "not met" if failed else "undecided"
