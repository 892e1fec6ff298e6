"""Files of reports: the whole as HTML, and its figures one by one for the page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse, PlainTextResponse

from fsd_core.errors import DatabaseUnavailable, FsdError, UnknownName
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
            name = re.sub(r"[^a-z0-9]+", "-", view.title.lower()).strip("-")[:80] or "report"
            disposition = f'attachment; filename="{name}.html"'
            return HTMLResponse(report_html(repository, view), headers={"Content-Disposition": disposition})

        return _answered(answer)

    @router.get("/report.svg")
    def report_figure(report: str = "", figure: int = 0) -> Response:
        def answer() -> Response:
            # A report never changes, but it may be deleted, and who may read it may change.
            headers = {"Content-Security-Policy": _PICTURE_POLICY, "Cache-Control": "private, max-age=3600"}
            return Response(figure_svg(repository.report(report), figure), media_type="image/svg+xml", headers=headers)

        return _answered(answer)

    return router


def _answered(answer: Callable[[], Response]) -> Response:
    """Return an answer, or why there is none, as a sentence."""
    try:
        return answer()
    except UnknownName as error:
        return PlainTextResponse(str(error), 404)
    except DatabaseUnavailable as error:
        return PlainTextResponse(str(error), 503)
    except FsdError as error:
        return PlainTextResponse(str(error), 500)
