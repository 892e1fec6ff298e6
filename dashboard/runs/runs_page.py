"""Runs page: all runs, to filter, sort and tick for a comparison.

Runs page: all runs, to filter, sort and tick for a comparison. ``?run=`` opens one, ``?experiment=`` an
experiment.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import gradio as gr
from fastapi import APIRouter, Request, Response
from fastapi.responses import FileResponse, PlainTextResponse
from starlette.background import BackgroundTask

from dashboard.runs.opened_experiment import OpenedExperiment
from dashboard.runs.opened_run import OpenedRun
from dashboard.runs.run_list import (
    ALL,
    COLUMNS,
    ORDERS,
    SELECTION,
    SETTING,
    SORT,
    USUAL_COLUMNS,
    RunFilterValues,
    columns_of,
    names_of,
    only_turns_html,
    runs_html,
)
from dashboard.tables.logs import changes_html, sentence
from dashboard.tables.saved_views_panel import SavedViewsPanel
from dashboard.ui import components
from dashboard.ui.components import dead_end, heading, notice, show
from dashboard.ui.fields import Pager
from dashboard.ui.templates import downloads, moment
from dashboard.ui.view import Act, Asked, Part, Polled, Updates, Values, View, digest, together
from fsd_core.accounts import person_in
from fsd_core.errors import FsdError, Refused, UnknownChoice, UnknownName
from fsd_core.plugins import sections
from fsd_core.roles import NOBODY, Person, require
from fsd_core.storage.records import UNENDED
from fsd_core.storage.runs import LONGEST_SEARCH
from fsd_core.storage.workspace_export import export

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


def link_html(person: Person) -> str:
    """Return the link to the file, or nothing for people who would be refused."""
    if not person.may("admin"):
        return ""
    return downloads([("export/workspace.zip", "Export everything")], "run-export")


def workspace_routes(settings: Settings) -> APIRouter:
    """Return the route ``GET /export/workspace.zip``. It needs the role admin, because it holds what everybody
    wrote."""
    router = APIRouter(prefix="/export", include_in_schema=False)

    @router.get("/workspace.zip")
    def workspace(request: Request) -> Response:
        folder = None
        try:
            require(person_in(request.scope) or NOBODY, "admin", "Exporting the workspace")
            # Deleted after it was sent, whether it arrives or not.
            folder = tempfile.TemporaryDirectory(prefix=".export-", dir=settings.home, ignore_cleanup_errors=True)
            path = Path(folder.name) / "workspace.zip"
            export(settings.resolved_database_url, path, settings.home)
        except Refused as error:
            return PlainTextResponse(str(error), 403)
        except FsdError as error:
            if folder is not None:
                folder.cleanup()
            return PlainTextResponse(str(error), 503)
        name = f"fsd-lab-{datetime.now(UTC):%Y-%m-%d}.zip"
        return FileResponse(
            path, media_type="application/zip", filename=name, background=BackgroundTask(folder.cleanup)
        )

    return router


RUNS_PER_PAGE = 50
LOGGED = 50
_POLL_SECONDS = 3.0
STATUSES = (*UNENDED, "finished", "failed", "cancelled")
_LEAD = "Every run is one setting on the prompts of one task. Open one to see its prompts, token by token."

# The filters by their names in an address, in the order of the page, each with the value that filters nothing.
FILTERS = {
    "search": "",
    "pair": ALL,
    "task": ALL,
    "algorithm": ALL,
    "status": ALL,
    "sort": next(iter(ORDERS)),
    "archived": "",
    "turns": "",
    "columns": "",
}


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    RunsPage(repository, settings)


class RunsPage:
    """The list, a run or an experiment, as the address names it."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.home = repository, settings.home
        self.message = show()
        with gr.Column(visible=False) as self.list_part:
            self.list = RunList(repository)
        with gr.Column(visible=False) as self.run_part:
            self.run = OpenedRun(repository, settings.mlflow_url)
        with gr.Column(visible=False) as self.experiment_part:
            self.experiment = OpenedExperiment(repository, settings.home)
        self._parts = [self.list_part, self.run_part, self.experiment_part]
        view = self._view = View(self.message, self.fail)
        for opened in (self.list, self.run, self.experiment):
            opened.listen(view)
        for action in components.ACTIONS:
            view.act(action, self.on_button)
        view.listen(self.redraw, *together((self.list, self.run, self.experiment), outputs=self._parts))

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the run, the experiment or the list that the address names."""
        run_id, experiment_id = asked.address.get("run"), asked.address.get("experiment")
        try:
            if run_id:
                part, updates = self.run_part, self.run.redraw(asked, run_id)
            elif experiment_id:
                part, updates = self.experiment_part, self.experiment.redraw(asked, experiment_id)
            else:
                part, updates = self.list_part, self.list.redraw(asked)
        except UnknownName as error:
            text = _deleted(self.repository, run_id or experiment_id) or str(error)
            clocks = {clock: gr.Timer(active=False) for clock in (self.run.clock, self.experiment.clock)}
            return clocks | self._view.only(asked, self._parts, None, dead_end(text, "runs", "See all runs"))
        return updates | self._view.only(asked, self._parts, part)

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return the page with an error in place of its content."""
        if asked.opening:
            return {self.message: dead_end(str(error), "runs", "See all runs")}
        place = self.run.prompts if asked.address.get("run") else self.list.runs
        return {place: notice(str(error), "bad")}

    def on_button(self, act: Act, asked: Asked) -> Updates:
        """Do what a button of a run or an experiment asks for."""
        opened = self.run if asked.address.get("run") else self.experiment
        kind, id = act["kind"], act["id"]
        try:
            answer = notice(components.perform(self.repository, self.home, asked.person, act.name, kind, id))
        except FsdError as error:
            answer = notice(str(error), "bad")
        return {opened.answer: answer} | opened.panel.seen_now(id)


