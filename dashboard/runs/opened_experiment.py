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
from dashboard.ui.components import section, show
from dashboard.ui.quantities import texts_done
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import View
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.models.model_pairs import pair_title
from fsd_core.review.resting import resting_on
from fsd_core.storage.records import Deletion
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView

_POLL_SECONDS = 3.0


class OpenedExperiment:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository, self.home = repository, home
        self.head = show(js_on_load=actions.CLICKS, elem_id="experiment-head")
        self.answer = show()
        self.panel = AnnotationPanel(repository, "experiment")
        show(section("Runs"))
        self.runs = show(js_on_load=SELECTION, elem_id="experiment-runs")
        self.history = self.panel.history = show()
        self.clock = gr.Timer(_POLL_SECONDS, active=False)

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [self.head, self.answer, self.runs, self.history, self.clock, *self.panel.outputs]

    def listen(self, view: View) -> None:
        """Attach the events."""
        self.panel.listen(view)
        view.on(self.head.click, self.clock.tick)

    def redraw(self, asked: Asked, id: str) -> Updates:
        """Return the updates of an experiment. Raises ``UnknownName`` if it does not exist."""
        experiment = local_runs.with_actual_status(self.repository.experiment(id), self.home)
        updates = self.panel.redraw(experiment, asked)
        calibrated = calibration_html(self.repository, experiment)
        card = render("runs/experiment.html", "calibration", calibrated) if calibrated else ""
        head, runs = (
            joined([header_html(experiment, self.repository), card]),
            runs_html(experiment.runs, filtered=False),
        )
        if asked.differs("head", head):
            updates |= {self.head: head, self.clock: gr.Timer(active=experiment.under_way)}
        return updates | ({self.runs: runs} if asked.differs("runs", runs) else {})


def header_html(e: ExperimentView, repository: Repository) -> Html:
    """Return the link back, the name, the status, and the buttons."""
    buttons = [actions.work_button(e), archive_button("experiment", e)]
    if not e.under_way:
        deletion = Deletion(e.name, len(e.runs), e.prompts_done)
        resting = resting_on(repository, (run.id for run in e.runs))
        buttons.append(actions.delete_button("experiment", e.id, deletion, resting))
    about = f"{e.config.task} · {pair_title(e.config.pair)} · {texts_done(e)}"
    return render("runs/experiment.html", "header", e, about, buttons, isinstance(e.config, CalibrationConfig))
