"""What programs may ask of runs: lists of them, and comparisons as the page Compare makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dashboard.compare.compared_runs import DEFAULT_MARGIN, MOST_COMPARED_RUNS, compare, experiment_runs
from dashboard.compare.export_files import record
from dashboard.compare.export_links import query_of
from dashboard.tables.run_record import run_record
from dashboard.ui.endpoint import Endpoint
from fsd_core.errors import InvalidSetting, UnknownName

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def comparison_endpoints(repository: Repository) -> list[Endpoint]:
    def list_runs(
        search: str = "", experiment: str = "", limit: int = 20, archived: bool = False
    ) -> list[dict[str, Any]]:
        """The latest runs with their options and metrics, the newest first.

        Args:
            search: words of a run's setting, experiment, task or tags; left out, all runs
            experiment: id of an experiment; left out, those of all
            limit: how many, 1 to 100
            archived: whether archived ones are among them
        """
        which = {"search": search, "experiment_id": experiment or None, "archived": None if archived else False}
        found = repository.runs(limit=max(1, min(limit, 100)), **which)  # pyright: ignore[reportArgumentType]
        return [run_record(run) for run in found]

    def compare_runs(
        runs: list[str] = [],  # noqa: B006  # read, never written; a tuple would have no schema
        experiment: str = "",
        baseline: str = "",
        margin: float = DEFAULT_MARGIN,
    ) -> dict[str, Any]:
        """Runs beside a baseline on the prompts that both have done: every metric, its difference or ratio with its
        95 % interval, a verdict on accuracy, and warnings where they do not stand on equal ground. Shares are from 0
        to 1.

        Args:
            runs: ids of the runs
            experiment: id of an experiment, instead of its runs' ids
            baseline: id of the run to compare with; left out, the first that has figures
            margin: points of accuracy that may be lost, 0 to 20, for the verdict
        """
        ids = runs or (experiment_runs(repository, experiment) if experiment else [])
        if not ids:
            raise InvalidSetting(f"No run is named: give runs (at most {MOST_COMPARED_RUNS} ids), or an experiment.")
        comparison = compare(repository, ids, baseline or None, margin)
        if not comparison.runs:
            raise UnknownName("None of these runs is in this database: list_runs has those that are.")
        return {
            "baseline": comparison.baseline.id if comparison.baseline else None,
            "rows": [record(row, comparison.margin) for row in comparison.rows],
            "warnings": comparison.warnings,
            "page": f"/compare?{query_of(comparison)}",
        }

    return [list_runs, compare_runs]
