"""API endpoints that list and read reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import TypedDict

from dashboard.ui.endpoint import Endpoint, checked_limit
from fsd_core.reports.freezing import changed_runs
from fsd_core.storage.report_content import ReportName
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


class ReportNameAnswer(TypedDict):
    """A saved report, for programs. Newer versions may add fields."""

    report: str
    title: str
    version: str
    by: str
    at: str
    page: str
    file: str


class ReportAnswer(ReportNameAnswer):
    """A report with what it says."""

    subject: str
    text: str
    tables: list[dict[str, Any]]
    figures: list[str]
    runs: list[dict[str, Any]]
    changed_runs: list[str]
    deleted_runs: list[str]


def report_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    def list_reports(limit: int = 20) -> list[ReportNameAnswer]:
        """Return the latest saved reports, newest first, each with the addresses of its page and of its HTML file.

        Args:
            limit: how many, 1 to 100
        """
        return [_named(report, root_path) for report in repository.reports(checked_limit(limit))]

    def read_report(report: Id) -> ReportAnswer:
        """Return a report's text in Markdown, its tables, and its runs as they were, with those that changed since.

        Args:
            report: id of a report
        """
        view = repository.report(report)
        content, changes = view.content, changed_runs(repository, view.content.runs)
        return {
            **_named(view, root_path),
            "subject": content.subject,
            "text": content.text,
            "tables": [table.as_json() for table in content.tables],
            "figures": [figure.title for figure in content.figures],
            "runs": [run.as_json() for run in content.runs],
            "changed_runs": [run.id for run in changes.changed],
            "deleted_runs": [run.id for run in changes.deleted],
        }

    return [list_reports, read_report]


def _named(report: ReportName, root_path: str) -> ReportNameAnswer:
    return {
        "report": report.id,
        "title": report.title,
        "version": report.version,
        "by": report.who,
        "at": report.at.isoformat(),
        "page": f"{root_path}/reports?report={report.id}",
        "file": f"{root_path}/export/report.html?report={report.id}",
    }
