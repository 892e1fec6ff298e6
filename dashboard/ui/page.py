"""What every page has around its parts: theme, header, and the worker's status.

The theme of the pages: paper and ink, one accent, light and dark. Nothing is loaded from other sites.

``theme.css`` has the colours as ``--fsd-…`` variables, each once per theme. Gradio's own variables refer to them here.

A picture of accuracy against speed for a card or a page, as SVG in the colours of the theme. It needs no script.

To the right is faster than exact speculative decoding, below is what is lost against the target.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr
from gradio.themes.utils import fonts

from dashboard.ui.components import notice, page_load, page_note, show
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import CHOICE_EVENT, digest, person_of
from fsd_core.errors import FsdError
from fsd_core.plugins import folders
from fsd_core.roles import Person

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import WorkerRow


class WorkerAbsence(NamedTuple):
    """The texts for a missing worker."""

    missing: str
    remedy: str


_NO_WORKER = WorkerAbsence("worker is not running", "Start it with: python -m fsd_core worker.")
_ABSENCES: dict[Executor, WorkerAbsence] = {
    "worker": _NO_WORKER,
    "ray": _NO_WORKER,
    "in-process": WorkerAbsence(
        "app's computing thread is not running",
        "The app begins it anew every few seconds. If this stays, the app's log says why: mend that, or restart "
        "the app.",
    ),
}


def worker_status(repository: Repository, executor: Executor) -> str:
    """Return the worker's status in a few words, or the database's error if it cannot be read."""
    try:
        worker = repository.worker()
        waiting = repository.queue_length()
        measured = repository.measured_prompts()
    except FsdError as error:
        return _status("off", "database unavailable", "", str(error))
    if worker is None or not worker.alive:
        return _status("off", _ABSENCES[executor].missing, "", _ABSENCES[executor].remedy)
    queue = f"{waiting} waiting" if waiting else ""
    if worker.activity in ("", "idle", "ready"):
        return _status("ready", "worker ready", " · ".join(filter(None, (worker.device, queue))))
    more = " · ".join(filter(None, (worker.activity, worker.device, queue)))
    return joined([_status("busy", "busy", more), render("ui/page.html", "progress", *measured)])


def _status(state: str, word: str, more: str, hint: str = "") -> Html:
    return render("ui/page.html", "worker", state, word, more, hint or more)


def absence_notice(worker: WorkerRow | None, executor: Executor, waiting: bool = False) -> Html:
    """Return a notice that nothing is generated without a worker, or nothing if it is alive. ``waiting`` is true if
    experiments wait."""
    if worker is not None and worker.alive:
        return Html()
    absent = _ABSENCES[executor]
    text = f"The {absent.missing}, so nothing is generated. {absent.remedy}"
    return notice(text + (" Waiting experiments then continue where they stopped." if waiting else ""), "warn")


_FOLDER = Path(__file__).parent
_SHEETS = (
    "ui/theme.css",
    "ui/annotations.css",
    "ui/sharing.css",
    "ui/first_paint.css",
    "playground/playground.css",
    "experiments/experiment_list.css",
    "compare/comparison.css",
    "runs/runs.css",
    "settings/settings.css",
    "start/start.css",
    "review/review.css",
    "people/people.css",
)
_OF_FEATURES = (sheet for folder in folders() for sheet in sorted(folder.glob("*.css")))
# Given to Gradio as a whole: it prefixes every rule with its own class, without which its resets would win.
STYLE_SHEETS = "".join((_FOLDER.parent / sheet).read_text(encoding="utf-8") for sheet in (*_SHEETS, *_OF_FEATURES))
_SCRIPTS = ("drafts.js", "said.js", "view.js", "tokens.js", "sharing.js", "terms.js", "focus.js")
HEAD = "".join(f"<script>{(_FOLDER / script).read_text(encoding='utf-8')}</script>" for script in _SCRIPTS)
FAVICON = _FOLDER / "favicon.svg"

# Gradio's semi-bold files lack most letters. Without them, a browser uses the complete bold ones for weight 600.
_FULL_WEIGHTS = (400, 700)

_TEAL = gr.themes.colors.Color(
    name="fsd-teal",
    c50="#eef7f6",
    c100="#d5ebe8",
    c200="#add8d3",
    c300="#7cbfb8",
    c400="#4aa39b",
    c500="#23867e",
    c600="#0f6b65",
    c700="#0d5752",
    c800="#0d4643",
    c900="#0c3a37",
    c950="#062321",
)

_SAME_IN_BOTH: dict[str, str] = {
    "body_background_fill": "var(--fsd-paper)",
    "body_text_color": "var(--fsd-ink)",
    "body_text_color_subdued": "var(--fsd-faded)",
    "background_fill_primary": "var(--fsd-surface)",
    "background_fill_secondary": "var(--fsd-sunken)",
    "border_color_primary": "var(--fsd-line)",
    "border_color_accent": "var(--fsd-accent)",
    "block_background_fill": "var(--fsd-surface)",
    "block_border_color": "var(--fsd-line)",
    "block_label_background_fill": "var(--fsd-surface)",
    "block_label_text_color": "var(--fsd-faded)",
    "block_title_text_color": "var(--fsd-ink)",
    "block_info_text_color": "var(--fsd-faded)",
    "input_background_fill": "var(--fsd-field)",
    "input_background_fill_focus": "var(--fsd-field)",
    "input_border_color": "var(--fsd-edge)",
    "input_border_color_focus": "var(--fsd-edge)",
    "input_placeholder_color": "var(--fsd-faded)",
    "panel_background_fill": "var(--fsd-surface)",
    "panel_border_color": "var(--fsd-line)",
    "link_text_color": "var(--fsd-accent)",
    "link_text_color_active": "var(--fsd-accent)",
    "link_text_color_hover": "var(--fsd-accent-strong)",
    "link_text_color_visited": "var(--fsd-accent)",
    "slider_color": "var(--fsd-accent)",
    "checkbox_background_color_selected": "var(--fsd-accent)",
    "checkbox_border_color": "var(--fsd-edge)",
    "checkbox_border_color_selected": "var(--fsd-accent)",
    "checkbox_label_background_fill": "var(--fsd-field)",
    "checkbox_label_background_fill_hover": "var(--fsd-sunken)",
    "checkbox_label_background_fill_selected": "var(--fsd-accent-soft)",
    "checkbox_label_text_color_selected": "var(--fsd-ink)",
    "checkbox_label_border_color": "var(--fsd-line)",
    "button_primary_background_fill": "var(--fsd-button)",
    "button_primary_background_fill_hover": "var(--fsd-button-hover)",
    "button_primary_border_color": "transparent",
    "button_primary_text_color": "var(--fsd-on-accent)",
    "button_secondary_background_fill": "var(--fsd-surface)",
    "button_secondary_background_fill_hover": "var(--fsd-sunken)",
    "button_secondary_border_color": "var(--fsd-edge)",
    "button_secondary_text_color": "var(--fsd-ink)",
    "button_cancel_background_fill": "var(--fsd-surface)",
    "button_cancel_background_fill_hover": "var(--fsd-sunken)",
    "button_cancel_border_color": "var(--fsd-bad)",
    "button_cancel_text_color": "var(--fsd-bad)",
    "table_border_color": "var(--fsd-line)",
    "table_even_background_fill": "var(--fsd-surface)",
    "table_odd_background_fill": "var(--fsd-surface)",
    "block_border_width": "1px",
    "input_border_width": "1px",
    "button_border_width": "1px",
    "block_shadow": "none",
    "button_primary_shadow": "none",
    "button_secondary_shadow": "none",
    "input_shadow": "none",
    "input_shadow_focus": "none",
    "checkbox_label_shadow": "none",
}


def build_theme() -> gr.themes.Base:
    """Return Gradio's theme. Its font files are those that Gradio itself serves."""
    theme = gr.themes.Base(
        primary_hue=_TEAL,
        secondary_hue=_TEAL,
        neutral_hue=gr.themes.colors.stone,
        text_size=gr.themes.sizes.text_md,
        spacing_size=gr.themes.sizes.spacing_md,
        radius_size=gr.themes.sizes.radius_sm,
        font=[fonts.LocalFont("IBM Plex Sans", _FULL_WEIGHTS), "system-ui", "sans-serif"],
        font_mono=[fonts.LocalFont("IBM Plex Mono", _FULL_WEIGHTS), "ui-monospace", "monospace"],
    )
    parameters = set(theme.set.__code__.co_varnames)
    values: dict[str, Any] = dict(_SAME_IN_BOTH)
    values |= {f"{key}_dark": value for key, value in _SAME_IN_BOTH.items() if f"{key}_dark" in parameters}
    return theme.set(
        **values,
        block_title_text_weight="600",
        block_label_text_weight="600",
        block_title_text_size="*text_sm",
        block_info_text_size="*text_sm",
        button_large_text_weight="600",
        button_medium_text_weight="600",
        button_small_text_weight="500",
        layout_gap="16px",
    )


