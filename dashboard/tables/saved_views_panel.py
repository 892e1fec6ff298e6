"""Saved views of a page, for people and for programs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.ui import components
from dashboard.ui.components import KEEP_PLACE, button, empty_state, notice, show
from dashboard.ui.templates import Html, moment, render
from dashboard.ui.view import Act, Asked, Part, Updates, Values, View
from fsd_core.errors import UnknownName
from fsd_core.roles import Person, require_person
from fsd_core.storage.catalogue import LONGEST_VIEW_NAME
from fsd_core.storage.tables import SavedViewRow

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


_FILE = "tables/saved_views.html"
_RENAME, _DELETE = "rename-view", "delete-view"


class SavedViewsPanel(Part):
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
        self.forms = [self.name]
        self.outputs = [self.answer, self.list]

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


def views_html(views: Sequence[SavedViewRow], person: Person, first: str) -> Html:
    """Return a line for each view, or how the first one is made."""
    if not views:
        return empty_state("No saved views yet", first)
    return render(_FILE, "views", [_line(view, person) for view in views])


def _line(view: SavedViewRow, person: Person) -> Html:
    rename, delete = Html(), Html()
    if view.may_change(person):
        rename = button(_RENAME, "view", view.id, "Rename")
        delete = button(_DELETE, "view", view.id, "Delete", f"Delete the view “{view.name}”? The runs stay.")
    return render(_FILE, "view", view, f"{view.who}, {moment(view.at)}", rename, delete, LONGEST_VIEW_NAME)
