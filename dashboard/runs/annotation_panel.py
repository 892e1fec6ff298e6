"""Annotations of an opened run or experiment, and the form that edits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.change_log import changes_html
from dashboard.ui.annotations import tags_html
from dashboard.ui.components import PRIVATE_EVENT, notice, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, joined, render
from fsd_core.errors import FsdError, Overtaken
from fsd_core.roles import require
from fsd_core.storage.edits import LONGEST_NOTE, LONGEST_RUN_NAME, Edit, Subject, read_tags

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView, RunView

MOST_CHANGES = 100
Updates = dict[Any, Any]


class AnnotationPanel:
    """The panel's components as attributes. ``shown`` holds the id and how many edits the person has seen."""

    def __init__(self, repository: Repository, kind: Subject) -> None:
        self.repository = repository
        self.kind: Subject = kind
        self.said = show(elem_id=f"{kind}-said")
        named = kind == "experiment"
        title = "Edit name, note and tags" if named else "Edit note and tags"
        with gr.Accordion(title, open=False, visible=False) as self.form:
            self.name = gr.Textbox(label="Name", max_length=LONGEST_RUN_NAME, visible=named)
            self.note = gr.Textbox(
                label="Note", lines=3, max_lines=12, max_length=LONGEST_NOTE,
                placeholder="What this showed, what is wrong with it, what to do next",
            )  # fmt: skip
            self.tags = gr.Textbox(
                label="Tags", info="Single words. The search of the list finds them.", max_length=400
            )
            self.save = gr.Button("Save", size="sm", scale=0, min_width=100)
        self.answer = show()
        self.shown = gr.State(("", 0))
        self.history: gr.HTML

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`open` and the events may change, except the history elsewhere on the page."""
        return [self.said, self.form, self.name, self.note, self.tags, self.answer, self.shown]

    def listen(self, history: gr.HTML) -> None:
        """Attach the event. ``history`` is the component that displays the log."""
        self.history = history
        fields = [self.shown, self.name, self.note, self.tags]
        self.save.click(self.keep, fields, [*self.outputs, history], **PRIVATE_EVENT)

    def open(self, view: RunView | ExperimentView) -> Updates:
        """Return the fields with their current values."""
        name = getattr(view, "name", "")
        fields = {self.name: name, self.note: view.note, self.tags: " ".join(view.tags)}
        return fields | self.refresh(view) | {self.form: gr.Accordion(visible=True), self.answer: ""}

    def refresh(self, view: RunView | ExperimentView) -> Updates:
        """Return the annotations and the log. What somebody is typing stays."""
        return {self.said: _annotations_html(view), self.history: self._log(view.id), self.shown: (view.id, view.edits)}

    def gone(self) -> Updates:
        """Clear the panel."""
        return {self.said: "", self.answer: "", self.form: gr.Accordion(visible=False)}

    def keep(self, shown: tuple[str, int], name: str, note: str, tags: str, request: gr.Request) -> Updates:
        """Save what was typed. A refusal leaves it in the fields."""
        id, seen = shown
        try:
            require(person_of(request), "author", "Writing notes")
            edit = Edit(name if self.kind == "experiment" else None, note.strip(), read_tags(tags))
            changed = self.repository.annotate(self.kind, id, edit, person_of(request), seen)
        except Overtaken as error:
            message = f"{error} What you typed is still in the fields."
            return self.refresh(self._view(id)) | {self.answer: notice(message, "warn")}
        except FsdError as error:
            return {self.answer: notice(str(error), "bad")}
        message = notice("Saved." if changed else "Nothing was changed.")
        return self.open(self._view(id)) | {self.answer: message}

    def _view(self, id: str) -> RunView | ExperimentView:
        return self.repository.run(id) if self.kind == "run" else self.repository.experiment(id)

    def _log(self, id: str) -> str:
        filters = {"subject": id} if self.kind == "run" else {"experiment_id": id}
        return changes_html(self.repository.changes(**filters, limit=MOST_CHANGES), "History")


def _annotations_html(view: RunView | ExperimentView) -> Html:
    return joined([tags_html(view), render("runs/experiment.html", "note", view.note) if view.note else ""])
