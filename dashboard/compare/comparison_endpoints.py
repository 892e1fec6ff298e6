"""API endpoints that list runs and compare them as the Compare page does."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from dashboard.compare.compared_runs import MOST_COMPARED_RUNS, compare, experiment_runs
from dashboard.compare.export_files import record
from dashboard.compare.export_links import query_of
from dashboard.tables.run_record import RunAnswer, run_record
from dashboard.ui.endpoint import Endpoint, checked_limit
from fsd_core.errors import NotGiven, UnknownName
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


class ComparisonAnswer(TypedDict):
    """Runs beside a baseline, for programs. Each row has the columns of the CSV file."""

    baseline: str | None
    rows: list[dict[str, Any]]
    warnings: list[str]
    times: Any
    answer: str | None
    best: str | None
    undecided: str | None
    prompts_to_decide: int | None
    page: str


def comparison_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    def list_runs(search: str = "", experiment: Id = "", limit: int = 20, archived: bool = False) -> list[RunAnswer]:
        """Return the latest runs with their options and metrics, newest first.

        Args:
            search: words of a run's setting, experiment, task or tags. Default: all runs
            experiment: id of an experiment. Default: all experiments
            limit: how many, 1 to 100
            archived: whether to include archived runs
        """
        filters = {"search": search, "experiment_id": experiment or None, "archived": None if archived else False}
        views = repository.runs(limit=checked_limit(limit), **filters)  # pyright: ignore[reportArgumentType]
        return [run_record(run) for run in views]

    def compare_runs(
        runs: list[Id] = [],  # noqa: B006  # read, never written; a tuple would have no schema
        experiment: Id = "",
        baseline: Id = "",
        margin: float | None = None,
    ) -> ComparisonAnswer:
        """Compare runs with a baseline on the prompts that both have done. Shares are from 0 to 1.

        Returns every metric, its difference or ratio with its 95 % interval, a verdict on accuracy, which run is the
        fastest and what time does not tell apart from it, and warnings if the runs are not comparable. The answer says
        in a sentence which run is the fastest within the margin (best), or which lossy run (undecided) how many prompts
        in all would decide.

        Args:
            runs: ids of the runs
            experiment: id of an experiment, instead of its runs' ids
            baseline: id of the run to compare with. Default: the first that has metrics
            margin: points of accuracy that may be lost, 0 to 20. Default: those of the runs' calibration, or 2
        """
        ids = runs or (experiment_runs(repository, experiment) if experiment else [])
        if not ids:
            raise NotGiven(f"No run is named: give runs (at most {MOST_COMPARED_RUNS} ids), or an experiment.")
        comparison = compare(repository, ids, baseline or None, "usual" if margin is None else margin)
        if not comparison.runs:
            raise UnknownName("None of these runs is in this database: list_runs has those that are.")
        found = comparison.recommendation
        return {
            "baseline": comparison.baseline.id if comparison.baseline else None,
            "rows": [record(row, comparison.margin) for row in comparison.rows],
            "warnings": comparison.warnings,
            "times": comparison.times,
            "answer": found.sentence if found else None,
            "best": comparison.best,
            "undecided": found.undecided_id if found else None,
            "prompts_to_decide": found.prompts if found else None,
            "page": f"{root_path}/compare?{query_of(comparison.runs, comparison.baseline, comparison.margin)}",
        }

    return [list_runs, compare_runs]
