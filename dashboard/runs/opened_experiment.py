"""One experiment opened: its name, its annotations, its runs, and its history."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.runs.annotation_panel import AnnotationPanel
from dashboard.runs.run_list import SELECTION, runs_html
from dashboard.tables.calibration_html import calibration_html
from dashboard.ui import actions
from dashboard.ui.annotations import archive_button
from dashboard.ui.components import PRIVATE_EVENT, section, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, joined, render
from fsd_core.errors import FsdError, UnknownName
from fsd_core.formatting import count
from fsd_core.storage.records import Deletion
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView

_POLL_SECONDS = 3.0
Updates = dict[Any, Any]


class OpenedExperiment:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository, self.home = repository, home
        self.head = show(js_on_load=actions.CLICKS, elem_id="experiment-head")
        self.answer = show()
        self.panel = AnnotationPanel(repository, "experiment")
        show(section("Runs"))
        self.runs = show(js_on_load=SELECTION, elem_id="experiment-runs")
        self.history = show()
        self.shown = gr.State("")
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self.panel.listen(self.history)
        self.panel.save.click(self.again, self.panel.shown, [self.head, self.runs, self.shown], **PRIVATE_EVENT)
        self.head.click(self.act, None, self.outputs, **PRIVATE_EVENT)
        self.clock.tick(self.poll, [self.panel.shown, self.shown], self.outputs, **PRIVATE_EVENT)

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [self.head, self.answer, self.runs, self.history, self.shown, self.clock, *self.panel.outputs]

    def open(self, id: str) -> Updates:
        """Return the experiment's current state. Raises ``UnknownName``."""
        experiment = self.repository.experiment(id)
        return self._experiment(experiment) | self.panel.open(experiment)

    def again(self, shown: tuple[str, int]) -> Updates:
        """Redraw the parts that contain its name, which may have changed."""
        try:
            updates = self._experiment(self.repository.experiment(shown[0]))
        except FsdError:
            return {self.head: gr.skip()}
        return {part: updates[part] for part in (self.head, self.runs, self.shown)}

    def act(self, event: gr.EventData, request: gr.Request) -> Updates:
        """Run the action of a button in the header."""
        action, kind, id = str(event.act), str(event.kind), str(event.id)
        answer = {self.answer: actions.answered(self.repository, self.home, person_of(request), action, kind, id)}
        try:
            experiment = self.repository.experiment(id)
        except UnknownName:
            cleared = {self.head: _BACK, self.runs: "", self.history: "", self.clock: gr.Timer(active=False)}
            return cleared | self.panel.gone() | answer
        except FsdError:
            return answer
        return self._experiment(experiment) | self.panel.refresh(experiment) | answer

    def poll(self, shown: tuple[str, int], drawn: str) -> Any:
        """Redraw the runs of an unfinished experiment if something has changed."""
        try:
            updates = self._experiment(self.repository.experiment(shown[0]))
        except FsdError:
            return gr.skip()  # the header says that the database does not answer
        return gr.skip() if updates[self.shown] == drawn else updates

    def _experiment(self, experiment: ExperimentView) -> Updates:
        experiment = local_runs.as_it_stands(experiment, self.home)
        calibrated = calibration_html(self.repository, experiment)
        card = render("runs/experiment.html", "calibration", calibrated) if calibrated else ""
        head = joined([_header_html(experiment), card])
        runs = runs_html(experiment.runs, filtered=False)
        clock = gr.Timer(active=experiment.under_way)
        return {self.head: head, self.runs: runs, self.shown: head + runs, self.clock: clock}


_BACK = render("runs/experiment.html", "back")


def _header_html(e: ExperimentView) -> Html:
    """Return the link back, the name, the status, and the buttons."""
    buttons = [actions.work_button(e), archive_button("experiment", e)]
    if not e.under_way:
        deletion = Deletion(e.name, len(e.runs), e.prompts_done)
        buttons.append(actions.delete_button("experiment", e.id, deletion))
    about = f"{e.config.task} · {e.config.pair} · {e.prompts_done:,} of {count(e.prompts_total, 'prompt')}"
    return render("runs/experiment.html", "header", e, about=about, actions=buttons)
