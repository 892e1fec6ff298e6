"""One figure of runs as a file, and at the one address that other sites may show in a frame."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import plotly.graph_objects as go
import plotly.io as pio
from fastapi import APIRouter, Response
from fastapi.responses import HTMLResponse

from dashboard.compare.compared_runs import DEFAULT_MARGIN, compare
from dashboard.compare.export_links import NO_RUNS, UNKNOWN, named_margin, named_runs
from dashboard.ui.file_answers import answered
from dashboard.ui.templates import document
from fsd_core.errors import NotGiven, UnknownName
from fsd_core.formatting import slug
from fsd_core.plots.gallery import named_figure
from fsd_core.plots.printed import PRINT_FORMATS, light, plain_title, printed
from fsd_core.plots.style import EXPORT_CONFIG

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

FRAME_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'unsafe-inline'",  # Plotly, which is in the page
        "style-src 'unsafe-inline'",
        "img-src data: blob:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors *",
        "sandbox allow-scripts allow-downloads",
    )
)
"""Content-Security-Policy of the figure's address. Any site may frame it: nothing on it can be done for a visitor. It
loads nothing and has an origin of its own, so it reaches neither the app nor the site around it."""
_MARKER = "<!--figure-->"  # in the template: Plotly's script must not be escaped, and escaped data cannot contain it
_STYLES = """
html, body { height: 100%; margin: 0; background: #fff; color: #1b1d21; font: 14px/1.45 system-ui, sans-serif; }
body { display: flex; flex-direction: column; }
.figure { flex: 1; position: relative; min-height: 240px; }
.figure > div { position: absolute; inset: 0; }
p { margin: 0; padding: 4px 16px 12px; color: #50545c; font-size: 12.5px; }
"""


class DrawnFigure(NamedTuple):
    """A figure, and what it is of."""

    figure: go.Figure
    subject: str
    file_name: str
    """without its end"""


def draw_figure(
    repository: Repository, name: str, runs: str, baseline: str | None, margin: str = "", cost: str = "target_passes"
) -> DrawnFigure:
    """Draw a figure as an address names it, with ids of runs between commas.

    Raises ``InvalidSetting`` for an unknown figure, ``UnknownName`` if none of the runs exists.
    """
    if not (ids := named_runs(runs)):
        raise NotGiven(NO_RUNS)
    comparison = compare(repository, ids, baseline, named_margin(margin))
    if not comparison.runs:
        raise UnknownName(UNKNOWN)
    points = DEFAULT_MARGIN if comparison.margin is None else comparison.margin
    compared = comparison.runs, comparison.baseline, comparison.prompts
    figure = named_figure(name, *compared, cost=cost, margin=points, marked=comparison.best)
    one = f" run {comparison.runs[0].id[:8]}" if len(comparison.runs) == 1 else ""
    file_name = slug(f"{plain_title(figure)}{one}", 100) or "figure"
    return DrawnFigure(figure, comparison.subject, file_name)


def figure_page(drawn: DrawnFigure) -> str:
    """Return a page of its own that needs no network: the figure on white, which tells its points when hovered."""
    title, subject = plain_title(drawn.figure), f"{drawn.subject}. FSD Lab."
    page = document("compare/figure.html", "page", _STYLES, title=title, subject=subject)
    script = pio.to_html(
        light(drawn.figure), full_html=False, include_plotlyjs=True, config=EXPORT_CONFIG, default_height="100%"
    )
    return page.replace(_MARKER, script, 1)


def figure_routes(repository: Repository) -> APIRouter:
    """Return the routes ``GET /export/figure.png``, ``.svg``, ``.pdf`` and ``.html``, and ``GET /embed/figure``."""
    router = APIRouter(include_in_schema=False)

    @router.get("/export/figure.{extension}")
    def export_figure(
        extension: str, figure: str = "", runs: str = "", baseline: str | None = None, margin: str = "",
        cost: str = "target_passes",
    ) -> Response:  # fmt: skip
        def file() -> Response:
            drawn = draw_figure(repository, figure, runs, baseline, margin, cost)
            named = {"Content-Disposition": f'attachment; filename="{drawn.file_name}.{extension}"'}
            if extension == "html":
                return HTMLResponse(figure_page(drawn), headers=named)
            return Response(printed(drawn.figure, extension), media_type=PRINT_FORMATS[extension], headers=named)

        return answered(file, 400)

    @router.get("/embed/figure")
    def embed_figure(
        figure: str = "", runs: str = "", baseline: str | None = None, margin: str = "", cost: str = "target_passes"
    ) -> Response:
        answer = answered(
            lambda: HTMLResponse(figure_page(draw_figure(repository, figure, runs, baseline, margin, cost))), 400
        )
        answer.headers["Content-Security-Policy"] = FRAME_POLICY
        return answer

    return router
