"""A comparison saved as a file: the links on the page, and the addresses that they lead to. Nothing is kept on disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from dashboard.compare.comparison import DEFAULT_MARGIN, Comparison, compare
from dashboard.compare.export_files import csv_text, html
from dashboard.compare.latex import latex
from dashboard.ui.components import escape
from fsd_core.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository

FORMATS: dict[str, tuple[Callable[[Comparison], str], str]] = {
    "csv": (csv_text, "text/csv"),
    "html": (html, "text/html"),
    "tex": (latex, "application/x-tex"),
}
TITLES = {"csv": "CSV", "html": "HTML", "tex": "LaTeX"}
NO_RUNS = "No run is named: expected ?runs= with ids between commas, and baseline= if it is not the first run."
UNKNOWN = "None of these runs is in this database: choose runs on the Compare page, and export them there."


def query_of(comparison: Comparison) -> str:
    """What follows the question mark of an address that leads to this comparison; empty where nothing is compared."""
    if not comparison.runs or not comparison.baseline:
        return ""
    ids = ",".join(run.id for run in comparison.runs)
    margin = {} if comparison.margin in (None, DEFAULT_MARGIN) else {"margin": f"{comparison.margin:g}"}
    return urlencode({"runs": ids, "baseline": comparison.baseline.id} | margin, safe=",")


def named_runs(text: str) -> list[str]:
    """The ids in the query of such an address."""
    return [part.strip() for part in text.split(",") if part.strip()]


def named_margin(text: str) -> float | None:
    """The margin in the query of such an address, in points; ``None`` for what is no number."""
    try:
        return float(text) if text else DEFAULT_MARGIN
    except ValueError:
        return None


def links_html(comparison: Comparison) -> str:
    """A link for each format. They are downloads and not navigations, which would end the page's connections."""
    query = query_of(comparison)
    links = (
        f'<a class="fsd-button" href="/export/comparison.{name}?{escape(query)}" download>Export {TITLES[name]}</a>'
        for name in FORMATS
    )
    return f'<div class="fsd-buttons">{"".join(links)}</div>' if query else ""


def export_routes(repository: Repository) -> APIRouter:
    """``GET /export/comparison.csv``, ``.html`` and ``.tex``, of the runs and the baseline that the query names."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/comparison.{extension}")
    def export(extension: str, runs: str = "", baseline: str | None = None, margin: str = "") -> Response:
        write, media_type = FORMATS[extension]
        ids = named_runs(runs)
        if not ids:
            return PlainTextResponse(NO_RUNS, 400)
        try:
            comparison = compare(repository, ids, baseline, named_margin(margin))
        except DatabaseUnavailable as error:
            return PlainTextResponse(str(error), 503)
        if not comparison.runs:
            return PlainTextResponse(UNKNOWN, 404)
        disposition = f'attachment; filename="comparison.{extension}"'
        return Response(write(comparison), media_type=media_type, headers={"Content-Disposition": disposition})

    return router
