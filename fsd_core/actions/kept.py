"""What is done with reports and saved views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, Told, action
from fsd_core.actions.answers import checked_limit
from fsd_core.reports import changed_runs
from fsd_core.storage.catalogue import checked_view_page
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.tables import ReportRow, SavedViewRow


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
        "report": report.id,
        "title": report.title,
        "version": report.version,
        "by": report.who,
        "at": report.at.isoformat(),
        "page": f"{root_path}/reports?report={report.id}",
        "file": f"{root_path}/export/report.html?report={report.id}",
    }


def _tell_reports(reports: list[ReportNameAnswer]) -> Told:
    rows = [(it["report"], it["title"], it["by"], it["at"][:16].replace("T", " "), it["version"]) for it in reports]
    return Told(columns=("Id", "Title", "By", "Saved (UTC)", "Hash"), rows=rows)


@action("reports list", tells=_tell_reports)
def list_reports(
    ask: Ask,
    limit: Annotated[int, "how many, 1 to 100"] = 20,
) -> list[ReportNameAnswer]:
    """Return the latest saved reports, newest first, each with the addresses of its page and of its HTML file."""
    return [_named(report, ask.settings.root_path) for report in ask.repository.reports(checked_limit(limit))]


@action()
def read_report(
    ask: Ask,
    report: Annotated[Id, "id of a report"],
) -> ReportAnswer:
    """Return a report's text in Markdown, its tables, and its runs as they were, with those that changed since."""
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


class ViewAnswer(TypedDict):
    """A saved view. ``address`` shows it."""

    view: str
    page: str
    name: str
    query: str
    by: str
    at: str
    address: str


def _described(ask: Ask, view: SavedViewRow) -> ViewAnswer:
    return {
        "view": view.id, "page": view.page, "name": view.name, "query": view.query, "by": view.who,
        "at": view.at.isoformat(), "address": f"{ask.settings.root_path}/{view.address}",
    }  # fmt: skip


@action()
def list_views(
    ask: Ask,
    page: Annotated[str, "runs or compare. Default: both"] = "",
) -> list[ViewAnswer]:
    """Return the saved views, each with the address that shows it."""
    return [_described(ask, view) for view in ask.repository.saved_views(checked_view_page(page) if page else None)]


@action(role="author", doing="Saving a view", writes=True, repeatable=True)
def save_view(
    ask: Ask,
    page: Annotated[Literal["runs", "compare"], "runs or compare"],
    name: Annotated[str, "1 to 80 characters"],
    query: Annotated[
        str, "what stands behind the question mark of the page's address, such as pair=bundled&sort=accuracy"
    ],
) -> ViewAnswer:
    """Name what the page Runs or Compare shows, for the whole team.

    A view of one's own of this name is replaced, so the same call done twice is done once.
    """
    return _described(ask, ask.repository.save_view(uuid4().hex, page, name, query, ask.person))


@action(role="author", doing="Renaming a view", writes=True, repeatable=True)
def rename_view(
    ask: Ask,
    view: Annotated[Id, "id of a view"],
    name: Annotated[str, "1 to 80 characters"],
) -> ViewAnswer:
    """Give a saved view of one's own another name."""
    return _described(ask, ask.repository.rename_view(view, name, ask.person))