STATUS_SECONDS = 2.0


class Page(NamedTuple):
    """A page's title, its path below the root (empty for the root itself), and its builder."""

    title: str
    path: str
    build: Callable[[Repository, Settings], None]
    needs_accounts: bool = False
    """whether it is there only where people are told apart"""
    in_bar: bool = True
    """whether the bar names it; the product's name leads to the page that it does not name"""


def build_header(
    status_now: Callable[[], str],
    pages: Sequence[Page],
    current: Page,
    sign_in_link: str = "",
    note: str = "",
    waiting: Callable[[Person], int] = lambda person: 0,
    mlflow: str | None = None,
) -> None:
    """Add the header to the page that is being built. ``status_now`` returns the worker's status, and ``waiting`` how
    many proposals wait for somebody.

    ``sign_in_link`` is the link, as HTML, by which visitors sign in. ``note`` is a sentence for every page. ``mlflow``
    is the address of MLflow's pages, if there are any.
    """
    gr.Navbar(visible=False)
    with gr.Row(elem_classes=["fsd-head"]):
        show(navigation(pages, current, mlflow))
        with gr.Row(elem_classes=["fsd-right"]):
            person = show(elem_classes=["fsd-person"])
            status = show(elem_classes=["fsd-status"])
    if note:
        show(page_note(note))
    displayed = gr.Textbox(visible="hidden")

    def refresh(last: str, request: gr.Request) -> tuple[object, object, object]:
        somebody = person_of(request)
        try:
            count = waiting(somebody)
        except FsdError:  # the status says why
            count = 0
        now = status_now(), person_html(somebody, sign_in_link, count)
        key = digest(now)
        return (gr.skip(), gr.skip(), gr.skip()) if key == last else (*now, key)

    events = [page_load(), gr.Timer(STATUS_SECONDS).tick]
    gr.on(events, refresh, displayed, [status, person, displayed], **CHOICE_EVENT)


