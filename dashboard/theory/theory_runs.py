"""The part of the theory page on runs: their bounds, and their predicted speed-up."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.measured_bounds import BOUNDS_PRIORITY, gaps_html, of_run, rates
from dashboard.theory import speedup_figure
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import PRIVATE_EVENT, notice, on_load, section, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import render
from dashboard.ui.worker_status import absence_notice
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.plots import acceptance_by_drafts
from fsd_core.roles import require
from fsd_core.storage.messages import BoundsJob
from fsd_core.worker import gpu_billing

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

_MOST_LISTED = 100  # runs to choose from
PLOTS = 4
"""plots of bounds: one for each chosen run and temperature"""
_POLL_SECONDS = 1.0
_LEAD = (
    "What several drafts could have gained in your runs. The worker asks a run's two models again at 48 positions of "
    "its texts, and computes every verifier and every optimum there. With a large vocabulary this takes a few minutes."
)
_NONE = "No run has ended yet: start an experiment, and choose its runs here."
CHOOSE = "No run is chosen: choose up to four, of one pair or several."
NOT_YET = "No bounds of {} are known yet: choose a temperature and measure them."
TEMPERATURE = "above 0; empty takes the run's"

Updates = dict[Any, Any]


class RunTheory:
    """The components as attributes, and one method per event."""

    def __init__(self, repository: Repository, executor: Executor) -> None:
        self.repository = repository
        self.executor: Executor = executor
        show(section("In your runs"))
        show(render("theory/runs.html", "lead", _LEAD))
        with gr.Row(equal_height=False, elem_classes=["rev-forms"]):
            self.runs = gr.Dropdown(
                [], label="Runs", info="Those whose two models are asked", multiselect=True, max_choices=PLOTS,
                min_width=320, scale=3,
            )  # fmt: skip
            self.temperature = gr.Number(1, label="Temperature", info=TEMPERATURE, step=0.1, min_width=180)
            self.measure = gr.Button("Measure bounds", variant="primary", min_width=140)
        self.said = show()
        self.plots = []
        for _ in range(0, PLOTS, 2):
            with gr.Row(equal_height=False):
                self.plots += [gr.Plot(show_label=False, visible=False, min_width=400) for _ in range(2)]
        self.gaps = show()
        self.speedup = gr.Plot(show_label=False, visible=False)
        self.jobs, self.clock = gr.State([]), gr.Timer(_POLL_SECONDS, active=False)
        results = [self.said, *self.plots, self.gaps, self.speedup]
        on_load(self.fill, None, [self.runs, *results])
        on_choice(self.runs)(self.look, self.runs, results, **FOLLOWS)
        started = [self.jobs, self.clock, self.measure, self.said]
        self.measure.click(self.start, [self.runs, self.temperature], started, **PRIVATE_EVENT)
        self.clock.tick(
            self.poll, [self.jobs, self.runs], [*started[:-1], *results], trigger_mode="once", **PRIVATE_EVENT
        )

    def fill(self) -> Updates:
        """Return the runs to choose from, newest first."""
        try:
            runs = [run for run in self.repository.runs(limit=_MOST_LISTED, archived=False) if run.metrics]
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        names = [(_name(run), run.id) for run in runs]
        drafted = (run for run in runs if run.decoding.drafter is not None)
        first = next((run for run in runs if of_run(run)), None) or next(drafted, None) or next(iter(runs), None)
        selected = [first.id] if first else []
        updates = self.look(selected) if selected else {self.said: notice(_NONE)}
        return {self.runs: gr.Dropdown(names, value=selected)} | updates

    def look(self, ids: list[str]) -> Updates:
        """Return the bounds and speed-ups of runs."""
        try:
            runs = [self.repository.run(id) for id in ids]
            experiments = dict.fromkeys(run.experiment_id for run in runs)
            siblings = [run for run in runs if run.experiment_id is None]
            siblings += [run for id in experiments if id for run in self.repository.experiment(id).runs]
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        return self._results(runs, siblings)

    def _results(self, runs: list[RunView], siblings: list[RunView]) -> Updates:
        measured = [(run, bounds) for run in runs for bounds in of_run(run)][:PLOTS]
        unmeasured = [_name(run) for run in runs if not of_run(run)]
        figures = [
            acceptance_by_drafts.draw(*rates(bounds), _title(run, bounds) if len(runs) > 1 else _where(bounds))
            for run, bounds in measured
        ]
        points = speedup_figure.measured(siblings)
        message = NOT_YET.format(", ".join(unmeasured)) if unmeasured else "" if runs else CHOOSE
        return {
            self.said: notice(message) if message else "",
            **{
                plot: gr.Plot(figures[i] if i < len(figures) else None, visible=i < len(figures))
                for i, plot in enumerate(self.plots)
            },
            self.gaps: render(
                "theory/runs.html", "gaps", [(_title(run, bounds), gaps_html(bounds)) for run, bounds in measured]
            ),
            self.speedup: gr.Plot(speedup_figure.draw(points) if points else None, visible=bool(points)),
        }

    def start(self, ids: list[str], temperature: float | None, request: gr.Request) -> Updates:
        """Queue the jobs and follow them."""
        try:
            require(person_of(request), "author", "Measuring bounds")
            if not ids:
                raise InvalidSetting(CHOOSE)
            if temperature is not None and not 0 < temperature < math.inf:
                raise InvalidSetting(
                    f"The temperature is {temperature:g}: expected more than 0, where several drafts differ."
                )
            jobs = [self.repository.enqueue(BoundsJob(id, temperature), BOUNDS_PRIORITY) for id in ids]
            for job in jobs:
                gpu_billing.note(job)
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        message = absence_notice(self.repository.worker(), self.executor) or notice("Measuring.")
        return {
            self.jobs: jobs,
            self.clock: gr.Timer(active=True),
            self.measure: gr.Button(interactive=False),
            self.said: message,
        }

    def poll(self, jobs: list[str], ids: list[str]) -> Any:
        """Return the progress of the jobs, or the results when they have ended."""
        ended = {self.jobs: [], self.clock: gr.Timer(active=False), self.measure: gr.Button(interactive=True)}
        if not jobs:
            return ended
        try:
            states = [self.repository.job(job) for job in jobs]
        except FsdError as error:
            return {self.said: notice(str(error), "bad")}
        if remaining := sum(state.status in ("queued", "running") for state in states):
            worker = self.repository.worker()
            if not (worker and worker.alive):
                return {self.said: absence_notice(worker, self.executor)}
            is_running = any(state.status == "running" for state in states)
            activity = worker.activity if is_running else "The worker will begin shortly."
            return {self.said: notice(f"Measuring, {remaining} of {len(states)} to do. {activity}")}
        errors = [state.error or "It was stopped." for state in states if state.status != "finished"]
        message = {self.said: notice(" ".join(dict.fromkeys(errors)), "bad")} if errors else {}
        return ended | self.look(ids) | message


def _name(run: RunView) -> str:
    return f"{run.label} · {run.task} · {run.pair} · {run.id[:6]}"


def _where(bounds: dict[str, Any]) -> str:
    return f"At {bounds['positions']} positions, temperature {bounds['temperature']:g}"


def _title(run: RunView, bounds: dict[str, Any]) -> str:
    return f"{run.label} · {run.pair} · {_where(bounds).lower()}"
