"""Which runs can be matched, what they are held against, and what is known of each of their prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fsd_core.analysis.quality import ACCURACY_QUALITY, EXCESS_NLL, EXCESS_NLL_SAMPLED, Quality
from fsd_core.formatting import count
from fsd_core.statistics.tradeoff_curves import Measured

if TYPE_CHECKING:
    from fsd_core.storage.records import PromptCounts, Prompts, RunView


class Cost(NamedTuple):
    """What an answer costs."""

    key: str
    title: str
    fewer: str
    """such as ``fewer target passes``, behind a number of times"""
    read: Callable[[PromptCounts], float]
    of_target: bool = False
    """whether a draft alone has none"""
    timed: bool = False


COSTS: Mapping[str, Cost] = {
    cost.key: cost
    for cost in (
        Cost("target_passes", "Target passes", "fewer target passes", lambda counts: counts.rounds, of_target=True),
        Cost("seconds", "Time per answer", "less time per answer", lambda counts: counts.seconds, timed=True),
    )
}


def on_one_ground(runs: Sequence[RunView], baseline: RunView, cost: Cost) -> tuple[list[RunView], list[str]]:
    """The finished runs that stand on the baseline's ground, and sentences on the others. The target alone may be
    sampled with another truncation."""
    finished = [run for run in runs if run.metrics and run.status == "finished"]
    drafting = (run.decoding.sampling for run in finished if run.decoding.drafter is not None)
    own = baseline.decoding.sampling
    if baseline.decoding.drafter is None:  # a baseline may be the target with the truncation of one rule
        own = next((sampling for sampling in drafting if sampling.temperature == own.temperature), own)

    def is_alike(run: RunView) -> bool:
        sampling, alone = run.decoding.sampling, run.decoding.acceptance.kind == "autoregressive"
        grounds = [
            (one.pair, one.task, one.decoding.max_new_tokens, one.config.batch if cost.timed else 0)
            for one in (run, baseline)
        ]
        return grounds[0] == grounds[1] and (
            sampling == own or (alone and sampling.temperature == own.temperature and not own.greedy)
        )

    same = [run for run in finished if is_alike(run)]
    notes = []
    if unfinished := len(runs) - len(finished):
        notes.append(f"{count(unfinished, 'run')} without all figures left out.")
    if others := len(finished) - len(same):
        alike = "pair, task, sampling, length limit" + (" and batch size" if cost.timed else "")
        notes.append(f"{count(others, 'run')} left out: only runs with the baseline's {alike} are matched.")
    return same, notes


def untruncated(runs: Sequence[RunView]) -> list[str]:
    """Sentences on rules beside which no target with their truncation can stand."""
    decodings = (run.decoding for run in runs)
    without = dict.fromkeys(
        one.acceptance.title for one in decodings if not one.sampling.greedy and one.acceptance.truncation is None
    )
    return [
        f"{title} keeps tokens of a set that no option of sampling has: no target sampled alike stands beside it."
        for title in without
    ]


def target_of(runs: Sequence[RunView]) -> RunView | None:
    """The target alone, sampled as the others are; else exact SD, which has its distribution."""
    drafted = next((run.decoding.sampling for run in runs if run.decoding.drafter is not None), None)
    alone = [run for run in runs if run.decoding.acceptance.kind == "autoregressive"]
    alike = [run for run in alone if drafted is None or run.decoding.sampling == drafted]
    return next(iter([*alike, *exact(runs)]), None)


def exact(runs: Iterable[RunView]) -> list[RunView]:
    """Those of exact SD."""
    return [run for run in runs if run.decoding.acceptance.kind == "speculative"]


def reference_of(runs: Sequence[RunView], baseline: RunView) -> RunView | None:
    """Whose cost is 1: exact SD, the baseline if it is one; else the target alone."""
    found = exact(runs)
    return next((run for run in found if run.id == baseline.id), next(iter(found), target_of(runs)))


def by_setting(runs: Sequence[RunView]) -> dict[str, list[RunView]]:
    """The runs of each setting, whatever their seeds."""
    found: dict[str, list[RunView]] = {}
    for run in runs:
        found.setdefault(run.setting_id, []).append(run)
    return found


def comparable(runs: Sequence[RunView], prompts: Prompts) -> tuple[Quality, dict[str, list[RunView]], list[int]]:
    """In what the runs can be compared, those that have it by setting, and the positions of the prompts that every
    setting has it of. Accuracy, if every setting has a prompt scored; else excess NLL, which a draft alone has not,
    since it never asks the target."""
    settings = by_setting(runs)
    if scored := _shared(settings, prompts, lambda counts: counts.outcome != "unscored"):
        return ACCURACY_QUALITY, settings, scored
    settings = by_setting([run for run in runs if run.decoding.acceptance.kind != "draft-only"])
    written = _shared(settings, prompts, lambda counts: counts.outcome == "unscored" and counts.tokens > 0)
    greedy = all(run.decoding.sampling.greedy for run in runs)
    return EXCESS_NLL if greedy else EXCESS_NLL_SAMPLED, settings, written


def _shared(
    settings: Mapping[str, Sequence[RunView]], prompts: Prompts, has: Callable[[PromptCounts], bool]
) -> list[int]:
    known = [
        {position for run in runs for position, counts in prompts.get(run.id, {}).items() if has(counts)}
        for runs in settings.values()
    ]
    return sorted(set.intersection(*known)) if known else []


def measured_of(
    settings: Mapping[str, Sequence[RunView]], target: str, reference: str, places: Sequence[int], prompts: Prompts,
    cost: Cost, quality: Quality,
) -> Measured:  # fmt: skip
    """What each setting gained and cost, a column of each, on the prompts at these places. ``target``,
    ``reference``: of the settings."""

    def of(runs: Sequence[RunView], read: Callable[[PromptCounts], float]) -> np.ndarray:
        """A figure of each prompt, averaged over seeds; NaN where no run has it. → [n]"""
        rows = [[read(c) if (c := prompts[run.id].get(i)) else np.nan for i in places] for run in runs]
        table = np.array(rows, float)
        known = ~np.isnan(table)
        with np.errstate(invalid="ignore"):
            return np.where(known, table, 0).sum(0) / known.sum(0)

    def solved(counts: PromptCounts) -> float:
        return float(counts.outcome == "correct")

    def spent(runs: Sequence[RunView]) -> np.ndarray:
        if cost.of_target and runs[0].decoding.acceptance.kind == "draft-only":
            return np.full(len(places), np.nan)
        return of(runs, lambda counts: np.nan if counts.outcome == "failed" else cost.read(counts))

    spending = np.column_stack([spent(runs) for runs in settings.values()])
    if quality.is_share:
        base = of(settings[target], solved)
        gained = np.column_stack([of(runs, solved) - base for runs in settings.values()])
        return Measured(gained, spending, spent(settings[reference]))
    likelihood, tokens = (
        np.column_stack([of(runs, read) for runs in settings.values()])
        for read in (lambda counts: -counts.negative_log_likelihood, lambda counts: counts.tokens)
    )
    return Measured(likelihood, spending, spent(settings[reference]), tokens, list(settings).index(target))
