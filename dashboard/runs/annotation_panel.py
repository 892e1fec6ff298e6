"""Annotations of an opened run or experiment, and the form that edits them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.change_log import changes_html
from dashboard.ui.annotations import tags_html
from dashboard.ui.components import notice, show
from dashboard.ui.question import Asked, Updates, Values, count_in
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import View
from fsd_core.errors import FsdError, Overtaken
from fsd_core.storage.edits import LONGEST_NOTE, LONGEST_RUN_NAME, Edit, Subject, read_tags

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView, RunView

MOST_CHANGES = 100


class AnnotationPanel:
    """The panel's components as attributes, and one method per event."""

    def __init__(self, repository: Repository, kind: Subject) -> None:
        self.repository = repository
        self.kind: Subject = kind
        self.annotations = show(elem_id=f"{kind}-said")
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
        self.seen = gr.Textbox(visible="hidden")  # how many edits the person has seen
        self.history: gr.HTML
        """displays the log, elsewhere on the page"""

    @property
    def fields(self) -> list[Any]:
        """Fields that a person edits."""
        return [self.name, self.note, self.tags]

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change, except the history."""
        return [self.annotations, self.form, self.answer, self.seen]

    def listen(self, view: View) -> None:
        """Attach the event."""
        view.button(self.save, f"annotate {self.kind}", [self.seen, *self.fields], self.save_edits, self.answer)

    def redraw(self, record: RunView | ExperimentView, asked: Asked) -> Updates:
        """Return the annotations and the log, if they differ. Fields are filled in once: what is typed stays."""
        updates: Updates = {}
        if asked.opening:
            values = getattr(record, "name", ""), record.note, " ".join(record.tags)
            for field, value in zip(self.fields, values, strict=True):
                asked.fill(field, value)
            updates |= {self.form: gr.Accordion(visible=True), self.seen: str(record.edits)}
        if asked.differs("annotations", record.edits, len(getattr(record, "runs", ()))):
            updates |= {self.annotations: _annotations_html(record), self.history: self._log(record.id)}
        return updates

    def save_edits(self, values: Values, asked: Asked) -> Updates:
        """Save what was typed. A refusal leaves it in the fields."""
        id, person = asked.address.get(self.kind, ""), asked.person
        name = values[self.name] if self.kind == "experiment" else None
        try:
            edit = Edit(name, values[self.note].strip(), read_tags(values[self.tags]))
            self.repository.annotate(self.kind, id, edit, person, count_in(values[self.seen]))
        except Overtaken as error:
            asked.unused.add(values.key)
            message = f"{error} What you typed is still in the fields."
            return {self.seen: str(self._view(id).edits), self.answer: notice(message, "warn")}
        return {self.seen: str(self._view(id).edits), self.answer: notice("Saved.")}

    def seen_now(self, id: str) -> Updates:
        """Count the person's own act among the edits that they have seen."""
        try:
            return {self.seen: str(self._view(id).edits)}
        except FsdError:
            return {}  # deleted

    def _view(self, id: str) -> RunView | ExperimentView:
        return self.repository.run(id) if self.kind == "run" else self.repository.experiment(id)

    def _log(self, id: str) -> str:
        filters = {"subject": id} if self.kind == "run" else {"experiment_id": id}
        return changes_html(self.repository.changes(**filters, limit=MOST_CHANGES), "History")


def _annotations_html(view: RunView | ExperimentView) -> Html:
    return joined([tags_html(view), render("runs/experiment.html", "note", view.note) if view.note else ""])
