"""Runs page: all runs, to filter, sort and tick for a comparison.

Runs page: all runs, to filter, sort and tick for a comparison. ``?run=`` opens one, ``?experiment=`` an
experiment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.runs.opened_experiment import OpenedExperiment
from dashboard.runs.opened_run import OpenedRun
from dashboard.runs.run_list import ALL, RUNS, SELECTION, RunFilterValues
from dashboard.tables.list_page import COLUMNS, SORT, ListPage, quiet
from dashboard.tables.logs import changes_html, sentence
from dashboard.tables.saved_views_panel import SavedViewsPanel
from dashboard.ui import components
from dashboard.ui.components import dead_end, heading, notice, show
from dashboard.ui.templates import Html, downloads, moment, render
from dashboard.ui.view import Act, Asked, Polled, Updates, View, together
from fsd_core.errors import FsdError, UnknownName
from fsd_core.plugins import parts
from fsd_core.storage.records import UNENDED

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


LOGGED = 50
_POLL_SECONDS = 3.0
STATUSES = (*UNENDED, "finished", "failed", "cancelled")
_LEAD = "Every run is one setting on the prompts of one task. Open one to see its prompts, token by token."


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
            self.experiment = OpenedExperiment(repository)
        self._parts = [self.list_part, self.run_part, self.experiment_part]
        view = self._view = View(self.message, self.fail)
        for opened in (self.list, self.run, self.experiment):
            opened.listen(view)
        for action in components.ACTIONS:
            view.act(action, self.on_button)
        view.listen(
            self.redraw,
            *together((self.list, self.run, self.experiment), outputs=self._parts),
        )

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
        place = self.run.prompts if asked.address.get("run") else self.list.items
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


class RunList(ListPage):
    """All runs, to filter, to sort and to tick."""

    script, unmatched = SELECTION, "Choose other filters, or clear the search."

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        self.values = Polled(lambda: RunFilterValues.of(repository), _POLL_SECONDS / 2)
        show(heading("Runs", _LEAD))
        count, rows = repository.count_runs, repository.runs
        super().__init__("runs", "run", RUNS, count, rows, "Setting, experiment, tag or id")
        self.latest = self._polled = Polled(self.found, _POLL_SECONDS / 2)
        self.log = show(elem_id="runs-log")
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        further = [*self.outputs, *self._by_value.values(), self.log, self.clock]
        _, self.outputs, self.forms = together([self.views, *self.sections], outputs=further)

    def more_fields(self) -> dict[str, Any]:
        """Return the fields beside the search, by their names in an address."""
        orders = [(order.title, name) for name, order in RUNS.orders.items()]
        self._by_value = {"pair": _choice("Pair"), "task": _choice("Task"), "algorithm": _choice("Algorithm")}
        return self._by_value | {
            "status": _choice("Status", [(status.capitalize(), status) for status in STATUSES]),
            SORT: gr.Dropdown(orders, value=RUNS.order, label="Order", min_width=168),
            "archived": quiet("Show archived", 130),
            "turns": quiet("Show calibrations", 150),
        }

    def add_above(self) -> None:
        """Add the choice of columns, the saved views, and what features have here."""
        offered = [(column.title, name) for name, column in RUNS.columns.items() if name != RUNS.first]
        with gr.Accordion("Columns", open=False, elem_id="run-columns"):
            self.by_name[COLUMNS] = gr.Dropdown(
                offered, value=_beside(""), multiselect=True, label="Columns beside the setting"
            )
        self.views = SavedViewsPanel(
            self.repository,
            "runs",
            "Choose filters, an order and columns above, type a name, and save them for the team.",
        )
        self.sections = [make(self.repository, self._forget) for make in parts("sections", "runs")]
        self.links = parts("links", "runs")

    def listen(self, view: View) -> None:
        """Attach the events."""
        super().listen(view)
        view.on(self.clock.tick)
        for section in (self.views, *self.sections):
            section.listen(view, self.fields, self.query)

    def _forget(self) -> None:
        """Read anew what runs there are."""
        self._polled.forget()
        self.values.forget()

    def redraw(self, asked: Asked, **about: Any) -> Updates:
        """Return the updates of the list, of what its fields offer, and of the log of a page that is opened."""
        updates = Updates()
        if asked.opening:
            log = changes_html(self.repository.changes(limit=LOGGED), "Changes and deletions")
            links = [link for links_of in self.links for link in links_of(asked.person)]
            files = downloads(links, "run-export") if links else ""
            updates |= {self.clock: gr.Timer(active=True), self.log: log + files}
        updates |= super().redraw(asked) | self.views.redraw(asked)
        for name, field in self._by_value.items():
            choices = self.values().choices(name, asked.current(field) or ALL)
            if asked.differs(f"{name} choices", choices):
                updates[field] = gr.Dropdown([("All", ALL), *choices])
        return updates

    def filled(self, name: str, text: str | None) -> Any:
        """Return the value of a field for its text in an address, also one that no run has yet."""
        if name == COLUMNS:
            return _beside(text or "")
        known = text is not None and name in self._by_value and self.values().knows(name, text)
        return text if known else super().filled(name, text)

    def text(self, name: str, value: Any) -> Any:
        """Return the value of a field as an address has it."""
        return RUNS.names_of(value) if name == COLUMNS else super().text(name, value)

    def filters(self, search: str, **values: Any) -> dict[str, Any]:
        """Return what the repository filters by. A search includes rounds of calibrations."""
        named = {"pair": "pair", "task": "task", "algorithm": "acceptance", "status": "status"}
        filters = {named[name]: value for name, value in values.items() if name in named and value not in ("", ALL)}
        if search.strip():
            filters["search"] = search
        if not values["archived"]:
            filters["archived"] = False
        if not values["turns"] and not search.strip():
            filters["calibration_rounds"] = False
        return filters

    def none(self, filters: Mapping[str, Any]) -> Html:
        """Return what stands in place of no runs."""
        if "calibration_rounds" in filters and self.count(**{**filters, "calibration_rounds": True}):
            return render("runs/list.html", "only_turns")
        return super().none({"search": filters.keys() - {"archived", "calibration_rounds"} or self.count()})


def _beside(names: str) -> list[str]:
    """Return the columns that an address names, beside that which is always there."""
    return [name for name in RUNS.columns_of(names) if name != RUNS.first]


def _choice(label: str, choices: Sequence[tuple[str, str]] = ()) -> gr.Dropdown:
    return gr.Dropdown([("All", ALL), *choices], value=ALL, label=label, min_width=130)
