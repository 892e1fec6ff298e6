"""Experiments page: starts several settings on the same prompts and follows their progress. The worker runs them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.experiments import more_tasks
from dashboard.experiments.experiment_form import ExperimentForm, task_choices, task_names
from dashboard.experiments.experiment_list import OPEN_STATUSES, PER_PAGE, experiments_html
from dashboard.experiments.find_setting import FindPanel
from dashboard.experiments.own_tasks import OwnTasksPanel
from dashboard.experiments.sweep_form import size_line
from dashboard.tables.calibration_html import calibration_html
from dashboard.ui import actions
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import KEEP_PLACE, PRIVATE_EVENT, heading, notice, on_load, section, show
from dashboard.ui.polled import Polled
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, escape
from dashboard.ui.worker_status import absence_notice
from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import get_pair
from fsd_core.roles import require
from fsd_core.tasks.custom.lookup import own_tasks
from fsd_core.tasks.suitable import kept_or_first
from fsd_core.worker import gpu_billing, local_runs

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.tasks import Task

_LEAD = "Several settings on the same prompts, taking turns. The worker continues when this page is closed."
_POLL_SECONDS = 1.0


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ExperimentsPage(repository, settings)


class ShownState(NamedTuple):
    """The parts of an open page that may change by themselves: HTML, and the names of available tasks."""

    worker: str
    experiments: str
    missing: str
    own: str
    tasks: tuple[str, ...]


class ExperimentsPage:
    """The page's components as attributes, and one method per event."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.home = repository, settings.home
        self.executor: Executor = settings.executor
        self.latest = Polled(self._latest, _POLL_SECONDS / 2)
        show(heading("Experiments", _LEAD))
        self.worker = show()
        with gr.Row(equal_height=False):
            with gr.Column(scale=5, min_width=340):
                self.form = ExperimentForm(repository)
                self.more = self._more_tasks()
                self.own = OwnTasksPanel(repository, settings)
                self.size = show(elem_classes=["exp-size"])
                self.start = gr.Button("Start experiment", variant="primary")
                self.answer = show()
                self.finder = FindPanel(repository, self.form.task)
            with gr.Column(scale=6, min_width=340):
                show(section("Progress and history"))
                self.archived = gr.Checkbox(
                    False, label="Show archived", container=False, min_width=130, elem_classes=["fsd-quiet"]
                )
                self.list = show(js_on_load=actions.CLICKS + KEEP_PLACE, elem_id="experiments")
                self.older = gr.Button("Show older experiments", size="sm", visible=False)
        self.shown = gr.State(ShownState("", "", "", "", task_names()))
        self.limit = gr.State(PER_PAGE)
        self._events()

    def _more_tasks(self) -> gr.HTML:
        with gr.Accordion("More tasks", open=False):
            self.refused = show()
            return show(js_on_load=actions.CLICKS, elem_id="more-tasks")

    def _events(self) -> None:
        fields = self.form.fields
        # Without triggers, Gradio runs this when the page opens and whenever a field changes.
        gr.on(
            fn=self.measure, inputs=set(fields.values()), outputs=[self.size, self.start],
            **FOLLOWS,
        )  # fmt: skip
        self.form.listen()
        poll: dict[str, Any] = {
            "fn": self.poll, "inputs": [self.limit, self.archived, self.shown, fields["pair"], fields["task"]],
            "outputs": [
                self.worker, self.list, self.older, self.more, self.own.list, fields["task"], self.shown
            ], **PRIVATE_EVENT,
        }  # fmt: skip
        gr.Timer(_POLL_SECONDS).tick(trigger_mode="once", **poll)
        on_load(self.poll, poll["inputs"], poll["outputs"])
        self.start.click(
            self.begin, set(fields.values()), [self.answer, fields["name"]], trigger_mode="once", **PRIVATE_EVENT
        ).then(**poll)  # fmt: skip
        self.list.click(self.act, None, self.answer, **PRIVATE_EVENT).then(**poll)
        self.more.click(self.fetch, None, self.refused, **PRIVATE_EVENT).then(**poll)
        self.own.listen(self.latest.forget, poll)
        self.finder.listen(fields, self.latest.forget, poll)
        on_choice(self.archived)(**poll | FOLLOWS)
        self.older.click(lambda limit: limit + PER_PAGE, self.limit, self.limit, **PRIVATE_EVENT).then(**poll)

    # --- events --------------------------------------------------------------------------------------------------

    def measure(self, values: dict[Any, Any]) -> tuple[Html, Any]:
        """Return how much work the form asks for, or what is wrong with it."""
        try:
            sweep = self.form.sweep(values)
        except FsdError as error:
            return notice(str(error), "warn"), gr.Button(interactive=False)
        return escape(size_line(sweep)), gr.Button(interactive=True)

    def begin(self, values: dict[Any, Any], request: gr.Request) -> tuple[Html, str]:
        """Store the experiment and its job for the worker, and clear the name for the next one."""
        try:
            require(person_of(request), "author", "Starting an experiment")
            sweep = self.form.sweep(values)
            gpu_billing.note(self.repository.create_experiment(sweep))
            self.latest.forget()
        except FsdError as error:
            return notice(str(error), "bad"), values[self.form.fields["name"]]
        return notice(f"Added: {size_line(sweep)}."), ""

    def act(self, event: gr.EventData, request: gr.Request) -> Html:
        """Cancel, resume or delete the experiment whose button was clicked."""
        action, kind, id = str(event.act), str(event.kind), str(event.id)
        answer = actions.answered(self.repository, self.home, person_of(request), action, kind, id)
        self.latest.forget()
        return answer

    def fetch(self, event: gr.EventData, request: gr.Request) -> Html:
        """Let the worker fetch the task whose button was clicked."""
        try:
            require(person_of(request), "author", "Fetching a task")
            more_tasks.request(self.repository, str(event.act), str(event.kind), str(event.id))
        except FsdError as error:
            return notice(str(error), "bad")
        self.latest.forget()
        return Html()

    def poll(self, limit: int, archived: bool, shown: ShownState, pair: str, task: str | None) -> Any:
        """Return the list, the worker's status and the tasks, or no updates if nothing has changed."""
        try:
            now, more = self.latest(limit, archived)
        except FsdError as error:
            now, more = shown._replace(worker=notice(str(error), "bad")), False
        if now == shown:
            return (gr.skip(),) * 7
        same_tasks = now.tasks == shown.tasks
        custom_tasks = [] if same_tasks else own_tasks(self.repository)
        return (
            now.worker,
            now.experiments,
            gr.Button(visible=more),
            gr.skip() if now.missing == shown.missing else now.missing,
            gr.skip() if now.own == shown.own else now.own,
            gr.skip() if same_tasks else self._task_field(pair, task, now.tasks, custom_tasks),
            now,
        )

    @staticmethod
    def _task_field(pair: str, task: str | None, names: tuple[str, ...], custom_tasks: Sequence[Task]) -> gr.Dropdown:
        """Return the tasks that are available now.

        The selection is kept unless its task is gone: another may have been selected since this poll was sent.
        """
        choices = task_choices(pair, custom_tasks)
        if task in names:
            return gr.Dropdown(choices)
        return gr.Dropdown(choices, value=kept_or_first(task, get_pair(pair), custom_tasks))

    def _latest(self, limit: int, archived: bool) -> tuple[ShownState, bool]:
        """Return what the page displays, and whether there are older experiments."""
        views = self.repository.experiments(limit=limit + 1, offset=0, archived=archived)
        experiments = [local_runs.as_it_stands(view, self.home) for view in views]
        waiting = any(experiment.status in OPEN_STATUSES for experiment in experiments)
        worker = self.repository.worker()
        under_way = [run.id for e in experiments if e.status in OPEN_STATUSES for run in e.runs if run.prompts_done]
        scores = self.repository.scores(under_way) if under_way else {}
        custom_tasks, tasks_html = self.own.tasks()
        state = ShownState(
            absence_notice(worker, self.executor, waiting), experiments_html(
                experiments[:limit], scores, lambda e: calibration_html(self.repository, e)
            ),
            more_tasks.more_tasks_html(more_tasks.fetches(self.repository), worker), tasks_html,
            task_names(custom_tasks),
        )  # fmt: skip
        return state, len(experiments) > limit