def _deleted(repository: Repository, id: str | None) -> str:
    """Return who deleted what an address names, or an empty string."""
    last = repository.changes(subject=id, limit=1) if id else []
    if not last or last[0].act != "deleted":
        return ""
    return f"{last[0].who} {sentence(last[0])}, {moment(last[0].at)}."


class RunList(Part):
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.latest = Polled(self._latest, _POLL_SECONDS / 2)
        self.values = Polled(lambda: RunFilterValues.of(repository), _POLL_SECONDS / 2)
        show(heading("Runs", _LEAD))
        with gr.Row(elem_classes=["run-filters"]):
            self.search = gr.Textbox(
                label="Search", placeholder="Setting, experiment, tag or id", max_length=LONGEST_SEARCH, scale=2,
                min_width=180,
            )  # fmt: skip
            self.pair, self.task, self.rule = (_choice(label) for label in ("Pair", "Task", "Algorithm"))
            self.status = _choice("Status", [(status.capitalize(), status) for status in STATUSES])
            orders = [(order.title, name) for name, order in ORDERS.items()]
            self.order = gr.Dropdown(orders, value=FILTERS["sort"], label="Order", min_width=168)
            self.archived = gr.Checkbox(
                False, label="Show archived", container=False, min_width=130, elem_classes=["fsd-quiet"]
            )
            self.turns = gr.Checkbox(
                False, label="Show calibrations", container=False, min_width=150, elem_classes=["fsd-quiet"]
            )
        with gr.Accordion("Columns", open=False, elem_id="run-columns"):
            offered = [(column.heading.title, name) for name, column in COLUMNS.items() if name != SETTING]
            self.columns = gr.Dropdown(
                offered, value=[name for name in USUAL_COLUMNS if name != SETTING], multiselect=True,
                label="Columns beside the setting",
            )  # fmt: skip
        self.fields = [
            self.search, self.pair, self.task, self.rule, self.status, self.order, self.archived, self.turns,
            self.columns,
        ]  # fmt: skip
        self.views = SavedViewsPanel(
            repository, "runs", "Choose filters, an order and columns above, type a name, and save them for the team."
        )
        self.sections = [make(repository, self._forget) for make in sections("runs")]
        self.runs = show(js_on_load=SELECTION, elem_id="runs")
        self.pager = Pager(RUNS_PER_PAGE, "run")
        self.log = show(elem_id="runs-log")
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self.forms = self.views.forms
        self.outputs = [
            self.pair, self.task, self.rule, self.runs, self.log, self.clock, *self.pager.parts, *self.views.outputs,
        ]  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.turns(self.pager.name, self.pager.steps)
        view.on(self.clock.tick, self.runs.click)
        view.act(SORT, self.sort)
        self.views.listen(view, self.fields, self._query_at)
        for section in self.sections:
            section.listen(view)

    def _forget(self) -> None:
        """Read anew what runs there are."""
        self.latest.forget()
        self.values.forget()

    def sort(self, act: Act, asked: Asked) -> None:
        """Choose the order that a click on a heading asks for."""
        if act["id"] not in ORDERS:
            raise UnknownChoice("Runs cannot be sorted like that: choose an order of the list.")
        asked.fill(self.order, act["id"])

    def _query_at(self, values: Values) -> str:
        return _query([self._filter(field, values[field]) for field in self.fields])

    def _filter(self, field: Any, value: Any) -> Any:
        """Return the value of a filter as an address has it."""
        return names_of(value) if field is self.columns else value

    def redraw(self, asked: Asked) -> Updates:
        """Return the updates of the list. The address follows the filters, to be shared and come back to."""
        filters = [self._filter(field, asked.current(field)) for field in self.fields]
        updates, values = Updates(), self.values()
        if asked.opening:
            updates, filters = self._opened(asked, values)
        else:
            query = _query(filters)
            asked.new_address = f"?{query}" if query else ""
        updates |= self.views.redraw(asked)
        for name, field in self._by_value.items():
            choices = values.choices(name, filters[self.fields.index(field)] or ALL)
            if asked.differs(f"{name} choices", choices):
                updates[field] = gr.Dropdown([("All", ALL), *choices])
        of = digest(filters[: self.fields.index(self.columns)])
        page, total, html = self.latest(asked.page(self.pager.name, of), *filters)
        if not asked.differs("list", page, total, html):
            return updates
        return updates | {self.runs: html} | self.pager.updates(page, total, of)

    @property
    def _by_value(self) -> dict[str, Any]:
        """The filters whose choices are the values that runs have, by their names in an address."""
        return {"pair": self.pair, "task": self.task, "algorithm": self.rule}

    def _opened(self, asked: Asked, offered: RunFilterValues) -> tuple[Updates, list[Any]]:
        """Return the fields and the log of a page that is opened, and the filters that its address asks for."""
        fields, values = zip(self.fields, FILTERS.items(), strict=True), list[Any]()
        for field, (name, none) in fields:
            value = asked.address.get(name, none)
            known = name in self._by_value and offered.knows(name, value)
            values.append(value if known else self._filter_value(field, value, none))
        for field, value in zip(self.fields, values, strict=True):
            is_columns = field is self.columns
            asked.fill(field, [name for name in columns_of(value) if name != SETTING] if is_columns else value)
        log = changes_html(self.repository.changes(limit=LOGGED), "Changes and deletions")
        return {self.clock: gr.Timer(active=True), self.log: log + link_html(asked.person)}, values

    def _filter_value(self, field: Any, value: str, none: str) -> Any:
        """Return a filter's value in an address, or ``none`` for a choice that is not offered."""
        if field is self.columns:
            return names_of(columns_of(value))
        if isinstance(field, gr.Checkbox):
            return value == "true"
        if not isinstance(field, gr.Dropdown):
            return value[:LONGEST_SEARCH]
        return value if any(value == name for _, name in field.choices) else none

    def _latest(
        self, page: int, search: str, pair: str, task: str, rule: str, status: str, order: str, archived: bool,
        turns: bool, columns: str,
    ) -> tuple[int, int, str]:  # fmt: skip
        """Return the number of the nearest existing page, the number of runs, and the page's runs as HTML."""
        exact = {"pair": pair, "task": task, "acceptance": rule, "status": status}
        filters: dict[str, Any] = {name: value for name, value in exact.items() if value != ALL}
        if search.strip():
            filters["search"] = search
        filtered = bool(filters)
        if not archived:
            filters["archived"] = False
        if not turns and not search.strip():  # a search includes turns
            filters["calibration_rounds"] = False
        _, column, descending = ORDERS[order]
        total = self.repository.count_runs(**filters)
        if (
            not total
            and "calibration_rounds" in filters
            and self.repository.count_runs(**(filters | {"calibration_rounds": True}))
        ):
            return 0, 0, only_turns_html()
        page = self.pager.clamp(page, total)
        runs = self.repository.runs(
            **filters, order_by=column, descending=descending, limit=RUNS_PER_PAGE, offset=page * RUNS_PER_PAGE
        )
        filtered = filtered or bool(not total and self.repository.count_runs())
        return page, total, runs_html(runs, filtered, order, columns_of(columns))


def _query(filters: Sequence[Any]) -> str:
    """Return the query of the page's address for values of the filters, without those that filter nothing."""
    return urlencode(
        {
            name: "true" if value is True else value
            for (name, none), value in zip(FILTERS.items(), filters, strict=True)
            if value and value != none
        }
    )


def _choice(label: str, choices: Sequence[tuple[str, str]] = ()) -> gr.Dropdown:
    return gr.Dropdown([("All", ALL), *choices], value=ALL, label=label, min_width=130)
