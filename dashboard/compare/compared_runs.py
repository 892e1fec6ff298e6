"""The compared runs: whether they are comparable, and how each differs from the baseline.

These are plain values computed from the repository. The page and the exports render them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise, starmap
from typing import TYPE_CHECKING, Literal, NamedTuple

from fsd_core.analysis.cells import Cell, cells, displayed_columns, run_names, shared
from fsd_core.analysis.comparability import count_context_ends, read_differently, rendered_differently
from fsd_core.analysis.recommendation import Recommendation, Slowdown, comparable_times, recommend, slowdown
from fsd_core.config.model_names import called
from fsd_core.errors import InvalidSetting, UnknownName
from fsd_core.evaluation.aggregate import so_far
from fsd_core.evaluation.versus import equal_text, rank_by_time
from fsd_core.metrics import MIXED_MARK, SHARED_DEVICE, SHARED_EXECUTOR, differences, listed, taken_sentence
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.evidence import is_calibration_round, pooled, whole_rounds
from fsd_core.statistics.paired import Verdict, checked_margin, identical_verdict, verdict
from fsd_core.storage.records import UNENDED, same_model
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import Prompts, RunView
    from fsd_core.storage.repository import Repository


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
    if ended := count_context_ends(runs, prompts):
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

    def cell(self, key: str) -> Cell:
        """Return the cell of a metric."""
        return next(cell for cell in self.cells if cell.metric.key == key)


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
    def columns(self) -> list[tuple[Cell, ...]]:
        """The cells of each metric that the tables show, one for each row."""
        return displayed_columns([row.cells for row in self.rows])

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
    return identical_verdict(paired) if same_text and not paired.sequential else verdict(paired, margin)


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
