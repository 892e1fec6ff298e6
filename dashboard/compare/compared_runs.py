"""Runs beside each other: which they are, whether they may be compared, and how each differs from the baseline.

Plain values computed from the repository; the page and the exports draw them.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from fsd_core.analysis.cells import Cell, cells, shared
from fsd_core.analysis.series import run_names
from fsd_core.analysis.slowdown import Slowdown, slowdown
from fsd_core.conditions import MIXED_MARK, SHARED_DEVICE, SHARED_EXECUTOR, differences, listed
from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.statistics.noninferiority import Verdict, checked_margin, verdict

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Prompts, RunView

MOST_COMPARED_RUNS = 100
DEFAULT_MARGIN = 2.0
MARKED = (
    f"{MIXED_MARK}: the prompts of a run, or the two runs of a ratio, were measured under conditions that differ, "
    "or by an executor that is shared."
)
"""what stands below a table with marks"""
_ID = re.compile("[0-9a-f]{32}")  # anything else, which a link may hold, is not worth asking a database for


class ComparisonRow(NamedTuple):
    """A run with its cells, in the order of :data:`fsd_core.metrics.compared`."""

    run: RunView
    name: str
    is_baseline: bool
    cells: list[Cell]
    verdict: Verdict | None
    """on its accuracy; ``None`` where it cannot be compared"""
    slowdown: Slowdown | None
    """why it is slower than the baseline, where it is"""


class ComparedRuns(NamedTuple):
    """Everything that is known of the chosen runs beside each other; ``warnings`` are sentences."""

    runs: list[RunView]
    baseline: RunView | None
    rows: list[ComparisonRow]
    warnings: list[str]
    prompts: Prompts
    """what was counted of each prompt"""
    margin: float | None
    """points of accuracy that may be lost; ``None`` where that was no margin"""

    @property
    def marked(self) -> bool:
        """Whether a speed, a time or a ratio of them is not one figure."""
        return any(cell.mixed or cell.delta_mixed for row in self.rows for cell in row.cells)


def compare(
    repository: Repository, run_ids: Sequence[str], baseline_id: str | None, margin: float | None = DEFAULT_MARGIN
) -> ComparedRuns:
    """Compares the runs that exist; unknown ids become a warning. Without a known baseline the first run is it.

    A margin outside of 0 to 20 points becomes a warning, too: then there is no verdict.
    """
    wanted = list(dict.fromkeys(run_ids))
    possible = [run_id for run_id in wanted[:MOST_COMPARED_RUNS] if _ID.fullmatch(run_id)]
    found = repository.runs(ids=possible, limit=MOST_COMPARED_RUNS) if possible else []
    prompts = repository.prompts(run.id for run in found if run.metrics)
    known = {run.id: refreshed(run, prompts.get(run.id, {})) for run in found}
    runs = [known[run_id] for run_id in wanted if run_id in known]
    warnings = []
    try:
        margin = checked_margin(margin)
    except InvalidSetting as error:
        margin = None
        warnings.append(f"{error} No verdict is given.")
    if len(wanted) > MOST_COMPARED_RUNS:
        warnings.append(f"{len(wanted)} runs were asked for; the first {MOST_COMPARED_RUNS} are shown.")
    if unknown := [run_id for run_id in wanted[:MOST_COMPARED_RUNS] if run_id not in known]:
        warnings.append(
            f"{_count(unknown, 'run')} of the link {_is(unknown)} not in this database: {_list(unknown)}. "
            + ("The others are shown." if runs else "Choose runs above.")
        )
    if baseline_id and baseline_id not in known:
        warnings.append(f"The baseline {baseline_id[:40]} is not among the chosen runs. The first run takes its place.")
    baseline = known.get(baseline_id or "") or next((run for run in runs if run.metrics), runs[0] if runs else None)
    names = run_names(runs)
    warnings += comparability(runs, names)
    if baseline is None:
        return ComparedRuns(runs, baseline, [], warnings, prompts, margin)
    warnings += strangers(runs, baseline, prompts, names)
    found = cells(runs, baseline, prompts)
    rows = []
    for run in runs:
        said = _verdict(found[run.id], margin), slowdown(run, baseline, prompts)
        rows.append(ComparisonRow(run, names[run.id], run.id == baseline.id, found[run.id], *said))
    return ComparedRuns(runs, baseline, rows, warnings, prompts, margin)


def _verdict(cells: Sequence[Cell], margin: float | None) -> Verdict | None:
    if margin is None:
        return None
    return next((verdict(cell.paired, margin) for cell in cells if cell.paired is not None), None)


def strangers(runs: Sequence[RunView], baseline: RunView, prompts: Prompts, names: dict[str, str]) -> list[str]:
    """A sentence where measured runs have no prompt in common with the baseline, which leaves nothing to compare."""
    measured = [run for run in runs if run.metrics and run.id != baseline.id]
    if not baseline.metrics or not (alone := [run for run in measured if not shared(run, baseline, prompts)[0]]):
        return []
    which = _list([names[run.id] for run in alone])
    return [
        f"{_count(alone, 'run')} {_has(alone)} no prompt in common with the baseline: {which}. No difference is shown."
    ]


class RunProgress(NamedTuple):
    """How far a run is."""

    status: str
    prompts_done: int
    measured: bool


def progress(runs: Sequence[RunView]) -> dict[str, RunProgress]:
    """How far each run is, by id: where that is the same, there is nothing new to show."""
    return {run.id: RunProgress(run.status, run.prompts_done, bool(run.metrics)) for run in runs}


def experiment_runs(repository: Repository, experiment_id: str) -> list[str]:
    """Ids of an experiment's runs in their order. Raises ``UnknownName`` if there is no such experiment."""
    if not _ID.fullmatch(experiment_id):
        raise UnknownName(f"There is no experiment {experiment_id[:40]!r} in this database.")
    return [run.id for run in repository.experiment(experiment_id).runs]


