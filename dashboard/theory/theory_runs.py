"""The part of the theory page on runs: their bounds, and their predicted speed-up."""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.tables.measured_bounds import BOUNDS_PRIORITY, gaps_html, of_run, rates
from dashboard.theory import speedup_figure
from dashboard.ui.components import notice, section, show
from dashboard.ui.optional_number import optional_number, read
from dashboard.ui.question import Asked, Updates, Values
from dashboard.ui.templates import render
from dashboard.ui.view import View
from dashboard.ui.worker_status import absence_notice
from fsd_core.errors import FsdError, NotGiven, OutOfRange
from fsd_core.models.model_pairs import pair_title
from fsd_core.plots import acceptance_by_drafts
from fsd_core.storage.messages import BoundsJob
from fsd_core.storage.records import UNENDED
from fsd_core.worker import gpu_billing

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import JobView, RunView

_MOST_LISTED = 100  # runs to choose from
PLOTS = 4
"""plots of bounds: one for each chosen run and temperature"""
_POLL_SECONDS = 1.0
_LEAD = (
    "What several drafts could have gained in your runs. The worker asks a run's two models again at 48 positions of "
    "its texts, and computes every verifier and every optimum there. With a large vocabulary this takes a few minutes."
)
NONE = "No run has ended yet: start an experiment, and choose its runs here."
CHOOSE = "No run is chosen: choose up to four, of one pair or several."
NOT_YET = "No bounds of {} are known yet: choose a temperature and measure them."
TEMPERATURE = "above 0; empty takes the run's"


