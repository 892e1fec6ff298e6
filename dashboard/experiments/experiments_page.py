"""Experiments page: starts several settings on the same prompts and follows their progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.experiments import custom_tasks_panel
from dashboard.experiments.custom_tasks_panel import CustomTasksPanel
from dashboard.experiments.experiment_form import (
    ExperimentForm,
    size_line,
    task_names,
)
from dashboard.experiments.find_panel import FindPanel
from dashboard.experiments.own_models_panel import EnginesPanel, OwnModelsPanel, PairLists, engines_html, pair_lists
from dashboard.tables.run_record import calibration_html
from dashboard.ui import components
from dashboard.ui.components import (
    KEEP_PLACE,
    Column,
    archive_button,
    delete_button,
    empty_state,
    heading,
    link,
    mixed_mark,
    notice,
    pill,
    section,
    show,
    table,
    tags_html,
    with_interval,
    work_button,
)
from dashboard.ui.fields import pair_badges, pair_choices, redraw_pairs, turned
from dashboard.ui.page import absence_notice
from dashboard.ui.templates import Html, ago, duration, escape, interval, joined, render, texts_done
from dashboard.ui.view import Act, Asked, Polled, Updates, Values, View
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.engines.client import is_told
from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import check_folders, pair_title
from fsd_core.review.review_service import resting_on
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import Deletion
from fsd_core.tasks import Task
from fsd_core.texts import DASH, count, percent
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.records import ExperimentView, RunView
    from fsd_core.storage.repository import Repository


PER_PAGE = 10

_COLUMNS = (
    Column("Setting", "wide"), Column("Seed", "num"), Column("Prompts", "num"),
    Column("Accuracy", "num"), Column("Time per answer", "num"), Column(""),
)  # fmt: skip


def experiments_html(
    experiments: Sequence[ExperimentView],
    scores: Mapping[str, tuple[int, int]],
    calibrated: Callable[[ExperimentView], Html | None] = lambda experiment: None,
    resting: Callable[[ExperimentView], str] = lambda experiment: "",
    *,
    hidden: bool = False,
) -> Html:
    """Return one card per experiment, the latest first. ``hidden``: whether there are archived ones beside them.

    ``scores`` maps the id of an unfinished run to its prompts solved and done. ``calibrated`` returns what a
    calibration displays instead of its runs, or ``None`` for another experiment. ``resting`` names the uses that rest
    on an experiment.
    """
    if not experiments:
        return empty_state(
            "Every experiment is archived" if hidden else "No experiment yet",
            "",
            ("playground", "Or try one prompt first"),
        )
    return joined(_card(e, scores, calibrated(e), resting(e)) for e in experiments)


def _card(e: ExperimentView, scores: Mapping[str, tuple[int, int]], calibrated: Html | None, resting: str) -> Html:
    under_way = e.under_way
    parts = [_bar(e) if under_way else _failures(e.runs)]
    if calibrated is not None:
        parts.append(calibrated)
    elif under_way:
        parts.append(_runs_table(e.runs, scores))
    return render(
        "experiments/list.html",
        "card",
        e,
        tags=tags_html(e),
        parts=parts,
        about=f"{pair_title(e.config.pair)} · {e.config.task} · {_line(e, calibrated is not None)}",
        actions=_actions(e, resting, is_calibration=calibrated is not None),
    )


def _actions(e: ExperimentView, resting: str, *, is_calibration: bool) -> list[Html]:
    """Return the card's buttons. A calibration cannot be compared: its runs are parts of settings."""
    if e.under_way:
        return [work_button(e)]
    compare = (
        [] if is_calibration else [link(f"compare?experiment={e.id}", f"Compare these {count(len(e.runs), 'run')}")]
    )
    delete = delete_button("experiment", e.id, Deletion(e.name, len(e.runs), e.prompts_done), resting)
    return [*compare, work_button(e), archive_button("experiment", e), delete]


def _line(e: ExperimentView, is_calibration: bool) -> str:
    texts = texts_done(e)
    if is_calibration:
        return f"{texts}, " + ("waiting" if e.status == "queued" else f"begun {ago(e.created_at)}")
    if not e.under_way:
        return f"{texts}, {ago(e.created_at)}"
    return f"{texts}, {_remaining(time_left(e))}" if e.status == "running" else f"{texts}, waiting"


