"""The header of every page: name, navigation and worker status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from dashboard.ui.components import PRIVATE_EVENT, kept, on_load, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, render
from dashboard.ui.theme import FAVICON
from fsd_core.roles import Person

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

STATUS_SECONDS = 2.0


class Page(NamedTuple):
    """A page's title, its path below the root (empty for the root itself), and its builder."""

    title: str
    path: str
    build: Callable[[Repository, Settings], None]


def build_header(
    status_now: Callable[[], str], pages: Sequence[Page], current: Page, way_in: str = "", note: str = ""
) -> None:
    """Add the header to the page that is being built. ``status_now`` returns the worker's status.

    ``way_in`` is the link, as HTML, by which visitors sign in. ``note`` is a sentence for every page.
    """
    gr.Navbar(visible=False)
    with gr.Row(elem_classes=["fsd-head"]):
        show(navigation(pages, current))
        with gr.Row(elem_classes=["fsd-right"]):
            person = show(elem_classes=["fsd-person"])
            status = show(elem_classes=["fsd-status"])
    if note:
        show(kept(note))
    displayed = gr.State("")

    def refresh(last: str) -> tuple[object, object]:
        now = status_now()
        return (gr.skip(), gr.skip()) if now == last else (now, now)

    def opened(last: str, request: gr.Request) -> tuple[object, object, str]:
        return (*refresh(last), person_html(person_of(request), way_in))

    gr.Timer(STATUS_SECONDS).tick(refresh, displayed, [status, displayed], **PRIVATE_EVENT)
    on_load(opened, displayed, [status, displayed, person])


def person_html(person: Person, way_in: str = "") -> str:
    """Return who is signed in with a button to sign out, or ``way_in`` if nobody is."""
    if not person.known:
        return way_in
    return render("ui/page.html", "person", person)


def navigation(pages: Sequence[Page], current: Page) -> Html:
    """Return the bar with the product's name and the pages, the current one marked."""
    mark = FAVICON.read_text(encoding="utf-8").replace("<svg ", '<svg aria-hidden="true" ')
    return render("ui/page.html", "navigation", Html(mark), pages, current)
