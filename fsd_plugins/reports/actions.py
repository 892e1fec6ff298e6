"""What is done with reports. The command line reads this module at its start, so each imports what it needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, Told, action
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.tables import ReportRow


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


def _named(report: ReportRow, root_path: str) -> ReportNameAnswer:
    return {
        "report": report.id, "title": report.title, "version": report.version, "by": report.who,
        "at": report.at.isoformat(), "page": f"{root_path}/reports?report={report.id}",
        "file": f"{root_path}/export/report.html?report={report.id}",
    }  # fmt: skip


def _tell_reports(reports: list[ReportNameAnswer]) -> Told:
    rows = [(it["report"], it["title"], it["by"], it["at"][:16].replace("T", " "), it["version"]) for it in reports]
    return Told(columns=("Id", "Title", "By", "Saved (UTC)", "Hash"), rows=rows)


@action("reports list", tells=_tell_reports)
def list_reports(ask: Ask, limit: Annotated[int, "how many, 1 to 100"] = 20) -> list[ReportNameAnswer]:
    """Return the latest saved reports, newest first, each with the addresses of its page and of its HTML file."""
    from fsd_core.actions.answers import checked_limit

    return [_named(report, ask.settings.root_path) for report in ask.repository.reports(checked_limit(limit))]


@action()
def read_report(ask: Ask, report: Annotated[Id, "id of a report"]) -> ReportAnswer:
    """Return a report's text in Markdown, its tables, and its runs as they were, with those that changed since."""
    from fsd_plugins.reports.frozen import changed_runs

    view = ask.repository.report(report)
    content, changes = view.content, changed_runs(ask.repository, view.content.runs)
    return {
        **_named(view.row, ask.settings.root_path),
        "subject": content.subject,
        "text": content.text,
        "tables": [table.as_json() for table in content.tables],
        "figures": [figure.title for figure in content.figures],
        "runs": [run.as_json() for run in content.runs],
        "changed_runs": [run.id for run in changes.changed],
        "deleted_runs": [run.id for run in changes.deleted],
    }