def _remaining(seconds: float | None) -> str:
    """Return the remaining time, so coarse that the page does not change every second."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 10:
        return "a few seconds left"
    if seconds < 90:
        return f"about {5 * round(seconds / 5)} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _bar(e: ExperimentView) -> Html:
    """Return the progress in prompts, or in minutes for a calibration, whose number of prompts is unknown."""
    done, total, label = e.prompts_done, e.prompts_total, "Texts written"
    if isinstance(e.config, CalibrationConfig):
        done, total, label = e.decoding_seconds, 60 * e.config.all_minutes, "Minutes spent"
    share = min(100, 100 * done / total) if total else 0
    return render("experiments/list.html", "bar", share, label)


def _runs_table(runs: Sequence[RunView], scores: Mapping[str, tuple[int, int]]) -> Html:
    return table(_COLUMNS, [_run(run, scores.get(run.id)) for run in runs], "Runs of the experiment")


def _run(run: RunView, score: tuple[int, int] | None) -> tuple[str, ...]:
    m = run.metrics or {}
    time = duration(m.get("seconds_per_answer"))
    mark = mixed_mark(run.speed_mixed if m.get("seconds_per_answer") else ())
    return (
        render("experiments/list.html", "setting", run), str(run.seed), f"{run.prompts_done}/{run.prompts_total}",
        _accuracy(m, score), joined([time, mark]), pill(run.status),
    )  # fmt: skip


def _accuracy(metrics: Mapping[str, Any], score: tuple[int, int] | None) -> str:
    """Return the accuracy of a run, or of its prompts so far, with its interval."""
    if metrics:
        value, low, high = (metrics.get(f"accuracy{end}") for end in ("", "_low", "_high"))
    elif score is not None:
        solved, done = score
        value, (low, high) = solved / done, wilson(solved, done)
    else:
        return DASH
    ends = interval(low, high, 100)
    return with_interval(percent(value, low, high), ends)


def _failures(runs: Sequence[RunView]) -> Html:
    """Return the errors of the failed runs, each once."""
    sentences = dict.fromkeys(f"{run.label}: {run.error}" for run in runs if run.status == "failed" and run.error)
    return joined(notice(text, "bad") for text in sentences)


def time_left(experiment: ExperimentView) -> float | None:
    """Return the seconds of work that remain for an experiment, or ``None`` until one prompt is done.

    Its runs take turns prompt by prompt, so the finished prompts are a fair sample of the remaining ones.
    """
    remaining = sum(run.prompts_total - run.prompts_done for run in experiment.runs if not run.ended)
    if not remaining:
        return 0.0
    return remaining * experiment.decoding_seconds / experiment.prompts_done if experiment.prompts_done else None


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
                self.list = show(js_on_load=components.CLICKS + KEEP_PLACE, elem_id="experiments")
                self.older = gr.Button("Show older experiments", size="sm", visible=False)
        with self.form.list:
            self.size = show(elem_classes=["exp-size"])
            self.start = gr.Button("Start experiment")
            self.answer = show()
        with self.form.second_way:
            with gr.Accordion("More tasks", open=False):
                self.fetch_answer = show()
                self.more_tasks = show(js_on_load=components.CLICKS, elem_id="more-tasks")
            self.custom_tasks = CustomTasksPanel(
                repository, settings, self.form, self.finder, self._begin, self.latest.forget
            )
            self.own_models = OwnModelsPanel(repository, settings, self.form, self.latest.forget)
            self.engines = EnginesPanel(repository, settings, self.form, self.latest.forget)
        self._listen(gr.Timer(_POLL_SECONDS))

    def _listen(self, clock: gr.Timer) -> None:
        form = [*self.form.fields.values()]
        view = View(self.answer, self.fail)
        view.on(clock.tick, self.list.click, self.more_tasks.click)
        view.turns(_OLDER, [(self.older, 1)])
        view.button(self.start, "start", form, self.queue_experiment)
        for action in components.ACTIONS:
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
        experiments = self.repository.experiments(limit=limit + 1, offset=0, archived=archived)
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
                hidden=not experiments and bool(self.repository.experiments(limit=1)),
            ),
            tuple((e.id, e.status) for e in experiments[:limit]),
            len(experiments) > limit,
            custom_tasks_panel.more_tasks_html(custom_tasks_panel.fetches(self.repository), worker),
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
        told = self._begin(values)
        asked.used(values, self.form.fields["name"])
        return {self.answer: notice(told)}

    def _begin(self, values: Values) -> str:
        sweep = self.form.sweep(values)
        check_folders(sweep.pair, self.settings)
        begin(self.repository, sweep, values.key)
        self.latest.forget()
        return f"Added: {size_line(sweep)}."

    def on_list_button(self, act: Act, asked: Asked) -> Updates:
        """Do what a button of an experiment asks for."""
        told = components.perform(self.repository, self.home, asked.person, act.name, act["kind"], act["id"])
        self.latest.forget()
        return {self.list_answer: notice(told)}

    def fetch_task(self, act: Act, asked: Asked) -> Updates:
        """Let the worker fetch the task whose button was clicked."""
        custom_tasks_panel.request(self.repository, act["id"])
        self.latest.forget()
        return {self.fetch_answer: ""}
