"""The part of the theory page that looks at runs: their bounds, and the speed-up that theory predicts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.components import QUIET, notice, on_load, section, show
from dashboard.experiment_list import worker_notice
from dashboard.figures import bounds as bounds_figure
from dashboard.figures import speedup
from dashboard.run_bounds import PRIORITY, gaps_html, of_run, rates
from fsd_core.errors import FsdError, InvalidSetting

if TYPE_CHECKING:
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import RunView

SHOWN = 100  # runs to choose from
POLL_SECONDS = 1.0
LEAD = (
    "What several drafts could have gained where a run has been: its two models are asked again at 48 positions of its "
    "texts, and every verifier and every optimum is computed from what they say. It takes the worker a few minutes for "
    "a large vocabulary."
)
NONE = "No run has ended yet: start an experiment, and choose its runs here."
NOT_YET = "No bounds of this run are known yet: choose a temperature and measure them."
GREEDY = "leave empty for the run's own, or 1 for a greedy run"

Updates = dict[Any, Any]


class RunTheory:
    """The components as attributes; a method per event."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(section("In your runs"))
        show(f'<p class="lead">{LEAD}</p>')
        with gr.Row(equal_height=False):
            self.run = gr.Dropdown([], label="Run", min_width=320, scale=3)
            self.temperature = gr.Number(None, label="Temperature", info=GREEDY, step=0.1, min_width=180)
            self.measure = gr.Button("Measure bounds", variant="primary", min_width=140)
        self.said = show()
        with gr.Row(equal_height=False):
            self.plots = [gr.Plot(show_label=False, visible=False) for _ in range(2)]
        self.gaps = show()
        self.speedup = gr.Plot(show_label=False, visible=False)
        self.job, self.clock = gr.State(None), gr.Timer(POLL_SECONDS, active=False)
        shown = [self.said, *self.plots, self.gaps, self.speedup]
        on_load(self.fill, None, [self.run, *shown])
        self.run.input(self.look, self.run, shown, **QUIET)
        begun = [self.job, self.clock, self.measure, self.said]
        self.measure.click(self.start, [self.run, self.temperature], begun, **QUIET)
        self.clock.tick(
            self.poll, [self.job, self.run], [*begun[:-1], *shown], queue=False, trigger_mode="once", **QUIET
        )

    def fill(self) -> Updates:
        """The runs to choose from, newest first."""
        try:
            runs = [run for run in self.repository.runs(limit=SHOWN) if run.metrics]
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        names = [(f"{run.label} · {run.task} · {run.pair} · {run.id[:6]}", run.id) for run in runs]
        first = next((run for run in runs if of_run(run)), runs[0] if runs else None)
        choice = gr.Dropdown(names, value=first.id if first else None)
        return {self.run: choice} | (self.look(first.id) if first else {self.said: notice(NONE)})

    def look(self, id: str | None) -> Updates:
        """What is known of a run."""
        if not id:
            return {self.said: notice(NONE)}
        try:
            run = self.repository.run(id)
            company = [run] if run.experiment_id is None else list(self.repository.experiment(run.experiment_id).runs)
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        return self._shown(run, company)

    def _shown(self, run: RunView, company: list[RunView]) -> Updates:
        found = of_run(run)[:2]
        figures = [
            bounds_figure.draw(*rates(one), f"At {one['positions']} positions, temperature {one['temperature']:g}")
            for one in found
        ]
        points = speedup.measured(company)
        return {
            self.said: "" if found else notice(NOT_YET),
            **{
                plot: gr.Plot(figures[i] if i < len(figures) else None, visible=i < len(figures))
                for i, plot in enumerate(self.plots)
            },
            self.gaps: "".join(f"<h4>Temperature {one['temperature']:g}</h4>{gaps_html(one)}" for one in found),
            self.speedup: gr.Plot(speedup.draw(points) if points else None, visible=bool(points)),
        }

    def start(self, id: str | None, temperature: float | None) -> Updates:
        """Writes the job, and begins to follow it."""
        try:
            if not id:
                raise InvalidSetting(NONE)
            if temperature is not None and not temperature > 0:
                raise InvalidSetting(
                    f"The temperature is {temperature:g}: expected more than 0, where several drafts differ."
                )
            job = self.repository.enqueue("bounds", {"run_id": id, "temperature": temperature}, PRIORITY)
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        said = worker_notice(self.repository.worker(), True) or notice("Measuring.")
        return {
            self.job: job,
            self.clock: gr.Timer(active=True),
            self.measure: gr.Button(interactive=False),
            self.said: said,
        }

    def poll(self, job: str | None, id: str | None) -> Any:
        """Whether the job has ended."""
        ended = {self.job: None, self.clock: gr.Timer(active=False), self.measure: gr.Button(interactive=True)}
        if job is None:
            return ended
        try:
            state = self.repository.job(job)
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        if state.status in ("queued", "running"):
            worker = self.repository.worker()
            return {self.said: notice(worker.activity) if worker and worker.alive else worker_notice(worker, True)}
        if state.status == "finished":
            return ended | self.look(id)
        return ended | {self.said: notice(state.error or "It was stopped.", "bad")}
