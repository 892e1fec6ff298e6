"""Results of other tools, stored as runs that are marked as imported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.errors import InvalidSetting, Unreadable
from fsd_core.evaluation.logged_figures import LoggedFigures, checked_origin
from fsd_core.evaluation.result_files.result_reading import ReadFile
from fsd_core.evaluation.result_files.tool_result import ToolResult, shortened
from fsd_core.formatting import count
from fsd_core.rules import ImportedSeries
from fsd_core.rules.measured_series import LONGEST_SERIES_NAME, one_line
from fsd_core.storage.database.repository import Repository


class ImportedRun(NamedTuple):
    """A measurement that is stored."""

    id: str
    label: str
    is_new: bool
    """whether it was not there before"""


def import_results(
    repository: Repository, files: Sequence[ReadFile], *, task: str = "", model: str = "", family: str = ""
) -> list[ImportedRun]:
    """Store the measurements of files, each once, however often a file is imported. Returns them in their order.

    ``task``, ``model`` and ``family`` replace what the files say. All is checked before anything is stored. Raises
    ``InvalidSetting``.
    """
    changes = {
        what: one_line(text, what, LONGEST_SERIES_NAME)
        for what, text in (("task", task), ("model", model), ("family", family))
        if text.strip()
    }
    checked = [
        (read, index, *_checked(read, result, changes)) for read in files for index, result in enumerate(read.results)
    ]
    runs = []
    for read, index, config, metrics, origin in checked:
        key = " ".join([read.tool, read.sha256, str(index), *(f"{name}={value}" for name, value in changes.items())])
        id, is_new = repository.log_run(config, metrics, origin, key)
        runs.append(ImportedRun(id, config.setting.decoding.label, is_new))
    return runs


def added_text(runs: Sequence[ImportedRun]) -> str:
    """Return how many runs were added, and how many were there before."""
    new = sum(run.is_new for run in runs)
    known = len(runs) - new
    before = f" {count(known, 'run')} {'was' if known == 1 else 'were'} here already." * bool(known)
    return f"Added {count(new, 'run')}.{before}"


def _checked(
    read: ReadFile, result: ToolResult, changes: Mapping[str, str]
) -> tuple[RunConfig, dict[str, Any], dict[str, Any]]:
    try:
        counts = {name: value for name, value in result.counts.items() if value is not None}
        answered = result.prompts > counts.get("failed", 0)  # else tools write 0 for what nothing was measured of
        figures = {name: value for name, value in result.figures.items() if value is not None and answered}
        logged = LoggedFigures.checked(prompts=result.prompts, **counts, figures=figures)
        series = ImportedSeries.checked(
            name=result.name, family=changes.get("family", result.family), values=tuple(result.knobs.items())
        )
        setting = SettingConfig(
            pair=changes.get("model") or shortened(result.model) or read.tool,
            decoding=DecodingConfig(acceptance=series),
        )
        config = RunConfig(setting=setting, limit=logged.prompts, task=changes.get("task", result.task))
        facts = {
            name: shortened(value, 300) if isinstance(value, str) else value
            for name, value in result.facts.items()
            if value is not None and value != ""
        }
        origin = {"tool": read.tool, "file": read.file, "sha256": read.sha256}
        origin |= facts | {"imported on": f"{datetime.now(UTC):%Y-%m-%d}"}
        return config, logged.metrics(), checked_origin(origin)
    except InvalidSetting as error:
        raise Unreadable(f"{read.file} cannot be imported, '{result.name}': {error}") from None
