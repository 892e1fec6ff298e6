"""Compare runs: which exist, whether they are comparable, and how each differs from the baseline.

These are plain values computed from the repository. The page and the exports render them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from dashboard.compare.comparison_warnings import UNFINISHED, comparability, request_warnings, unmatched_warnings
from fsd_core.analysis.cells import Cell, cells, shared
from fsd_core.analysis.reading_versions import read_differently
from fsd_core.analysis.recommendation import Recommendation, comparable_times, recommend
from fsd_core.analysis.series import run_names
from fsd_core.analysis.slowdown import Slowdown, slowdown
from fsd_core.conditions import MIXED_MARK, taken_sentence
from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.evaluation.aggregate import so_far
from fsd_core.evaluation.time_ranking import equal_text, rank_by_time
from fsd_core.formatting import count
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.pooling import is_calibration_round, pooled, whole_rounds
from fsd_core.statistics.noninferiority import Verdict, checked_margin, identical, verdict

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import Prompts, RunView

MOST_COMPARED_RUNS = 100
_MOST_READ = 2000  # rounds of calibrations are many
DEFAULT_MARGIN = 2.0
Margin = float | Literal["usual"] | None
"""points of accuracy, those that are usual for the runs, or nothing valid"""
MARKED = (
    f"{MIXED_MARK}: the prompts of a run, or the two runs of a ratio, were measured under conditions that differ, "
    "or by an executor that is shared."
)
"""note below a table with marks"""
_ID = re.compile("[0-9a-f]{32}")  # anything else in a link is not worth a database query


class ComparisonRow(NamedTuple):
    """A run with its cells, in the order of :data:`fsd_core.metrics.compared`."""

    run: RunView
    name: str
    is_baseline: bool
    cells: list[Cell]
    verdict: Verdict | None
    """on its accuracy; ``None`` if it cannot be compared"""
    slowdown: Slowdown | None
    """why it is slower than the baseline, if it is"""


class ComparedRuns(NamedTuple):
    """The comparison of the chosen runs. ``warnings`` are sentences."""

    runs: list[RunView]
    baseline: RunView | None
    rows: list[ComparisonRow]
    warnings: list[str]
    prompts: Prompts
    """the counts of each prompt"""
    margin: float | None
    """points of accuracy that may be lost; ``None`` if the given margin was invalid"""
    times: str = ""
    """which run is the fastest, what time does not tell apart from it, and how much of it other programs took"""
    recommendation: Recommendation | None = None
    """the conclusion of the comparison; ``None`` if nothing is compared"""

    @property
    def best(self) -> str | None:
        """Id of the run that the comparison recommends."""
        return self.recommendation.run_id if self.recommendation else None

    @property
    def subject(self) -> str:
        """Pairs, tasks and number of prompts of the runs, such as ``bundled, arithmetic, n = 24 prompts``."""
        done = sorted({run.prompts_done for run in self.runs})
        number = f"{done[0]:,}" + (f" to {done[-1]:,}" if len(done) > 1 else "") if done else "0"
        pairs = dict.fromkeys(pair_title(run.pair) for run in self.runs)
        tasks = dict.fromkeys(run.task for run in self.runs)
        return f"{', '.join([*pairs, *tasks])}, n = {number} prompt{'' if number == '1' else 's'}"

    @property
    def footnotes(self) -> list[str]:
        """What stands below its tables in other documents, where no warning stands above them."""
        return [text for text in (MARKED if self.marked else "", read_differently(self.runs)) if text]

    @property
    def marked(self) -> bool:
        """Whether a speed, a time or a ratio of them was measured under mixed conditions."""
        return any(cell.mixed or cell.delta_mixed for row in self.rows for cell in row.cells)


def selected_runs(repository: Repository, run_ids: Sequence[str]) -> list[RunView]:
    """Return the runs that exist, in the order of their ids, at most ``MOST_COMPARED_RUNS``.

    Rounds of a calibration are one measurement for each setting (:func:`whole_rounds`).
    """
    runs = whole_rounds(repository, _existing(repository, run_ids))
    prompts = repository.prompts(run.id for run in runs if is_calibration_round(run))
    return [pool.run for pool in pooled(repository, runs, prompts)][:MOST_COMPARED_RUNS]


def _existing(repository: Repository, run_ids: Sequence[str]) -> list[RunView]:
    possible = [run_id for run_id in dict.fromkeys(run_ids) if _ID.fullmatch(run_id)][:_MOST_READ]
    by_id = {run.id: run for run in repository.runs(ids=possible, limit=None)} if possible else {}
    return [by_id[run_id] for run_id in possible if run_id in by_id]


def usual_margin(runs: Sequence[RunView]) -> float:
    """Return the points of accuracy that a calibration of the runs lets a setting lose, or else 2."""
    return next((run.trial.margin for run in runs if run.trial), DEFAULT_MARGIN)


def baseline_of(runs: Sequence[RunView], baseline_id: str | None) -> RunView | None:
    """Return the run of this id, or else the first run with metrics, of those measured here if there are any, or else
    the first run."""
    named = next((run for run in runs if baseline_id in run.ids), None)
    with_figures = sorted((run for run in runs if run.metrics), key=lambda run: run.measured_elsewhere)
    return named or next(iter(with_figures or runs), None)


def compare(
    repository: Repository, run_ids: Sequence[str], baseline_id: str | None, margin: Margin = "usual"
) -> ComparedRuns:
    """Compare the runs that exist, as :func:`selected_runs`. Unknown ids become a warning.

    Without a known baseline, the first run with metrics is the baseline. A margin outside of 0 to 20 points becomes a
    warning, and then no verdict is given.
    """
    requested = list(dict.fromkeys(run_ids))
    existing = _existing(repository, requested)
    rounds = whole_rounds(repository, existing)
    counts = repository.prompts(run.id for run in rounds if run.metrics or run.prompts_done)
    pools = pooled(repository, rounds, counts)[:MOST_COMPARED_RUNS]
    prompts = {pool.run.id: pool.prompts for pool in pools}
    runs = [so_far(pool.run, pool.prompts) for pool in pools]
    only_chose = {run.setting_id for run in existing} - {run.setting_id for run in rounds}
    warnings = (
        [f"{count(len(only_chose), 'setting')} did no fresh prompt of a calibration: left out."] if only_chose else []
    )
    try:
        margin = checked_margin(usual_margin(runs) if margin == "usual" else margin)
    except InvalidSetting as error:
        margin = None
        warnings.append(f"{error} No verdict is given.")
    most = _MOST_READ if any(run.rounds for run in runs) else MOST_COMPARED_RUNS
    warnings += request_warnings(requested, most, baseline_id, {run.id for run in existing})
    baseline = baseline_of(runs, baseline_id)
    names = run_names(runs)
    warnings += comparability(runs, names, prompts)
    if baseline is None:
        return ComparedRuns(runs, baseline, [], warnings, prompts, margin)
    warnings += unmatched_warnings(runs, baseline, prompts, names)
    results, same = cells(runs, baseline, prompts), same_texts(repository, runs, baseline)
    rows = []
    for run in runs:
        ended = all(side.status not in UNFINISHED for side in (run, baseline))
        told = _verdict(results[run.id], margin, run.id in same) if ended else None  # looked up anew at each prompt
        findings = told, slowdown(run, baseline, prompts)
        rows.append(ComparisonRow(run, names[run.id], run.id == baseline.id, results[run.id], *findings))
    verdicts = {row.run.id: row.verdict for row in rows}
    points = {id: 100 * cell.paired.difference for id, row in results.items() for cell in row if cell.paired}
    found = recommend(runs, baseline, prompts, names, verdicts, points, margin)
    if numbers := sorted({len(shared(run, baseline, prompts)[0]) for run in runs if run.id != baseline.id} - {0}):
        on = f"{numbers[0]:,} to " * (len(numbers) > 1) + count(numbers[-1], "prompt")
        found = found._replace(sentence=f"{found.sentence} On {on}.")
    times = times_text(runs, baseline, names, prompts)
    return ComparedRuns(runs, baseline, rows, warnings, prompts, margin, times, found)


def times_text(runs: Sequence[RunView], baseline: RunView, names: Mapping[str, str], prompts: Prompts) -> str:
    """Return which of the runs that share prompts with the baseline is the fastest by time per answer.

    It names those that are not told apart from it, and says which of them to prefer. Runs whose
    times cannot be compared, and drafts alone, which have no target passes, are left out.
    """
    drafts_alone = {run.id for run in runs if run.decoding.acceptance.kind == "draft-only"}
    timed = {id: p for id, p in comparable_times(runs, baseline, prompts).items() if id not in drafts_alone}
    if len(timed) < 2:
        return ""
    ranking = rank_by_time(timed)
    if ranking.equal:
        first = f"of those that may be the fastest, {names[ranking.first]} needs the fewest target passes"
        text = f"{equal_text([names[id] for id in (ranking.first, *ranking.equal)], ranking.within)}; {first}."
    else:
        text = f"{names[ranking.first]} takes the least time per answer."
    return f"{text} {taken_sentence(ranking.taken)}".rstrip()


def same_texts(repository: Repository, runs: Sequence[RunView], baseline: RunView) -> set[str]:
    """Return the ids of the runs that answered every prompt in common with the baseline with the baseline's text."""
    others = [run.id for run in runs if run.metrics and run.id != baseline.id and run.task == baseline.task]
    differing = repository.differing_texts(others, [baseline.id]) if others else {}
    return {id for id, number in differing.items() if not number}


def _verdict(cells: Sequence[Cell], margin: float | None, same_text: bool) -> Verdict | None:
    if margin is None:
        return None
    paired = next((cell.paired for cell in cells if cell.paired is not None), None)
    if paired is None:
        return None
    return identical(paired) if same_text and not paired.sequential else verdict(paired, margin)


class RunProgress(NamedTuple):
    """The progress of a run."""

    status: str
    prompts_done: int
    measured: bool


def progress(runs: Sequence[RunView]) -> dict[str, RunProgress]:
    """Return each run's progress by id. While it is unchanged, there is nothing new to show."""
    return {run.id: RunProgress(run.status, run.prompts_done, bool(run.metrics)) for run in runs}


def experiment_runs(repository: Repository, experiment_id: str) -> list[str]:
    """Return the ids of an experiment's runs in their order. Raises ``UnknownName`` if it does not exist."""
    if not _ID.fullmatch(experiment_id):
        raise UnknownName(f"There is no experiment {experiment_id[:40]!r} in this database.")
    return [run.id for run in repository.experiment(experiment_id).runs]
