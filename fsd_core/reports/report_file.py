"""A report as HTML: its parts for a page, or one file that needs no network and runs no script."""

from __future__ import annotations

import base64
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from fsd_core.errors import DataDamaged, UnknownName
from fsd_core.plots.printed import printed
from fsd_core.reports.freezing import ChangedRuns, changed_runs
from fsd_core.storage.report_content import ReportView

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def report_body(report: ReportView, changes: ChangedRuns, address: Callable[[int], str]) -> str:
    """Return text, figures, tables and runs. ``address`` returns where the picture of a figure is, by its index."""
    pictures = [(figure.title, address(index)) for index, figure in enumerate(report.content.figures)]
    template = _templates().get_template("report.html").module
    return str(template.body(report, Markup(markdown_html(report.content.text)), pictures, changes))  # pyright: ignore[reportAttributeAccessIssue]


def report_html(repository: Repository, report: ReportView) -> str:
    """Return a report as one file, with its figures inside."""

    def inside(index: int) -> str:
        return f"data:image/svg+xml;base64,{base64.b64encode(figure_svg(report, index)).decode()}"

    body = report_body(report, changed_runs(repository, report.content.runs), inside)
    template = _templates().get_template("report.html").module
    return str(template.page(report.title, Markup(body))).lstrip()  # pyright: ignore[reportAttributeAccessIssue]


def figure_svg(report: ReportView, index: int) -> bytes:
    """Draw a figure of a report. Raises ``UnknownName`` if it has none of this index, from 0."""
    if not 0 <= index < len(report.content.figures):
        raise UnknownName(f"The report has {len(report.content.figures)} figures, and none is number {index}.")
    try:
        figure = go.Figure(report.content.figures[index].plot)
    except ValueError:
        raise DataDamaged(f"Figure {index} of the report {report.id} cannot be drawn: save it again.") from None
    return printed(figure, "svg")


def markdown_html(text: str) -> str:
    """Return Markdown as HTML. HTML in the text is text, and a picture is a link, so that nothing is fetched."""
    return _markdown().render(text)


@cache
def _markdown() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"]).disable(["image"])


@cache
def _templates() -> Environment:
    return Environment(loader=FileSystemLoader(Path(__file__).parent), autoescape=True, undefined=StrictUndefined)
