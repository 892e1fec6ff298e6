"""Content of a report: values that never change once it is saved."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field, StringConstraints

from fsd_core.frozen import Frozen

LONGEST_REPORT_TITLE = 200
LONGEST_REPORT_TEXT = 50_000
MOST_REPORT_RUNS = 100

_Id = Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")]


class ReportRun(Frozen):
    """A run as it was. ``digest`` identifies its measurement (:func:`fsd_core.reports.freezing.run_digest`)."""

    id: _Id
    name: str
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{16}$")]


class ReportTable(Frozen):
    """A table as texts: a title for each column, and a text for each column of each row."""

    title: str
    columns: list[str]
    rows: list[list[str]]
    note: str = ""


class ReportFigure(Frozen):
    """A figure as the data that Plotly draws it from."""

    title: str
    plot: dict[str, Any]


class ReportContent(Frozen):
    """All that is frozen. ``text`` is Markdown. ``query`` is that of the comparison on the page Compare."""

    title: str = Field(title="Title", min_length=1, max_length=LONGEST_REPORT_TITLE)
    text: str = Field(title="Text", max_length=LONGEST_REPORT_TEXT)
    subject: str
    query: str
    runs: list[ReportRun] = Field(title="Runs", min_length=1, max_length=MOST_REPORT_RUNS)
    figures: list[ReportFigure]
    tables: list[ReportTable]


@dataclass(frozen=True)
class ReportName:
    """A report in a list. ``version`` is the hash of its content."""

    id: str
    title: str
    version: str
    who: str
    at: datetime


@dataclass(frozen=True)
class ReportView(ReportName):
    """A report with what it holds."""

    content: ReportContent