def person_html(person: Person, sign_in_link: str = "", waiting: int = 0) -> str:
    """Return who is signed in with a button to sign out and how many proposals wait for them, or ``sign_in_link`` if
    nobody is."""
    if not person.known:
        return sign_in_link
    return render("ui/page.html", "person", person, waiting)


def navigation(pages: Sequence[Page], current: Page, mlflow: str | None = None) -> Html:
    """Return the bar with the product's name and the pages, the current one marked, and MLflow's."""
    mark = FAVICON.read_text(encoding="utf-8").replace("<svg ", '<svg aria-hidden="true" ')
    return render("ui/page.html", "navigation", Html(mark), pages, current, mlflow)


_LEFT, _TOP, _WIDTH, _HEIGHT = 44.0, 44.0, 416.0, 150.0
"""of the axes within a picture of 480 × 238"""
_STEPS = (0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 25, 50, 100)
_MOST_TICKS = 5
_LABEL_WIDTH = 190.0


class TradeOffPoint(NamedTuple):
    """Measured figures of one setting."""

    label: str
    speed: float
    """× as fast as exact speculative decoding"""
    points: float
    """of accuracy against the target"""
    slowest: float | None = None
    fastest: float | None = None
    """ends of the interval of the speed"""
    least: float | None = None
    """points that are kept for sure"""
    is_chosen: bool = False
    is_exact: bool = False


