"""Runs page: all runs, to filter, sort and tick for a comparison. ``?run=`` opens one, ``?experiment=`` an
experiment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.runs.opened_experiment import OpenedExperiment
from dashboard.runs.opened_run import OpenedRun
from dashboard.runs.run_list import ORDERS, SELECTION, only_turns_html, runs_html
from dashboard.runs.workspace_file import link_html
from dashboard.tables.change_log import changes_html, sentence
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import PRIVATE_EVENT, dead_end, heading, on_load, show, tells_errors
from dashboard.ui.pager import Pager
from dashboard.ui.polled import Polled
from dashboard.ui.quantities import moment
from dashboard.ui.signed_in import person_of
from fsd_core.config import RULES
from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.storage.database.runs import LONGEST_SEARCH
from fsd_core.tasks import TASKS

if TYPE_CHECKING:
    from fsd_core.roles import Person
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

RUNS_PER_PAGE = 50
LOGGED = 50
_POLL_SECONDS = 3.0
STATUSES = ("queued", "running", "finished", "failed", "cancelled")
_ALL = "all"
_LEAD = "Every run is one setting on the prompts of one task. Open one to see its prompts, token by token."

# The filters by their names in an address, in the order of the page, each with the value that filters nothing.
FILTERS = {
    "search": "",
    "pair": _ALL,
    "task": _ALL,
    "algorithm": _ALL,
    "status": _ALL,
    "sort": next(iter(ORDERS)),
    "archived": "",
    "turns": "",
}

# The address follows the filters without a reload. It can be shared, and going back from a run leads to it.
_SHOW_ADDRESS = f"""(...values) => {{
  const query = new URLSearchParams();
  Object.entries({json.dumps(FILTERS)}).forEach(([name, none], i) => {{
    if (values[i] && values[i] !== none) query.set(name, values[i]);
  }});
  const url = new URL(window.location.href);
  url.search = query;
  window.history.replaceState(window.history.state, '', url);
}}"""

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    message = show()
    with gr.Column(visible=False) as list_part:
        runs = RunList(repository)
    with gr.Column(visible=False) as detail_part:
        detail = OpenedRun(repository, settings.home, settings.mlflow_url)
    with gr.Column(visible=False) as experiment_part:
        experiment = OpenedExperiment(repository, settings.home)

    def open_page(request: gr.Request) -> Updates:
        """Return the run or the experiment that the address names, or the list."""
        query = request.query_params
        run_id, experiment_id = query.get("run"), query.get("experiment")
        try:
            if run_id:
                return detail.open(run_id, query.get("prompts", "")) | {detail_part: gr.Column(visible=True)}
            if experiment_id:
                return experiment.open(experiment_id) | {experiment_part: gr.Column(visible=True)}
            return runs.open(query, person_of(request)) | {list_part: gr.Column(visible=True)}
        except FsdError as error:
            text = _deleted(repository, run_id or experiment_id) or str(error)
            return {message: dead_end(text, "/runs", "See all runs")}

    parts = [message, list_part, detail_part, experiment_part]
    on_load(open_page, None, [*parts, *runs.fields, *runs.outputs, runs.log, *detail.outputs, *experiment.outputs])


def _deleted(repository: Repository, id: str | None) -> str:
    """Return who deleted what an address names, or an empty string."""
    last = repository.changes(subject=id, limit=1) if id else []
    if not last or last[0].act != "deleted":
        return ""
    return f"{last[0].who} {sentence(last[0])}, {moment(last[0].at)}."


class RunList:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.latest = Polled(self._latest, _POLL_SECONDS / 2)
        show(heading("Runs", _LEAD))
        with gr.Row(elem_classes=["run-filters"]):
            self.search = gr.Textbox(
                label="Search", placeholder="Setting, experiment, tag or id", max_length=LONGEST_SEARCH, scale=2,
                min_width=180,
            )  # fmt: skip
            self.pair = _choice("Pair", {name: spec.title for name, spec in MODEL_PAIRS.items()})
            self.task = _choice("Task", {name: task.title for name, task in TASKS.items()})
            self.rule = _choice("Algorithm", {kind: rule.title for kind, rule in RULES.items()})
            self.status = _choice("Status", {status: status.capitalize() for status in STATUSES})
            orders = [(order.title, name) for name, order in ORDERS.items()]
            self.order = gr.Dropdown(orders, value=FILTERS["sort"], label="Order", min_width=150)
            self.archived = gr.Checkbox(
                False, label="Show archived", container=False, min_width=130, elem_classes=["fsd-quiet"]
            )
            self.turns = gr.Checkbox(
                False, label="Show calibrations", container=False, min_width=150, elem_classes=["fsd-quiet"]
            )
        self.fields = [self.search, self.pair, self.task, self.rule, self.status, self.order, self.archived, self.turns]
        self.runs = show(js_on_load=SELECTION, elem_id="runs")
        self.pager = Pager(RUNS_PER_PAGE, "run")
        self.log = show(elem_id="runs-log")
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self.shown = gr.State("")
        self._events()

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [self.runs, self.shown, self.clock, *self.pager.parts]

    def _events(self) -> None:
        filtered = on_choice(*self.fields)(self.filter, self.fields, self.outputs, **FOLLOWS)
        filtered.then(None, self.fields, None, js=_SHOW_ADDRESS, trigger_mode="multiple", **PRIVATE_EVENT)
        inputs = [self.pager.page, *self.fields]
        for button, step in self.pager.steps:
            button.click(partial(self.turn, step), inputs, self.outputs, **PRIVATE_EVENT)
        self.clock.tick(self.poll, [self.shown, *inputs], self.outputs, **PRIVATE_EVENT)

    def open(self, query: Mapping[str, str], person: Person) -> Updates:
        """Return the first page that an address asks for, and start polling."""
        fields = zip(self.fields, FILTERS.items(), strict=True)
        values = [_filter_value(field, query.get(name, none), none) for field, (name, none) in fields]
        custom_tasks = {view.name: view.title or view.name for view in reversed(self.repository.task_versions())}
        task = self.fields.index(self.task)
        if query.get("task") in custom_tasks:
            values[task] = query["task"]
        updates = dict(zip(self.fields, values, strict=True)) | self.view(0, *values)
        if custom_tasks:
            choices = [*self.task.choices, *((title, name) for name, title in custom_tasks.items())]
            updates[self.task] = gr.Dropdown(choices, value=values[task])
        log = changes_html(self.repository.changes(limit=LOGGED), "Changes and deletions")
        return updates | {self.clock: gr.Timer(active=True), self.log: log + link_html(person)}

    @tells_errors("runs")
    def filter(self, *filters: Any) -> Updates:
        return self.view(0, *filters)

    @tells_errors("runs")
    def turn(self, step: int, page: int, *filters: Any) -> Updates:
        return self.view(page + step, *filters)

    def poll(self, shown: str, page: int, *filters: Any) -> Any:
        """Redraw the same page if it has changed."""
        try:
            updates = self.view(page, *filters)
        except FsdError:
            return gr.skip()  # the header says that the database does not answer
        return gr.skip() if updates[self.shown] == shown else updates

    def view(self, page: int, *filters: Any) -> Updates:
        """Return a page of the list."""
        page, total, html = self.latest(page, *filters)
        return {self.runs: html, self.shown: f"{total} {html}"} | self.pager.updates(page, total)

    def _latest(
        self, page: int, search: str, pair: str, task: str, rule: str, status: str, order: str, archived: bool,
        turns: bool,
    ) -> tuple[int, int, str]:  # fmt: skip
        """Return the number of the nearest existing page, the number of runs, and the page's runs as HTML."""
        exact = {"pair": pair, "task": task, "acceptance": rule, "status": status}
        filters: dict[str, Any] = {name: value for name, value in exact.items() if value != _ALL}
        if search.strip():
            filters["search"] = search
        filtered = bool(filters)
        if not archived:
            filters["archived"] = False
        if not turns and not search.strip():  # a search includes turns
            filters["turns"] = False
        _, column, descending = ORDERS[order]
        total = self.repository.count_runs(**filters)
        if not total and "turns" in filters and self.repository.count_runs(**dict(filters, turns=True)):
            return 0, 0, only_turns_html()
        page = self.pager.clamp(page, total)
        runs = self.repository.runs(
            **filters, order_by=column, descending=descending, limit=RUNS_PER_PAGE, offset=page * RUNS_PER_PAGE
        )
        return page, total, runs_html(runs, filtered=filtered or bool(not total and self.repository.count_runs()))


def _choice(label: str, titles: Mapping[str, str]) -> gr.Dropdown:
    choices = [(title, name) for name, title in titles.items()]
    return gr.Dropdown([("All", _ALL), *choices], value=_ALL, label=label, min_width=130)


def _filter_value(field: Any, value: str, none: str) -> Any:
    """Return a filter's value in an address, or ``none`` for a choice that is not offered."""
    if isinstance(field, gr.Checkbox):
        return value == "true"
    if not isinstance(field, gr.Dropdown):
        return value[:LONGEST_SEARCH]
    return value if any(value == name for _, name in field.choices) else none
