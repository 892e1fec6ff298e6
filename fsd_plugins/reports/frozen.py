"""Reports: text, figures and tables of runs, frozen with the hashes of these runs, and as one file."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from fsd_core.errors import DataDamaged, UnknownName
from fsd_core.frozen import text_hash
from fsd_core.plots.printed import plain_title, printed
from fsd_core.storage.catalogue import ReportFigure, ReportRun, ReportView
from fsd_core.texts import markdown_html

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository

_FOLDER = Path(__file__).parent


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


def report_body(report: ReportView, changes: ChangedRuns, address: Callable[[int], str]) -> str:
    """Return text, figures, tables and runs. ``address`` returns where the picture of a figure is, by its index."""
    pictures = [(figure.title, address(index)) for index, figure in enumerate(report.content.figures)]
    runs = [(run.name, run.id, run.digest) for run in report.content.runs]
    return str(_template().body(report, Markup(markdown_html(report.content.text)), pictures, changes, runs))


def report_html(repository: Repository, report: ReportView) -> str:
    """Return a report as one file, with its figures inside."""

    def inside(index: int) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(figure_svg(report, index)).decode()}"

    body = report_body(report, changed_runs(repository, report.content.runs), inside)
    styles = (_FOLDER / "reports.css").read_text(encoding="utf-8")
    return str(_template().page(report.row.title, Markup(styles), Markup(body))).lstrip()


def figure_svg(report: ReportView, index: int) -> bytes:
    """Draw a figure of a report. Raises ``UnknownName`` if it has none of this index, from 0."""
    if not 0 <= index < len(report.content.figures):
        raise UnknownName(f"The report has {len(report.content.figures)} figures, and none is number {index}.")
    try:
        figure = go.Figure(report.content.figures[index].plot)
    except ValueError:
        raise DataDamaged(f"Figure {index} of the report {report.row.id} cannot be drawn: save it again.") from None
    return printed(figure, "svg")


@cache
def _template() -> Any:
    templates = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined)
    return templates.get_template("report.html").module
