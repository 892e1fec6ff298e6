"""The head of every page: the name, the way to the other pages, and how the worker is."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from dashboard.ui.components import QUIET, escape, on_load, show
from dashboard.ui.theme import FAVICON
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository

STATUS_SECONDS = 2.0


class Page(NamedTuple):
    """A page's title, and its path below the root (empty: the root itself)."""

    title: str
    path: str


PAGES = (
    Page("Playground", ""),
    Page("Experiments", "experiments"),
    Page("Compare", "compare"),
    Page("Runs", "runs"),
    Page("Theory", "theory"),
)


def build_header(status_now: Callable[[], str], current: Page) -> None:
    """Adds the header to the page that is being built; ``status_now`` says how the worker is."""
    gr.Navbar(visible=False)
    with gr.Row(elem_classes=["fsd-head"]):
        show(navigation(current))
        status = show(elem_classes=["fsd-status"])
    shown = gr.State("")

    def refresh(last: str) -> tuple[object, object]:
        now = status_now()
        return (gr.skip(), gr.skip()) if now == last else (now, now)

    gr.Timer(STATUS_SECONDS).tick(refresh, shown, [status, shown], queue=False, **QUIET)
    on_load(refresh, shown, [status, shown])


def navigation(current: Page) -> str:
    """The bar with the product's name and the pages; the current one is marked."""
    links = "".join(
        f'<a href="/{page.path}"{" aria-current=page" if page == current else ""}>{escape(page.title)}</a>'
        for page in PAGES
    )
    mark = FAVICON.read_text(encoding="utf-8").replace("<svg ", '<svg aria-hidden="true" ')
    return (
        f'<header class="fsd-bar"><a class="fsd-brand" href="/">{mark}FSD Lab</a>'
        f'<nav class="fsd-nav" aria-label="Pages">{links}</nav></header>'
    )


def worker_status(repository: Repository) -> str:
    """How the worker is, in a few words; what is wrong with the database, where it cannot be asked."""
    try:
        worker = repository.worker()
        waiting = repository.queue_length()
    except FsdError as error:
        return _status("off", "database unavailable", "", str(error))
    if worker is None or not worker.alive:
        return _status("off", "worker is not running", "", "Start it with: python -m fsd_core worker")
    queue = f"{waiting} waiting" if waiting else ""
    if worker.activity in ("", "idle", "ready"):
        return _status("ready", "worker ready", " · ".join(filter(None, (worker.device, queue))))
    return _status("busy", "busy", " · ".join(filter(None, (worker.activity, worker.device, queue))))


def _status(state: str, word: str, more: str, hint: str = "") -> str:
    tail = f"<span>{escape(more)}</span>" if more else ""
    return (
        f'<div class="fsd-worker {state}" role="status" title="{escape(hint or more)}"><i></i><b>{word}</b>{tail}</div>'
    )
