"""Export of a comparison: links on the page, and the routes they lead to. Nothing is stored on disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from fastapi import APIRouter, Response
from fastapi.responses import PlainTextResponse

from dashboard.compare.compared_runs import ComparedRuns, Margin, compare, usual_margin
from dashboard.compare.export_files import csv_text, html, matched_csv
from dashboard.compare.latex import latex
from dashboard.tables.spreadsheet import download
from dashboard.ui.links import downloads
from dashboard.ui.templates import Html
from fsd_core.errors import DatabaseUnavailable

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

FORMATS: dict[str, tuple[Callable[[ComparedRuns], str], str]] = {
    "csv": (csv_text, "text/csv"),
    "html": (html, "text/html"),
    "tex": (latex, "application/x-tex"),
    "matched.csv": (matched_csv, "text/csv"),
}
_TITLES = {"csv": "CSV", "html": "HTML", "tex": "LaTeX", "matched.csv": "matched points"}
NO_RUNS = "No run is named: expected ?runs= with ids between commas, and baseline= if it is not the first run."
UNKNOWN = "None of these runs is in this database: choose runs on the Compare page, and export them there."


def query_of(runs: Sequence[RunView], baseline: RunView | None, margin: float | None) -> str:
    """Return the query string of a comparison's address, or an empty string if nothing is compared."""
    if not runs or not baseline:
        return ""
    ids = ",".join(run.id for run in runs)
    margins = {} if margin in (None, usual_margin(runs)) else {"margin": f"{margin:g}"}
    return urlencode({"runs": ids, "baseline": baseline.id} | margins, safe=",")


def named_runs(text: str) -> list[str]:
    """Return the run ids in such a query."""
    return [part.strip() for part in text.split(",") if part.strip()]


def named_margin(text: str) -> Margin:
    """Return the margin in such a query, in points, or ``None`` if it is not a number."""
    if not text:
        return "usual"
    try:
        margin = float(text)
    except ValueError:
        return None
    return margin if isfinite(margin) else None


class NamedPrompt(NamedTuple):
    """One prompt as two runs answered it."""

    run_a: str
    run_b: str
    number: int
    """from 1"""

    @property
    def query(self) -> str:
        return urlencode({"a": self.run_a, "b": self.run_b, "prompt": self.number})


def named_prompt(query: Mapping[str, str]) -> NamedPrompt | None:
    """Return the prompt that an address names, or ``None`` if it names none or an invalid one."""
    number = query.get("prompt", "")
    if not (number.isascii() and number.isdigit() and len(number) < 10 and query.get("a") and query.get("b")):
        return None
    return NamedPrompt(query["a"], query["b"], int(number))


def links_html(comparison: ComparedRuns) -> Html:
    """Return a link for each format."""
    query = query_of(comparison.runs, comparison.baseline, comparison.margin)
    files = ((f"export/comparison.{name}?{query}", f"Export {_TITLES[name]}") for name in FORMATS)
    return downloads(files) if query else Html()


def export_routes(repository: Repository) -> APIRouter:
    """Return the routes ``GET /export/comparison.csv``, ``.html``, ``.tex`` and ``.matched.csv``.

    Their query names the runs and the baseline.
    """
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
        return download(write(comparison), media_type, f"comparison.{extension}")

    return router