def comparability(runs: Sequence[RunView], names: dict[str, str]) -> list[str]:
    """Why numbers of these runs do not stand on equal ground, one sentence per reason."""
    reasons = []
    if failed := [names[run.id] for run in runs if run.status == "failed"]:
        reasons.append(f"{_count(failed, 'run')} failed and {_has(failed)} no numbers: {_list(failed)}.")
    if open_ := [names[run.id] for run in runs if run.status in ("queued", "running", "cancelled")]:
        reasons.append(
            f"{_count(open_, 'run')} {_is(open_)} not finished: {_list(open_)}. Missing numbers are shown as a dash."
        )
    for title, read, consequence in _GROUNDS:
        values = sorted({str(value) for run in runs if (value := read(run)) is not None})
        if len(values) > 1:
            reasons.append(f"The runs differ in {title} ({_list(values)}): {consequence}.")
    if lent := [names[run.id] for run in runs if SHARED_EXECUTOR in run.speed_mixed]:
        reasons.append(f"{_list(lent)}: {SHARED_DEVICE} Their speeds and times are marked {MIXED_MARK}.")
    if found := differences([run.conditions for run in runs]):
        differing = listed([f"{difference.name} ({_list(difference.values)})" for difference in found])
        reasons.append(f"The runs differ in {differing}: ratios of their speeds and times are marked {MIXED_MARK}.")
    return reasons


_PAIR = "their accuracies and speeds are those of different models"
_PROMPTS = "their figures are of different prompts, so no difference between tasks is shown"
_GROUNDS = (
    ("model pair", lambda run: run.pair, _PAIR),
    ("task", lambda run: run.task, _PROMPTS),
    (
        "number of prompts",
        lambda run: run.prompts_total,
        "paired differences use the prompts that both runs have, all other numbers use all prompts of a run",
    ),
    ("length limit", lambda run: run.decoding.max_new_tokens, "a shorter limit truncates more answers"),
    ("weights", lambda run: " and ".join(run.weights.values()) or None, _PAIR),
    ("batch size", lambda run: run.config.batch, "throughput cannot be compared between them"),
)


def _count(things: Sequence[object], noun: str) -> str:
    return f"{len(things)} {noun}" + ("" if len(things) == 1 else "s")


def _has(things: Sequence[object]) -> str:
    return "has" if len(things) == 1 else "have"


def _is(things: Sequence[str]) -> str:
    return "is" if len(things) == 1 else "are"


def _list(things: Sequence[str], most: int = 4) -> str:
    shown = [thing[:60] for thing in things[:most]]
    return ", ".join(shown) + (f" and {len(things) - most} more" if len(things) > most else "")
