"""Reports page: all saved reports, as pages, files and answers for programs. ``?report=`` opens one."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import gradio as gr
from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from dashboard.tables.list_page import Listing, ListPage, orders_of
from dashboard.ui import components
from dashboard.ui.api_call import answered
from dashboard.ui.components import Column, dead_end, heading, notice, show
from dashboard.ui.page import Page
from dashboard.ui.templates import Html, copy_link, downloads, frozen_html, render
from dashboard.ui.view import Act, Asked, Updates, View, together
from fsd_core.errors import FsdError, Refused, UnknownName
from fsd_core.roles import Person, require_person, same_name
from fsd_core.storage.tables import ReportRow
from fsd_core.texts import slug
from fsd_plugins.reports.frozen import changed_runs, figure_svg, report_body, report_html

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.catalogue import ReportView
    from fsd_core.storage.repository import Repository


_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Content-Security-Policy of a picture that is opened by itself"""


def routes(repository: Repository, settings: Settings) -> APIRouter:
    """Return the routes ``GET /export/report.html`` and ``.svg``. Their query names the report, and the figure."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/report.html")
    def report_file(report: str = "") -> Response:
        def answer() -> Response:
            view = repository.report(report)
            name = slug(view.row.title, 80) or "report"
            disposition = f'attachment; filename="{name}.html"'
            return HTMLResponse(report_html(repository, view), headers={"Content-Disposition": disposition})

        return answered(answer, 500)

    @router.get("/report.svg")
    def report_figure(report: str = "", figure: int = 0) -> Response:
        def answer() -> Response:
            # A report never changes, but it may be deleted, and who may read it may change.
            headers = {"Content-Security-Policy": _PICTURE_POLICY, "Cache-Control": "private, max-age=3600"}
            return Response(figure_svg(repository.report(report), figure), media_type="image/svg+xml", headers=headers)

        return answered(answer, 500)

    return router


_LEAD = "Text, figures and tables of runs as they were when somebody saved them. Compare saves a new one."
_COLUMNS = {
    "report": Column("Report", "wide", "title"), "by": Column("By", "", "who"),
    "saved": Column("Saved", "", "at", "newest first"), "hash": Column("Hash"),
}  # fmt: skip
_DELETE = "delete-report"
REPORTS: Listing[ReportRow] = Listing(
    "Reports", _COLUMNS, partial(render, "reports/reports.html", "cell"), render("reports/reports.html", "empty"),
    orders_of(_COLUMNS), "saved",
)  # fmt: skip


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ReportsPage(repository)


class ReportsPage:
    """The list of reports, or the one that the address names."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.message = show()
        with gr.Column(visible=False) as self.list_part:
            show(heading("Reports", _LEAD))
            count, rows = repository.count_reports, repository.reports
            self.list = ListPage("reports", "report", REPORTS, count, rows, "Title, or who saved it")
        with gr.Column(visible=False) as self.report_part:
            self.head = show(js_on_load=components.CLICKS)
            self.opened = show(elem_id="report")
        self._parts = [self.list_part, self.report_part]
        view = self._view = View(self.message, self.fail)
        self.list.listen(view)
        view.act(_DELETE, self.delete)
        view.on(self.head.click)
        view.listen(self.redraw, *together([self.list], outputs=[*self._parts, self.head, self.opened]))

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the report that the address names, or of the list."""
        id = asked.address.get("report")
        if not id:
            return self.list.redraw(asked) | self._view.only(asked, self._parts, self.list_part)
        try:
            report = self.repository.report(id)
        except UnknownName as error:
            return self._view.only(asked, self._parts, None, dead_end(str(error), "reports", "See all reports"))
        changes = changed_runs(self.repository, report.content.runs)
        updates = self._view.only(asked, self._parts, self.report_part)
        if asked.differs("report", report.row.version, changes, asked.person):
            picture = f"export/report.svg?report={report.row.id}&figure="
            body = report_body(report, changes, lambda index: f"{picture}{index}")
            updates |= {self.head: head_html(report, asked.person), self.opened: frozen_html(body)}
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: dead_end(str(error), "reports", "See all reports")}
        return {self.message: notice(str(error), "bad")}

    def delete(self, act: Act, asked: Asked) -> Updates:
        """Delete a report, of one's own or as an admin."""
        try:
            report = self.repository.report(act["id"]).row
        except UnknownName:
            return {}  # done already: the page says that it is gone
        require_person(asked.person, "author", "Deleting a report")
        if not may_delete(report, asked.person):
            raise Refused(f"{report.who} saved this report: only they and admins may delete it.")
        self.repository.delete_report(report.id)
        return {}


def may_delete(report: ReportRow, person: Person) -> bool:
    """Whether a person may delete a report: its author, or an admin."""
    return person.may("admin") or (person.may("author") and person.known and same_name(person.name, report.who))


def head_html(report: ReportView, person: Person) -> Html:
    """Return the buttons and links of a report."""
    delete, comparison = Html(), f"compare?{report.content.query}"
    if may_delete(report.row, person):
        question = f"Delete the report “{report.row.title}”? Its runs stay. This cannot be undone."
        delete = components.button(_DELETE, "report", report.row.id, "Delete", question)
    files = downloads([(f"export/report.html?report={report.row.id}", "Export HTML")])
    return render("reports/reports.html", "head", comparison, files, copy_link(), delete)


PAGE = Page("Reports", "reports", build)
