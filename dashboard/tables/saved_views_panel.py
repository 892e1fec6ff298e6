"""Saved views of a page, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal
from uuid import uuid4

import gradio as gr
from typing_extensions import TypedDict

from dashboard.ui import components
from dashboard.ui.api_call import ApiCall, does
from dashboard.ui.components import KEEP_PLACE, button, empty_state, notice, show
from dashboard.ui.templates import Html, moment, render
from dashboard.ui.view import Act, Asked, Updates, Values, View, person_of
from fsd_core.errors import UnknownName
from fsd_core.roles import Person, require, require_person
from fsd_core.storage.catalogue import LONGEST_VIEW_NAME, SavedView, checked_view_page
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


_FILE = "tables/saved_views.html"
_RENAME, _DELETE = "rename-view", "delete-view"


class SavedViewsPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(self, repository: Repository, page: str, first: str) -> None:
        """``page`` is its path. ``first`` says what to do before the first view is saved."""
        self.repository, self.page, self.first = repository, page, first
        with gr.Accordion("Saved views", open=False, elem_id="saved-views"):
            with gr.Row(equal_height=True):
                self.name = gr.Textbox(
                    label="Name of the view", placeholder="What this page shows now", max_length=LONGEST_VIEW_NAME,
                    max_lines=1,
                )  # fmt: skip
                self.button = gr.Button("Save the view", scale=0, min_width=140)
            self.answer = show()
            self.list = show(js_on_load=components.CLICKS + KEEP_PLACE, elem_id="views")

    @property
    def forms(self) -> list[Any]:
        """Components that the button empties."""
        return [self.name]

    @property
    def outputs(self) -> list[Any]:
        """Components that the events change."""
        return [self.answer, self.list]

    def listen(self, view: View, fields: Sequence[Any], query: Callable[[Values], str]) -> None:
        """Attach the events. ``query`` returns that of the page's address, of the values of ``fields`` at a click."""

        def save(values: Values, asked: Asked) -> Updates:
            name = str(values[self.name] or "")
            saved = self.repository.save_view(values.key, self.page, name, query(values), asked.person)
            asked.used(values, self.name)
            return {self.answer: notice(f"“{saved.name}” is saved: its link shows this to everyone.")}

        view.on(self.list.click)
        view.button(self.button, "save view", [self.name, *fields], save, self.answer)
        view.act(_RENAME, self.rename, self.answer)
        view.act(_DELETE, self.delete, self.answer)

    def redraw(self, asked: Asked) -> Updates:
        """Return the list if it differs."""
        views = self.repository.saved_views(self.page)
        if not asked.differs("views", views, asked.person):
            return {}
        return {self.list: views_html(views, asked.person, self.first)}

    def rename(self, act: Act, asked: Asked) -> Updates:
        """Give a view another name."""
        renamed = self.repository.rename_view(act["id"], act["text"], asked.person)
        return {self.answer: notice(f"The view is called “{renamed.name}” now.")}

    def delete(self, act: Act, asked: Asked) -> Updates:
        """Delete a view. What it shows stays."""
        require_person(asked.person, "author", "Deleting a view")
        try:
            deleted = self.repository.delete_view(act["id"], asked.person)
        except UnknownName:
            return {}  # done already: the list says that it is gone
        return {self.answer: notice(f"The view “{deleted.name}” is deleted. The runs stay.")}


def views_html(views: Sequence[SavedView], person: Person, first: str) -> Html:
    """Return a line for each view, or how the first one is made."""
    if not views:
        return empty_state("No saved views yet", first)
    return render(_FILE, "views", [_line(view, person) for view in views])


def _line(view: SavedView, person: Person) -> Html:
    rename, delete = Html(), Html()
    if view.may_change(person):
        rename = button(_RENAME, "view", view.id, "Rename")
        delete = button(_DELETE, "view", view.id, "Delete", f"Delete the view “{view.name}”? The runs stay.")
    return render(_FILE, "view", view, f"{view.who}, {moment(view.at)}", rename, delete, LONGEST_VIEW_NAME)


class ViewAnswer(TypedDict):
    """A saved view. ``address`` shows it."""

    view: str
    page: str
    name: str
    query: str
    by: str
    at: str
    address: str


def view_calls(repository: Repository, root_path: str) -> list[ApiCall]:
    def described(view: SavedView) -> ViewAnswer:
        return {
            "view": view.id,
            "page": view.page,
            "name": view.name,
            "query": view.query,
            "by": view.who,
            "at": view.at.isoformat(),
            "address": f"{root_path}/{view.address}",
        }

    def list_views(page: str = "") -> list[ViewAnswer]:
        """Return the saved views, each with the address that shows it.

        Args:
            page: runs or compare. Default: both
        """
        return [described(view) for view in repository.saved_views(checked_view_page(page) if page else None)]

    @does(repeatable=True)
    def save_view(page: Literal["runs", "compare"], name: str, query: str, request: gr.Request) -> ViewAnswer:
        """Name what the page Runs or Compare shows, for the whole team. Needs the role author.

        A view of one's own of this name is replaced, so the same call done twice is done once.

        Args:
            page: runs or compare
            name: 1 to 80 characters
            query: what stands behind the question mark of the page's address, such as pair=bundled&sort=accuracy
        """
        person = person_of(request)
        require(person, "author", "Saving a view")
        return described(repository.save_view(uuid4().hex, page, name, query, person))

    @does(repeatable=True)
    def rename_view(view: Id, name: str, request: gr.Request) -> ViewAnswer:
        """Give a saved view of one's own another name. Needs the role author.

        Args:
            view: id of a view
            name: 1 to 80 characters
        """
        person = person_of(request)
        require(person, "author", "Renaming a view")
        return described(repository.rename_view(view, name, person))

    return [list_views, save_view, rename_view]
