"""One experiment opened, and the annotations of runs and experiments."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from dashboard.runs.run_list import RUNS, SELECTION
from dashboard.tables.logs import changes_html
from dashboard.tables.run_record import calibration_html
from dashboard.ui import components
from dashboard.ui.components import archive_button, notice, section, show, tags_html
from dashboard.ui.templates import Html, joined, render, texts_done
from dashboard.ui.view import Asked, Part, Updates, Values, View, count_in
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import FsdError, Overtaken
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.review_service import resting_on
from fsd_core.storage.records import LONGEST_NOTE, LONGEST_RUN_NAME, Deletion, Edit, Subject, read_tags

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView
    from fsd_core.storage.repository import Repository


MOST_CHANGES = 100


class AnnotationPanel(Part):
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
        self.forms = [self.name, self.note, self.tags]
        self.outputs = [self.annotations, self.form, self.answer, self.seen]

    def listen(self, view: View) -> None:
        """Attach the event."""
        view.button(self.save, f"annotate {self.kind}", [self.seen, *self.forms], self.save_edits, self.answer)

    def redraw(self, record: RunView | ExperimentView, asked: Asked) -> Updates:
        """Return the annotations and the log, if they differ. Fields are filled in once: what is typed stays."""
        updates: Updates = {}
        if asked.opening:
            values = getattr(record, "name", ""), record.note, " ".join(record.tags)
            for field, value in zip(self.forms, values, strict=True):
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


_POLL_SECONDS = 3.0


class OpenedExperiment(Part):
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.head = show(js_on_load=components.CLICKS, elem_id="experiment-head")
        self.answer = show()
        self.panel = AnnotationPanel(repository, "experiment")
        show(section("Runs"))
        self.runs = show(js_on_load=SELECTION, elem_id="experiment-runs")
        self.history = self.panel.history = show()
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self.forms = self.panel.forms
        self.outputs = [self.head, self.answer, self.runs, self.history, self.clock, *self.panel.outputs]

    def listen(self, view: View) -> None:
        """Attach the events."""
        self.panel.listen(view)
        view.on(self.head.click, self.clock.tick)

    def redraw(self, asked: Asked, id: str) -> Updates:
        """Return the updates of an experiment. Raises ``UnknownName`` if it does not exist."""
        experiment = self.repository.experiment(id)
        updates = self.panel.redraw(experiment, asked)
        calibrated = calibration_html(self.repository, experiment)
        card = render("runs/experiment.html", "calibration", calibrated) if calibrated else ""
        head, runs = joined([header_html(experiment, self.repository), card]), RUNS.html(experiment.runs)
        if asked.differs("head", head):
            updates |= {self.head: head, self.clock: gr.Timer(active=experiment.under_way)}
        return updates | ({self.runs: runs} if asked.differs("runs", runs) else {})


def header_html(e: ExperimentView, repository: Repository) -> Html:
    """Return the link back, the name, the status, and the buttons."""
    buttons = [components.work_button(e), archive_button("experiment", e)]
    if not e.under_way:
        deletion = Deletion(e.name, len(e.runs), e.prompts_done)
        resting = resting_on(repository, (run.id for run in e.runs))
        buttons.append(components.delete_button("experiment", e.id, deletion, resting))
    about = f"{e.config.task} · {pair_title(e.config.pair)} · {texts_done(e)}"
    return render("runs/experiment.html", "header", e, about, buttons, isinstance(e.config, CalibrationConfig))
