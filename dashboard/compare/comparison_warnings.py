"""Warnings above a comparison: runs that do not exist, and reasons why numbers are not comparable."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise, starmap
from typing import TYPE_CHECKING

from fsd_core.analysis.cells import shared
from fsd_core.analysis.prompt_identity import ended_by_context, rendered_differently
from fsd_core.analysis.reading_versions import read_differently
from fsd_core.conditions import MIXED_MARK, SHARED_DEVICE, SHARED_EXECUTOR, differences, listed
from fsd_core.config.model_names import called
from fsd_core.formatting import count
from fsd_core.storage.records import UNENDED, same_model

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView

UNFINISHED = (*UNENDED, "cancelled")
"""statuses of runs that get no verdict yet"""


def request_warnings(
    requested: Sequence[str], most: int, baseline_id: str | None, existing: Collection[str]
) -> list[str]:
    """Return a warning if more than ``most`` runs are requested, or if runs or the baseline do not exist."""
    warnings = []
    if len(requested) > most:
        warnings.append(f"{len(requested)} runs were asked for; the first {most} are shown.")
    if unknown := [run_id for run_id in requested[:most] if run_id not in existing]:
        warnings.append(
            f"{count(len(unknown), 'run')} of the link {_is(unknown)} not in this database: {_list(unknown)}. "
            + ("The others are shown." if existing else "Choose runs above.")
        )
    if baseline_id and baseline_id not in existing:
        warnings.append(f"The baseline {baseline_id[:40]} is not among the chosen runs. The first run takes its place.")
    return warnings


def unmatched_warnings(
    runs: Sequence[RunView], baseline: RunView, prompts: Prompts, names: dict[str, str]
) -> list[str]:
    """Return a warning if measured runs have no prompt in common with the baseline and so cannot be compared."""
    measured = [run for run in runs if run.metrics and run.id != baseline.id and not run.measured_elsewhere]
    if not baseline.metrics or not (unmatched := [run for run in measured if not shared(run, baseline, prompts)[0]]):
        return []
    labels = _list([names[run.id] for run in unmatched])
    return [
        f"{count(len(unmatched), 'run')} {_has(unmatched)} no prompt in common with the baseline: {labels}. "
        "No difference is shown."
    ]


def comparability(runs: Sequence[RunView], names: dict[str, str], prompts: Prompts) -> list[str]:
    """Return why the numbers of these runs are not comparable, one sentence per reason."""
    reasons = []
    if failed := [names[run.id] for run in runs if run.status == "failed"]:
        reasons.append(f"{count(len(failed), 'run')} failed and {_has(failed)} no numbers: {_list(failed)}.")
    if unfinished := [names[run.id] for run in runs if run.status in UNFINISHED]:
        reasons.append(
            f"{count(len(unfinished), 'run')} {_is(unfinished)} not finished: {_list(unfinished)}. "
            "Their figures are of the prompts so far, and no verdict is given yet."
        )
    for title, read, consequence in _CRITERIA:
        values = sorted({str(value) for run in runs if (value := read(run)) is not None})
        if len(values) > 1:
            titles = sorted({called(value) for value in values})
            shown = titles if len(titles) == len(values) else values
            reasons.append(f"The runs differ in {title} ({_list(shown)}): {consequence}.")
    if elsewhere := [names[run.id] for run in runs if run.measured_elsewhere]:
        reasons.append(
            f"{count(len(elsewhere), 'run')} {'was' if len(elsewhere) == 1 else 'were'} measured elsewhere: "
            f"{_list(elsewhere)}. Nothing here has verified these figures, so no difference and no verdict is drawn "
            "from them."
        )
    if weights := _differing_weights(runs):
        reasons.append(f"The runs differ in weights ({_list(weights)}): {_PAIR}.")
    if positions := rendered_differently(runs, prompts):
        reasons.append(
            f"{count(len(positions), 'prompt')} {_is(positions)} not the same tokens in all runs, because template "
            "arguments, date, template or tokenizer differ: their figures are of different questions."
        )
    unread = [(names[run.id], run.metrics) for run in runs if run.metrics and run.metrics.get("unread")]
    if texts := [f"{figures['unread']:,} of {figures['n']:,} of {name}" for name, figures in unread]:
        reasons.append(f"No answer could be read in some texts, which count as wrong: {_list(texts)}.")
    if versions := read_differently(runs):
        reasons.append(versions)
    if ended := ended_by_context(runs, prompts):
        reasons.append(
            "The model's context ended different numbers of answers to the same prompts "
            f"({_list([f'{number} of {names[run_id]}' for run_id, number in ended.items()])}): those were cut where "
            "others went on."
        )
    if on_shared_device := [names[run.id] for run in runs if SHARED_EXECUTOR in run.speed_mixed]:
        reasons.append(f"{_list(on_shared_device)}: {SHARED_DEVICE} Their speeds and times are marked {MIXED_MARK}.")
    if varying := differences([run.conditions for run in runs]):
        differing = listed([f"{difference.name} ({_list(difference.values)})" for difference in varying])
        reasons.append(f"The runs differ in {differing}: ratios of their speeds and times are marked {MIXED_MARK}.")
    return reasons


_PAIR = "their accuracies and speeds are those of different models"
_PROMPTS = "their figures are of different prompts, so no difference between tasks is shown"
_CRITERIA = (
    ("model pair", lambda run: run.pair, _PAIR),
    ("task", lambda run: run.task, _PROMPTS),
    (
        "number of prompts",
        lambda run: run.prompts_total,
        "paired differences use the prompts that both runs have, all other numbers use all prompts of a run",
    ),
    (
        "length limit",
        lambda run: None if run.measured_elsewhere else run.decoding.max_new_tokens,
        "a shorter limit truncates more answers",
    ),
    (
        "batch size",
        lambda run: None if run.measured_elsewhere else run.config.batch,
        "throughput cannot be compared between them",
    ),
    (
        "request rate",
        lambda run: None if run.measured_elsewhere else run.config.rate,
        "throughput cannot be compared between them",
    ),
)


def _differing_weights(runs: Sequence[RunView]) -> list[str]:
    """Return the weights of the roles in which runs differ that have them both, as texts."""
    by_role: dict[str, set[str]] = {}
    for run in runs:
        for role, weights in run.weights.items():
            by_role.setdefault(role, set()).add(weights)
    differing = {role for role, seen in by_role.items() if not all(starmap(same_model, pairwise(sorted(seen))))}
    return sorted(f"{role} {weights}" for role in differing for weights in by_role[role])


def _has(things: Sequence[object]) -> str:
    return "has" if len(things) == 1 else "have"


def _is(things: Sequence[object]) -> str:
    return "is" if len(things) == 1 else "are"


def _list(things: Sequence[str], most: int = 4) -> str:
    texts = [thing[:60] for thing in things[:most]]
    return ", ".join(texts) + (f" and {len(things) - most} more" if len(things) > most else "")
