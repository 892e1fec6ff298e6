"""The header of every page: name, navigation and worker status."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from dashboard.ui.components import page_load, page_note, show
from dashboard.ui.question import digest
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, render
from dashboard.ui.theme import FAVICON
from dashboard.ui.view import CHOICE_EVENT
from fsd_core.errors import FsdError
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
) -> None:
    """Add the header to the page that is being built. ``status_now`` returns the worker's status, and ``waiting`` how
    many proposals wait for somebody.

    ``sign_in_link`` is the link, as HTML, by which visitors sign in. ``note`` is a sentence for every page.
    """
    gr.Navbar(visible=False)
    with gr.Row(elem_classes=["fsd-head"]):
        show(navigation(pages, current))
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


def navigation(pages: Sequence[Page], current: Page) -> Html:
    """Return the bar with the product's name and the pages, the current one marked."""
    mark = FAVICON.read_text(encoding="utf-8").replace("<svg ", '<svg aria-hidden="true" ')
    return render("ui/page.html", "navigation", Html(mark), pages, current)
