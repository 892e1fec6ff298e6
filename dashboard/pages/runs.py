"""Runs: every run there is, to filter, sort and tick for a comparison; one of them opened with ``?run=``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.components import QUIET, heading, notice, on_load, show, tells_errors
from dashboard.pager import Pager
from dashboard.pages.run import RunDetail
from dashboard.run_list import ORDERS, RULES, SELECTION, runs_html
from fsd_core.benchmarks.tasks import TASKS
from fsd_core.errors import FsdError
from fsd_core.models.pairs import PAIRS

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository

RUNS_PER_PAGE = 50
POLL_SECONDS = 3.0
STATUSES = ("queued", "running", "finished", "failed", "cancelled")
ALL = "all"
LEAD = "Every run is one setting on the prompts of one task. Open one to see its prompts, token by token."

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """The page's components and events, inside the Blocks context of the caller."""
    message = show()
    with gr.Column(visible=False) as list_part:
        runs = RunList(repository)
    with gr.Column(visible=False) as detail_part:
        detail = RunDetail(repository, settings.mlflow_url)

    def open_page(request: gr.Request) -> Updates:
        """The run that the address names, or the list."""
        run_id = request.query_params.get("run")
        try:
            shown = detail.open(run_id) if run_id else runs.open()
        except FsdError as error:
            return {message: notice(str(error), "bad")}
        return shown | {list_part: gr.Column(visible=not run_id), detail_part: gr.Column(visible=bool(run_id))}

    on_load(open_page, None, [message, list_part, detail_part, *runs.outputs, *detail.outputs])


class RunList:
    """The components as attributes; a method per event, which returns what it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Runs", LEAD))
        with gr.Row(elem_classes=["run-filters"]):
            self.search = gr.Textbox(
                label="Search", placeholder="Setting, experiment or id", max_length=200, scale=2, min_width=180
            )
            self.pair = _choice("Pair", [(spec.title, name) for name, spec in PAIRS.items()])
            self.task = _choice("Task", [(task.title, name) for name, task in TASKS.items()])
            self.rule = _choice("Algorithm", [(title, kind) for kind, title in RULES.items()])
            self.status = _choice("Status", [(status.capitalize(), status) for status in STATUSES])
            self.order = gr.Dropdown(list(ORDERS), value=next(iter(ORDERS)), label="Order", min_width=150)
        self.runs = show(js_on_load=SELECTION, elem_id="runs")
        self.pager = Pager(RUNS_PER_PAGE, "run")
        self.clock = gr.Timer(POLL_SECONDS, active=False)
        self.shown = gr.State("")
        self._events()

    @property
    def outputs(self) -> list[Any]:
        """What the events may change."""
        return [self.runs, self.shown, self.clock, *self.pager.parts]

    def _events(self) -> None:
        filters = [self.search, self.pair, self.task, self.rule, self.status, self.order]
        gr.on([part.change for part in filters], self.filter, filters, self.outputs, **QUIET)
        inputs = [self.pager.page, *filters]
        for button, step in self.pager.steps:
            button.click(self._turn(step), inputs, self.outputs, **QUIET)
        self.clock.tick(self.poll, [self.shown, *inputs], self.outputs, queue=False, **QUIET)

    def open(self) -> Updates:
        """The first page, unfiltered, kept up to date from then on."""
        return self.view(0, "", ALL, ALL, ALL, ALL, next(iter(ORDERS))) | {self.clock: gr.Timer(active=True)}

    @tells_errors(8)
    def filter(self, *filters: str) -> Updates:
        return self.view(0, *filters)

    def _turn(self, step: int) -> Any:
        @tells_errors(8)
        def turn(page: int, *filters: str) -> Updates:
            return self.view(page + step, *filters)

        return turn

    def poll(self, shown: str, page: int, *filters: str) -> Any:
        """The same page anew, where something of it has changed."""
        try:
            updates = self.view(page, *filters)
        except FsdError:
            return gr.skip()  # the header says that the database does not answer
        return gr.skip() if updates[self.shown] == shown else updates

    def view(self, page: int, search: str, pair: str, task: str, rule: str, status: str, order: str) -> Updates:
        """A page of the list."""
        exact = {"pair": pair, "task": task, "acceptance": rule, "status": status}
        filters: dict[str, Any] = {name: value for name, value in exact.items() if value != ALL}
        if search.strip():
            filters["search"] = search
        column, descending = ORDERS[order]
        total = self.repository.count_runs(**filters)
        page = self.pager.clamp(page, total)
        runs = self.repository.runs(
            **filters, order_by=column, descending=descending, limit=RUNS_PER_PAGE, offset=page * RUNS_PER_PAGE
        )
        html = runs_html(runs, filtered=bool(filters))
        return {self.runs: html, self.shown: f"{total} {html}"} | self.pager.updates(page, total)


def _choice(label: str, choices: list[tuple[str, str]]) -> gr.Dropdown:
    return gr.Dropdown([("All", ALL), *choices], value=ALL, label=label, min_width=130)
