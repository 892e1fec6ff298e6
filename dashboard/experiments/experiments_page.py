"""Experiments: several settings on the same prompts, started here, done by the worker, watched while they run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import gradio as gr

from dashboard.experiments import more_tasks
from dashboard.experiments.experiment_list import OPEN, PER_PAGE, experiments_html
from dashboard.experiments.find_setting import FindPanel
from dashboard.experiments.own_tasks import OwnTasksPanel
from dashboard.experiments.prefill import prefilled
from dashboard.experiments.sweep_form import PARTS, build_sweep, rules_of, size_line
from dashboard.tables.calibration_html import calibration_html
from dashboard.ui import actions
from dashboard.ui.algorithms import PLAIN, SEVERAL, TUNED
from dashboard.ui.beginnings import beginning, untouched
from dashboard.ui.components import KEEP_PLACE, QUIET, escape, heading, notice, on_load, section, show
from dashboard.ui.option_fields import field, several
from dashboard.ui.people import person_of
from dashboard.ui.polled import Polled
from dashboard.ui.worker import absence_notice
from fsd_core.benchmarks.tasks import TASKS, Task
from fsd_core.benchmarks.tasks.own.finding import find_task, own_tasks
from fsd_core.benchmarks.tasks.suitable import kept_or_first, offered
from fsd_core.config import RULES
from fsd_core.config.options import METHOD_OPTIONS, OPTIONS
from fsd_core.config.sweeps import LENGTHS, LISTED, knob_of, readable
from fsd_core.errors import FsdError
from fsd_core.jobs import asked_by
from fsd_core.models.model_pairs import PAIRS, get_pair
from fsd_core.people import require

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository

LEAD = "Several settings on the same prompts, taking turns. The worker continues when this page is closed."
POLL_SECONDS = 1.0
KNOBS = [name for name, option in METHOD_OPTIONS.items() if option.is_knob]
DIALS = [
    name
    for name, option in METHOD_OPTIONS.items()
    if name == "strict_first"
    or (option.part in ("acceptance", "drafter", "topology") and name not in (*LISTED, *LENGTHS, *KNOBS, "drafts"))
]
"""options of which every setting of an experiment has the same value"""
CHOSEN = [part for part, _ in PARTS] + [name for name in LISTED if name != "acceptance"]
DEPENDENT = ["divergence", "drafts", *LENGTHS, *KNOBS, *DIALS]
"""fields that are shown where something that is chosen reads them"""
USUAL: dict[str, Any] = {
    "baselines": list(PLAIN), "several": [], "tuned": [METHOD_OPTIONS["acceptance"].default],
    **{name: [METHOD_OPTIONS[name].default] for name in LISTED if name != "acceptance"},
}  # fmt: skip
THRESHOLD_HINT = (
    "A list such as 0.05, 0.1, off or a range start:stop:count. Useful values differ by divergence, pair and task. "
    "The published experiments' “JS” was computed as ag: their thresholds, such as 0.4, do not carry over to js."
)
BEGUN = {"threshold": "thresholds", "limit": "limit", "draft_length": "lengths"}
"""fields that begin with another value for another pair, with the name of the value"""
KNOB_HINT = "A list such as 0.1, 0.2, 0.4 or a range start:stop:count."


def visible_fields(values: Mapping[str, Any]) -> dict[str, bool]:
    """Which of the fields of ``DEPENDENT`` something of what is chosen reads."""
    chosen = {name: values[name] for name in LISTED if name != "acceptance"} | {"acceptance": rules_of(values)}
    read = readable(dict.fromkeys(DEPENDENT, 0) | chosen)
    return {name: name in read for name in DEPENDENT}


def grid_of(name: str) -> tuple[float, ...]:
    """The values of a knob that show its trade-off."""
    return next(rule.knob.grid for kind, rule in RULES.items() if rule.knob and knob_of(kind) is METHOD_OPTIONS[name])


def task_choices(pair: str, own: Iterable[Task] = ()) -> list[tuple[str, str]]:
    """Titles and names of the tasks that can be run, those that suit the pair first."""
    return [(task.title, task.name) for task in offered(get_pair(pair), own)]


def _available(own: Iterable[Task] = ()) -> tuple[str, ...]:
    return tuple(task.name for task in (*TASKS.values(), *own) if task.available)


def _titles(kinds: Iterable[str]) -> list[tuple[str, str]]:
    return [(RULES[kind].title, kind) for kind in kinds]


def build(repository: Repository, settings: Settings) -> None:
    """The page's components and events, inside the Blocks context of the caller."""
    ExperimentsPage(repository, settings)


