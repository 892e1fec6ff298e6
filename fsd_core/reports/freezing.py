"""Runs and figures as a report keeps them, and what has happened to the runs since."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import plotly.graph_objects as go

from fsd_core.frozen import text_hash
from fsd_core.plots.printed import plain_title
from fsd_core.storage.report_content import ReportFigure, ReportRun

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView


class ChangedRuns(NamedTuple):
    """Runs of a report that are no longer as they were when it was saved."""

    changed: list[ReportRun]
    deleted: list[ReportRun]


def run_digest(run: RunView) -> str:
    """Return 16 hex digits that identify a run's measurement.

    They change when the run continues or is rescored. Notes, tags, votes and where its models are count for nothing.
    """
    measurement = [
        run.id, run.config.at("").as_json(), run.status, run.prompts_done, round(run.decoding_seconds, 6),
        [[key, (run.metrics or {}).get(key)] for key in ("correct", "wrong", "truncated", "failed", "tokens")],
    ]  # fmt: skip
    return text_hash(json.dumps(measurement, sort_keys=True, separators=(",", ":")))


def frozen_runs(runs: Iterable[RunView], names: Mapping[str, str]) -> list[ReportRun]:
    """Return runs with their ``names`` (by id) and digests."""
    return [ReportRun(id=run.id, name=names[run.id], digest=run_digest(run)) for run in runs]


def changed_runs(repository: Repository, runs: Iterable[ReportRun]) -> ChangedRuns:
    """Compare the runs of a report with what is stored now."""
    kept = list(runs)
    stored = {run.id: run_digest(run) for run in repository.runs(ids=[run.id for run in kept], limit=None)}
    changed = [run for run in kept if run.id in stored and stored[run.id] != run.digest]
    return ChangedRuns(changed, [run for run in kept if run.id not in stored])


def frozen_figure(figure: go.Figure) -> ReportFigure:
    """Return a figure as plain data, without what only a page needs: its template, addresses and hover texts."""
    plot: dict[str, Any] = figure.to_plotly_json()
    layout = {key: value for key, value in plot.get("layout", {}).items() if key not in ("template", "meta")}
    data = [{key: value for key, value in trace.items() if key != "hovertext"} for trace in plot.get("data", [])]
    return ReportFigure(title=plain_title(figure), plot={"data": _plain_data(data), "layout": _plain_data(layout)})


def _plain_data(value: Any) -> Any:
    """Return arrays as lists, and numbers that are not finite as ``None``."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, dict):
        return {key: _plain_data(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_data(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