class RunTheory:
    """The components as attributes, with :meth:`redraw` and what the button does."""

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
            self.temperature = optional_number("Temperature", TEMPERATURE, "1")
            self.measure = gr.Button("Measure bounds", variant="primary", min_width=140)
        self.answer = show()
        self.progress = show()
        self.message = show()
        self.plots = []
        for _ in range(0, PLOTS, 2):
            with gr.Row(equal_height=False):
                self.plots += [gr.Plot(show_label=False, visible=False, min_width=400) for _ in range(2)]
        self.gaps = show()
        self.speedup = gr.Plot(show_label=False, visible=False)
        self.clock = gr.Timer(_POLL_SECONDS, active=False)

    @property
    def fields(self) -> list[Any]:
        """Fields that a person fills in."""
        return [self.runs, self.temperature]

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [
            self.runs, self.measure, self.answer, self.progress, self.message, *self.plots, self.gaps, self.speedup,
            self.clock,
        ]  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.button(self.measure, "measure bounds", self.fields, self.start, self.answer)
        view.on(self.clock.tick)

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the chosen runs' bounds, and of the jobs that measure them."""
        ids, offered = self._offer(asked)
        runs = [self.repository.run(id) for id in ids]
        experiments = dict.fromkeys(run.experiment_id for run in runs)
        siblings = [run for run in runs if run.experiment_id is None]
        siblings += [run for id in experiments if id for run in self.repository.experiment(id).runs]
        jobs = self._jobs(ids)  # after the runs: a job that has ended has stored its bounds
        updates = offered | self._bounds(asked, runs, siblings) | self._progress(asked, jobs)
        unmeasured = [_name(run) for run in runs if not of_run(run)]
        if asked.differs("message", unmeasured, bool(runs)):
            none = CHOOSE if int(asked.shown["offered"]) else NONE
            message = NOT_YET.format(", ".join(unmeasured)) if unmeasured else "" if runs else none
            updates[self.message] = notice(message) if message else ""
        if asked.differs("answer", ids, asked[self.temperature]):
            updates[self.answer] = ""  # it was about another choice
        return updates

    def fail(self, error: FsdError) -> Updates:
        """Return an error in place of the bounds."""
        hidden = {plot: gr.Plot(visible=False) for plot in (*self.plots, self.speedup)}
        return {self.message: notice(str(error), "bad"), self.progress: "", self.gaps: "", **hidden}

    def _offer(self, asked: Asked) -> tuple[list[str], Updates]:
        """Return the ids of the chosen runs. A page that opens offers the newest runs, and chooses one."""
        ids = (asked[self.runs] or [])[:PLOTS]
        if asked.shown.get("offered", "").isdecimal():
            return ids, {}
        runs = [run for run in self.repository.runs(limit=_MOST_LISTED, archived=False) if run.metrics]
        names = [(_name(run), run.id) for run in runs]
        asked.shown["offered"] = str(len(runs))
        if not ids:
            drafted = (run for run in runs if run.decoding.drafter is not None)
            first = next((run for run in runs if of_run(run)), None) or next(drafted, None) or next(iter(runs), None)
            ids = [first.id] if first else []
            asked.fill(self.runs, ids)
        return ids, {self.runs: gr.Dropdown(names)}

    def _bounds(self, asked: Asked, runs: list[RunView], siblings: list[RunView]) -> Updates:
        """Return the bounds and speed-ups of runs, if they differ."""
        measured = [(run, bounds) for run in runs for bounds in of_run(run)][:PLOTS]
        titles = [_title(run, bounds) for run, bounds in measured]
        points = speedup_figure.measured(siblings)
        shown = [bounds for _, bounds in measured]
        if not asked.differs("bounds", len(runs), titles, shown, points, slow=True):
            return {}
        figures = [
            acceptance_by_drafts.draw(*rates(bounds), _title(run, bounds) if len(runs) > 1 else _measured_at(bounds))
            for run, bounds in measured
        ]
        updates: Updates = {
            plot: gr.Plot(figures[i] if i < len(figures) else None, visible=i < len(figures))
            for i, plot in enumerate(self.plots)
        }
        return updates | {
            self.gaps: render("theory/runs.html", "gaps", list(zip(titles, map(gaps_html, shown), strict=True))),
            self.speedup: gr.Plot(speedup_figure.draw(points) if points else None, visible=bool(points)),
        }

    def _jobs(self, ids: list[str]) -> list[JobView]:
        """Return the newest job of each of these runs."""
        newest: dict[str, JobView] = {}
        for job in self.repository.latest_jobs(BoundsJob.kind) if ids else ():
            newest.setdefault(job.payload.get("run_id", ""), job)
        return [newest[id] for id in ids if id in newest]

    def _progress(self, asked: Asked, jobs: list[JobView]) -> Updates:
        """Return how far the jobs are, if it differs. The page asks again while one is under way."""
        waiting = [job for job in jobs if job.status in UNENDED]
        if waiting:
            worker = self.repository.worker()
            absent = absence_notice(worker, self.executor)
            begun = any(job.status == "running" for job in waiting)
            activity = worker.activity if worker and begun else "The worker will begin shortly."
            progress = absent or notice(f"Measuring, {len(waiting)} of {len(jobs)} to do. {activity}")
        else:
            errors = [job.error or "It was stopped." for job in jobs if job.status != "finished"]
            progress = notice(" ".join(dict.fromkeys(errors)), "bad") if errors else ""
        if not asked.differs("progress", progress, bool(waiting)):
            return {}
        return {
            self.progress: progress,
            self.clock: gr.Timer(active=bool(waiting)),
            self.measure: gr.Button(interactive=not waiting),
        }

    def start(self, values: Values, asked: Asked) -> Updates:
        """Queue a job for each chosen run, unless it is under way or was queued by the same click."""
        ids = list(dict.fromkeys(values[self.runs]))[:PLOTS]
        if not ids:
            raise NotGiven(CHOOSE)
        temperature = read(values[self.temperature], "Temperature")
        if temperature is not None and not 0 < temperature < math.inf:
            raise OutOfRange(f"The temperature is {temperature:g}: expected more than 0, where several drafts differ.")
        jobs = {_job_id(values.key, self.repository.run(id).id): BoundsJob(id, temperature) for id in ids}
        waiting = [job.payload for job in self.repository.latest_jobs(BoundsJob.kind) if job.status in UNENDED]
        for id, message in jobs.items():
            if message.as_json() not in waiting and not self.repository.find_job(id):
                self.repository.enqueue(message, BOUNDS_PRIORITY, id)
                gpu_billing.remember_requester(id)
        return {self.answer: ""}


def _job_id(key: str, run: str) -> str:
    return hashlib.blake2b(f"{key} {run}".encode(), digest_size=16).hexdigest()


def _name(run: RunView) -> str:
    return f"{run.label} · {run.task} · {pair_title(run.pair)} · {run.id[:6]}"


def _measured_at(bounds: dict[str, Any]) -> str:
    return f"At {bounds['positions']} positions, temperature {bounds['temperature']:g}"


def _title(run: RunView, bounds: dict[str, Any]) -> str:
    return f"{run.label} · {pair_title(run.pair)} · {_measured_at(bounds).lower()}"