class Shown(NamedTuple):
    """What an open page shows of what may change by itself: HTML, and the names of the tasks that can be chosen."""

    worker: str
    experiments: str
    missing: str
    own: str
    tasks: tuple[str, ...]


class ExperimentsPage:
    """The components as attributes; a method per event."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.home = repository, settings.home
        self.latest = Polled(self._latest, POLL_SECONDS / 2)
        show(heading("Experiments", LEAD))
        self.worker = show()
        with gr.Row(equal_height=False):
            with gr.Column(scale=5, min_width=340):
                self.fields = self._form()
                self.more = self._more_tasks()
                self.own = OwnTasksPanel(repository, settings)
                self.size = show(elem_classes=["exp-size"])
                self.start = gr.Button("Start experiment", variant="primary")
                self.answer = show()
                self.finder = FindPanel(repository, self._find)
            with gr.Column(scale=6, min_width=340):
                show(section("Progress and history"))
                self.archived = gr.Checkbox(
                    False, label="Show archived", container=False, min_width=130, elem_classes=["fsd-quiet"]
                )
                self.list = show(js_on_load=actions.CLICKS + KEEP_PLACE, elem_id="experiments")
                self.older = gr.Button("Show older experiments", size="sm", visible=False)
        self.shown = gr.State(Shown("", "", "", "", _available()))
        self.limit = gr.State(PER_PAGE)
        self._events()

    def _form(self) -> dict[str, Any]:
        pairs = [(spec.title, name) for name, spec in PAIRS.items()]
        tasks, begun = task_choices(pairs[0][1]), beginning(pairs[0][1])
        fields: dict[str, Any] = {}
        usual = visible_fields(USUAL)
        with gr.Group():
            fields["name"] = gr.Textbox(
                label="Name", placeholder="What this experiment should find out", max_length=120
            )
            with gr.Row():
                fields["pair"] = gr.Dropdown(pairs, value=pairs[0][1], label="Model pair", min_width=160)
                fields["task"] = gr.Dropdown(tasks, value=tasks[0][1], label="Task", min_width=160)
            fields["baselines"] = gr.CheckboxGroup(_titles(PLAIN), value=USUAL["baselines"], label="Baselines")
            fields["tuned"] = gr.CheckboxGroup(_titles(TUNED), value=USUAL["tuned"], label="Algorithms")
            with gr.Row():
                fields["several"] = gr.Dropdown(
                    _titles(SEVERAL), value=[], multiselect=True, label="Verifiers of several drafts", min_width=220,
                    info="Lossless. Meant for sampling: set a temperature under Drafting and sampling.",
                )  # fmt: skip
                fields["drafts"] = field(METHOD_OPTIONS["drafts"], visible=usual["drafts"])
            fields["divergence"] = several(METHOD_OPTIONS["divergence"], visible=usual["divergence"])
            for name in KNOBS:
                grid = ", ".join(f"{value:g}" for value in grid_of(name))
                fields[name] = gr.Textbox(
                    begun.thresholds if name == "threshold" else grid, label=METHOD_OPTIONS[name].plural,
                    info=THRESHOLD_HINT if name == "threshold" else KNOB_HINT, visible=usual[name],
                )  # fmt: skip
            fields["draft_length"] = gr.Textbox(
                begun.lengths, label=METHOD_OPTIONS["draft_length"].plural, visible=usual["draft_length"],
                info="Tokens drafted per round, the depth of a tree. A list such as 4, 8, 16.",
            )  # fmt: skip
            with gr.Row():
                fields["limit"] = field(OPTIONS["limit"], value=begun.limit)
                fields["seeds"] = gr.Textbox("0", label=OPTIONS["seed"].plural, min_width=110)
                fields["max_new_tokens"] = field(METHOD_OPTIONS["max_new_tokens"])
        self.measured = show(escape(begun.sentence), elem_classes=["exp-measured"])
        with gr.Accordion("Drafting and sampling", open=False):
            with gr.Row():
                fields["drafter"] = several(METHOD_OPTIONS["drafter"])
                fields["topology"] = several(METHOD_OPTIONS["topology"])
            with gr.Row():
                for name in DIALS:
                    fields[name] = field(METHOD_OPTIONS[name], visible=usual[name])
            with gr.Row():
                fields["temperature"] = field(METHOD_OPTIONS["temperature"], info="0 is greedy")
                fields["top_k"] = field(METHOD_OPTIONS["top_k"], info="0 is off")
                fields["top_p"] = field(METHOD_OPTIONS["top_p"], info="1 is off")
                fields["min_p"] = field(METHOD_OPTIONS["min_p"], info="0 is off")
            fields["batch"] = field(
                OPTIONS["batch"],
                info="1 times each text by itself. A larger batch finishes sooner, and its texts share its time.",
            )  # fmt: skip
        return fields

    def _more_tasks(self) -> gr.HTML:
        with gr.Accordion("More tasks", open=False):
            self.refused = show()
            return show(js_on_load=actions.CLICKS, elem_id="more-tasks")

    def _events(self) -> None:
        fields = set(self.fields.values())
        # Without triggers: when the page opens, and whenever a field changes.
        size = [self.size, self.start]
        gr.on(
            fn=self.measure, inputs=list(self.fields.values()), outputs=size, trigger_mode="always_last", queue=False,
            **QUIET,
        )  # fmt: skip
        chosen = [self.fields[name] for name in CHOSEN]
        gr.on(
            [part.change for part in chosen], self.arrange, set(chosen), [self.fields[name] for name in DEPENDENT],
            trigger_mode="always_last", queue=False, **QUIET,
        )  # fmt: skip
        on_load(self.prefill, None, list(self.fields.values()))
        both = [self.fields["pair"], self.fields["task"]]
        offered = [self.fields[name] for name in ("task", *BEGUN)]
        self.fields["pair"].input(
            self.offer, {self.fields["pair"], *offered}, [*offered, self.measured], queue=False, **QUIET
        )
        poll: dict[str, Any] = {
            "fn": self.poll, "inputs": [self.limit, self.archived, self.shown, *both],
            "outputs": [
                self.worker, self.list, self.older, self.more, self.own.list, self.fields["task"], self.shown
            ], **QUIET,
        }  # fmt: skip
        gr.Timer(POLL_SECONDS).tick(queue=False, trigger_mode="once", **poll)
        on_load(self.poll, poll["inputs"], poll["outputs"])
        self.start.click(
            self.begin, fields, [self.answer, self.fields["name"]], trigger_mode="once", **QUIET
        ).then(**poll)  # fmt: skip
        self.list.click(self.act, None, self.answer, **QUIET).then(**poll)
        self.more.click(self.fetch, None, self.refused, **QUIET).then(**poll)
        self.own.listen(self.latest.forget, poll)
        self.finder.listen(self.fields, self.latest.forget, poll)
        self.archived.input(**poll)
        self.older.click(lambda limit: limit + PER_PAGE, self.limit, self.limit, **QUIET).then(**poll)

    # --- events --------------------------------------------------------------------------------------------------

    def prefill(self, request: gr.Request) -> Any:
        """The form as the page's address asks for it."""
        values = prefilled(self.repository, request.query_params)
        if not values:
            return gr.skip()
        found = {self.fields[name]: value for name, value in values.items() if name in self.fields}
        tasks = (
            gr.Dropdown(task_choices(values["pair"]), value=values["task"]) if values["pair"] in PAIRS else gr.skip()
        )
        return found | {self.fields["task"]: tasks}

    def arrange(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """Shows the fields that something of what is chosen reads."""
        visible = visible_fields({name: values[self.fields[name]] for name in CHOSEN})
        return {self.fields[name]: gr.update(visible=visible[name]) for name in DEPENDENT}

    def offer(self, values: dict[Any, Any]) -> dict[Any, Any]:
        """The tasks, those that suit the pair first; the first of them in place of one that does not. Fields that
        nobody has changed begin anew with what was measured of the pair."""
        pair, task = values[self.fields["pair"]], self.fields["task"]
        begun = beginning(pair)
        anew = {
            self.fields[name]: gr.update(value=getattr(begun, value))
            for name, value in BEGUN.items()
            if untouched(value, values[self.fields[name]])
        }
        own = own_tasks(self.repository)
        tasks = gr.Dropdown(task_choices(pair, own), value=kept_or_first(values[task], get_pair(pair), own))
        return {task: tasks, self.measured: escape(begun.sentence), **anew}

    def measure(self, *values: Any) -> tuple[str, Any]:
        """How much work the form asks for, or what is wrong with it."""
        try:
            sweep = build_sweep(dict(zip(self.fields, values, strict=True)), self._find)
        except FsdError as error:
            return notice(str(error), "warn"), gr.Button(interactive=False)
        return escape(size_line(sweep)), gr.Button(interactive=True)

    def _find(self, task: str) -> Task:
        return find_task(task, self.repository)

    def begin(self, values: dict[Any, Any], request: gr.Request) -> tuple[str, str]:
        """Writes the experiment and its job; the worker finds them. The name is emptied for the next one."""
        try:
            require(person_of(request), "author", "Starting an experiment")
            sweep = build_sweep({name: values[part] for name, part in self.fields.items()}, self._find)
            asked_by.note(self.repository.create_experiment(sweep))
            self.latest.forget()
        except FsdError as error:
            return notice(str(error), "bad"), values[self.fields["name"]]
        return notice(f"Added: {size_line(sweep)}."), ""

    def act(self, event: gr.EventData, request: gr.Request) -> str:
        """Cancels, resumes or deletes the experiment whose button was clicked."""
        act, kind, id = str(event.act), str(event.kind), str(event.id)
        answer = actions.answered(self.repository, self.home, person_of(request), act, kind, id)
        self.latest.forget()
        return answer

    def fetch(self, event: gr.EventData, request: gr.Request) -> str:
        """Leaves it to the worker to fetch the task whose button was clicked."""
        try:
            require(person_of(request), "author", "Fetching a task")
            more_tasks.request(self.repository, str(event.act), str(event.kind), str(event.id))
        except FsdError as error:
            return notice(str(error), "bad")
        self.latest.forget()
        return ""

    def poll(self, limit: int, archived: bool, shown: Shown, pair: str, task: str | None) -> Any:
        """The list, the worker's state and the tasks; nothing where nothing has changed."""
        try:
            now, more = self.latest(limit, archived)
        except FsdError as error:
            now, more = shown._replace(worker=notice(str(error), "bad")), False
        if now == shown:
            return (gr.skip(),) * 7
        same = now.tasks == shown.tasks
        own = [] if same else own_tasks(self.repository)
        kept = task if task in now.tasks else kept_or_first(task, get_pair(pair), own)
        return (
            now.worker,
            now.experiments,
            gr.Button(visible=more),
            gr.skip() if now.missing == shown.missing else now.missing,
            gr.skip() if now.own == shown.own else now.own,
            gr.skip() if same else gr.Dropdown(task_choices(pair, own), value=kept),
            now,
        )

    def _latest(self, limit: int, archived: bool) -> tuple[Shown, bool]:
        """What the page shows, and whether there are older experiments."""
        experiments = self.repository.experiments(limit=limit + 1, offset=0, archived=archived)
        waiting = any(experiment.status in OPEN for experiment in experiments)
        worker = self.repository.worker()
        under_way = [run.id for e in experiments if e.status in OPEN for run in e.runs if run.prompts_done]
        scores = self.repository.scores(under_way) if under_way else {}
        own, own_html = self.own.tasks()
        shown = Shown(
            absence_notice(worker, waiting), experiments_html(
                experiments[:limit], scores, lambda e: calibration_html(self.repository, e)
            ),
            more_tasks.more_tasks_html(more_tasks.fetches(self.repository), worker), own_html,
            _available(own),
        )  # fmt: skip
        return shown, len(experiments) > limit