class _Drawn(NamedTuple):
    x: float
    y: float
    x1: float
    x2: float
    y2: float
    style: str
    text: str
    title: str
    anchor: str


def trade_off(points: Sequence[TradeOffPoint], margin: float | None, alt: str) -> Html:
    """Return the picture of some settings, or nothing if they have no figures. ``margin``: points that may be lost."""
    points = [point for point in points if math.isfinite(point.speed) and math.isfinite(point.points)]
    if not points:
        return Html()
    speeds = [end for p in points for end in (p.speed, p.slowest, p.fastest) if end is not None and math.isfinite(end)]
    lost = [end for p in points for end in (p.points, p.least) if end is not None and math.isfinite(end)]
    x_ticks = _ticks(min(1.0, *speeds), max(1.25, *speeds))
    y_ticks = _ticks(min(-1.0, -(margin or 0), *lost), max(0.0, *lost))

    def x(speed: float) -> float:
        return _LEFT + _WIDTH * (speed - x_ticks[0]) / (x_ticks[-1] - x_ticks[0])

    def y(kept: float) -> float:
        return _TOP + _HEIGHT * (y_ticks[-1] - kept) / (y_ticks[-1] - y_ticks[0])

    drawn = []
    for p in sorted(points, key=lambda point: point.is_chosen):
        at, slowest, fastest = x(p.speed), x(_or(p.slowest, p.speed)), x(_or(p.fastest, p.speed))
        style = "chosen" if p.is_chosen else "exact" if p.is_exact else "tried"
        title = f"{p.label}: {p.speed:.2f} × as fast as SD, {_signed(p.points)} points"
        anchor = "start" if at < _LEFT + _WIDTH - _LABEL_WIDTH else "end"
        shown = p.label if p.is_chosen or p.is_exact else ""
        drawn.append(
            _Drawn(at, y(p.points), slowest, fastest, y(_or(p.least, p.points)), style, shown, title, anchor)
        )  # fmt: skip
    return render(
        "ui/trade_off.html",
        "picture",
        alt,
        [(x(tick), f"{tick:g} ×") for tick in x_ticks],
        [(y(tick), _signed(tick)) for tick in y_ticks],
        y(0.0),
        None if not margin else (y(-margin), _beside(y(-margin)), f"{_points(margin)} may be lost"),
        drawn,
    )


def _points(points: float) -> str:
    return f"{points:g} {'point' if points == 1 else 'points'}"


def _beside(y: float) -> float:
    """Return where the text of a line stands: below it, where there is space for one."""
    return y + 13 if y + 20 < _TOP + _HEIGHT else y - 5


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None or not math.isfinite(value) else value


def _signed(value: float) -> str:
    return f"{value:+.3g}".replace("-", "−") if round(value, 2) else "0"


def _ticks(low: float, high: float) -> list[float]:
    """Return round numbers that span both ends, at most six."""
    step = next((s for s in _STEPS if (high - low) / s <= _MOST_TICKS), (high - low) / _MOST_TICKS)
    first, last = math.floor(round(low / step, 6)), math.ceil(round(high / step, 6))
    return [round(step * i, 6) for i in range(first, last + 1)]
