"""Experiments page: starts several settings on the same prompts and follows their progress. The worker runs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import gradio as gr

from dashboard.experiments import more_tasks
from dashboard.experiments.custom_tasks_panel import CustomTasksPanel
from dashboard.experiments.engines_panel import EnginesPanel, engines_html
from dashboard.experiments.experiment_form import ExperimentForm, task_names
from dashboard.experiments.experiment_list import PER_PAGE, experiments_html
from dashboard.experiments.find_setting import FindPanel
from dashboard.experiments.own_models_panel import OwnModelsPanel
from dashboard.experiments.pair_lists import PairLists, pair_lists
from dashboard.experiments.sweep_form import size_line
from dashboard.tables.calibration_html import calibration_html
from dashboard.ui import actions
from dashboard.ui.components import KEEP_PLACE, heading, notice, section, show
from dashboard.ui.pager import turned
from dashboard.ui.pair_field import pair_badges, pair_choices, redraw_pairs
from dashboard.ui.polled import Polled
from dashboard.ui.question import Act, Asked, Updates, Values
from dashboard.ui.templates import Html, escape, render
from dashboard.ui.view import View
from dashboard.ui.worker_status import absence_notice
from fsd_core.engines.engine_knob import is_told
from fsd_core.errors import FsdError
from fsd_core.models.model_roots import check_folders
from fsd_core.review.resting import resting_on
from fsd_core.tasks import Task
from fsd_core.worker import local_runs
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.database.repository import Repository

_POLL_SECONDS = 1.0
_OLDER = "older experiments"
_MOST_PAGES = 1000


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ExperimentsPage(repository, settings)


class Latest(NamedTuple):
    """The parts of an open page that may change by themselves: HTML, the names of available tasks, and custom tasks."""

    worker: Html
    experiments: Html
    states: tuple[tuple[str, str], ...]
    """ids and statuses"""
    has_older: bool
    missing_tasks: Html
    custom_tasks: Html
    tasks: tuple[str, ...]
    custom: tuple[Task, ...]
    own_pairs: PairLists
    pairs: tuple[tuple[str, str], ...]
    """titles and names"""
    endpoints: tuple[str, ...]
    engines: Html
    engines_to_calibrate: tuple[str, ...]


class ExperimentsPage:
    """The page's components as attributes. Its methods return the page's content for a question."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.settings, self.home = repository, settings, settings.home
        self.executor: Executor = settings.executor
        self.latest = Polled(self._latest, _POLL_SECONDS / 2)
        show(heading("Experiments"))
        self.worker = show()
        self.form = ExperimentForm(repository, settings)
        with self.form.first_way:
            self.finder = FindPanel(repository, settings, self.form, self.latest.forget)
            with gr.Column(elem_classes=["exp-history"]):
                show(section("Progress and history"))
                self.archived = gr.Checkbox(
                    False, label="Show archived", container=False, min_width=130, elem_classes=["fsd-quiet"]
                )
                self.list_answer = show(elem_id="list-answer")
                self.list = show(js_on_load=actions.CLICKS + KEEP_PLACE, elem_id="experiments")
                self.older = gr.Button("Show older experiments", size="sm", visible=False)
        with self.form.list:
            self.size = show(elem_classes=["exp-size"])
            self.start = gr.Button("Start experiment")
            self.answer = show()
        with self.form.second_way:
            with gr.Accordion("More tasks", open=False):
                self.fetch_answer = show()
                self.more_tasks = show(js_on_load=actions.CLICKS, elem_id="more-tasks")
            self.custom_tasks = CustomTasksPanel(repository, settings, self.form, self.latest.forget)
            self.own_models = OwnModelsPanel(repository, settings, self.form, self.latest.forget)
            self.engines = EnginesPanel(repository, settings, self.form, self.latest.forget)
        self._listen(gr.Timer(_POLL_SECONDS))

    def _listen(self, clock: gr.Timer) -> None:
        form = [*self.form.fields.values()]
        view = View(self.answer, self.fail)
        view.on(clock.tick, self.list.click, self.more_tasks.click)
        view.turns(_OLDER, [(self.older, 1)])
        view.button(self.start, "start", form, self.queue_experiment)
        for action in actions.ACTIONS:
            view.act(action, self.on_list_button, self.list_answer)
        view.act("fetch", self.fetch_task, self.fetch_answer)
        self.custom_tasks.listen(view)
        self.own_models.listen(view)
        self.engines.listen(view)
        self.finder.listen(view)
        kept = [*form, *self.finder.fields]
        outputs = [
            self.worker, self.list, self.list_answer, self.older, self.more_tasks, self.custom_tasks.list,
            self.custom_tasks.form_hint, self.own_models.list, self.own_models.presets, self.engines.list, self.size,
            self.start, self.finder.engine.field, *self.form.outputs, *self.finder.bounds.values(),
        ]  # fmt: skip
        filled_in = [*self.own_models.filled_in, self.custom_tasks.formless]
        lasting = [self.form.fields["pair"], self.form.fields["task"]]
        view.listen(self.redraw, [*kept, self.archived], outputs, filled_in, kept, lasting)

    # --- what is shown -------------------------------------------------------------------------------------------

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the form, the tasks and the list."""
        page = min(asked.page(_OLDER, ""), _MOST_PAGES)
        updates = self.form.redraw(asked) | self.finder.redraw(asked)
        try:
            now = self.latest((page + 1) * PER_PAGE, bool(asked[self.archived]))
        except FsdError as error:
            unknown = notice(str(error), "bad")
            updates = self.form.redraw_hint(asked) | updates | self._size(asked, ())
            return updates | ({self.worker: unknown} if asked.differs("worker", unknown) else {})
        updates |= redraw_pairs(asked, self.form.fields["pair"], now.pairs)
        updates |= self.form.redraw_tasks(asked, now.tasks, now.custom)
        updates |= self.form.redraw_endpoints(asked, now.endpoints)
        updates |= self.finder.engine.redraw(asked, now.engines_to_calibrate)
        self.form.clamp_prompts(asked)
        updates = self.form.redraw_hint(asked) | updates | self._size(asked, now.tasks)
        if asked.differs("worker", now.worker):
            updates[self.worker] = now.worker
        if asked.differs("missing tasks", now.missing_tasks):
            updates[self.more_tasks] = now.missing_tasks
        updates |= self.custom_tasks.redraw(asked, now.custom_tasks)
        updates |= self.own_models.redraw(asked, now.own_pairs)
        updates |= self.engines.redraw(asked, now.engines)
        if asked.differs("states", now.states):
            updates[self.list_answer] = ""
        if asked.differs("list", page, now.experiments, now.has_older):
            updates[self.list] = render("experiments/list.html", "list", now.experiments, turned(_OLDER, "", page))
            updates[self.older] = gr.Button(visible=now.has_older)
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error above what was shown before."""
        return {self.worker: notice(str(error), "bad")}

    def _size(self, asked: Asked, tasks: tuple[str, ...]) -> Updates:
        """Return how much work the form asks for, or what is wrong with it, if it differs."""
        values = self.form.values(asked)
        if not asked.differs("size", [*values.values()], tasks):
            return {}
        try:
            sweep = self.form.sweep(values)
        except FsdError as error:
            return {self.size: notice(str(error), "warn"), self.start: gr.Button(interactive=False)}
        return {self.size: escape(size_line(sweep)), self.start: gr.Button(interactive=True)}

    def _latest(self, limit: int, archived: bool) -> Latest:
        """Return the latest experiments and the tasks."""
        views = self.repository.experiments(limit=limit + 1, offset=0, archived=archived)
        experiments = [local_runs.with_actual_status(view, self.home) for view in views]
        waiting = any(experiment.under_way for experiment in experiments)
        worker = self.repository.worker()
        under_way = [run.id for e in experiments if e.under_way for run in e.runs if run.prompts_done]
        scores = self.repository.scores(under_way) if under_way else {}
        custom_tasks, tasks_html = self.custom_tasks.tasks()
        badges, engines = pair_badges(self.repository), self.repository.engines()
        return Latest(
            absence_notice(worker, self.executor, waiting),
            experiments_html(
                experiments[:limit],
                scores,
                lambda e: calibration_html(self.repository, e),
                lambda e: resting_on(self.repository, (run.id for run in e.runs)),
            ),
            tuple((e.id, e.status) for e in experiments[:limit]),
            len(experiments) > limit,
            more_tasks.more_tasks_html(more_tasks.fetches(self.repository), worker),
            tasks_html,
            task_names(custom_tasks),
            tuple(custom_tasks),
            pair_lists(self.repository, worker, badges),
            pair_choices(self.repository, badges),
            tuple(engine.name for engine in engines),
            engines_html(engines),
            tuple(engine.name for engine in engines if is_told(engine.served)),
        )

    # --- what a person does --------------------------------------------------------------------------------------

    def queue_experiment(self, values: Values, asked: Asked) -> Updates:
        """Store the experiment and its job for the worker, and clear the name for the next one."""
        sweep = self.form.sweep(values)
        check_folders(sweep.pair, self.settings)
        begin(self.repository, sweep, values.key)
        self.latest.forget()
        asked.used(values, self.form.fields["name"])
        return {self.answer: notice(f"Added: {size_line(sweep)}.")}

    def on_list_button(self, act: Act, asked: Asked) -> Updates:
        """Do what a button of an experiment asks for."""
        told = actions.perform(self.repository, self.home, asked.person, act.name, act["kind"], act["id"])
        self.latest.forget()
        return {self.list_answer: notice(told)}

    def fetch_task(self, act: Act, asked: Asked) -> Updates:
        """Let the worker fetch the task whose button was clicked."""
        more_tasks.request(self.repository, act["id"])
        self.latest.forget()
        return {self.fetch_answer: ""}
