"""Files of reports: the whole as HTML, and its figures one by one for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from dashboard.ui.file_answers import answered
from fsd_core.formatting import slug
from fsd_core.reports.report_file import figure_svg, report_html

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
"""Content-Security-Policy of a picture that is opened by itself"""


def report_routes(repository: Repository) -> APIRouter:
    """Return the routes ``GET /export/report.html`` and ``.svg``. Their query names the report, and the figure."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/report.html")
    def report_file(report: str = "") -> Response:
        def answer() -> Response:
            view = repository.report(report)
            name = slug(view.title, 80) or "report"
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
