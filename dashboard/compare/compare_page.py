"""Compare page: any runs side by side, against a pinned baseline. The page's address reproduces it."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

import gradio as gr

from dashboard.compare.answer_panel import AnswerPanel
from dashboard.compare.compared_runs import (
    DEFAULT_MARGIN,
    MOST_COMPARED_RUNS,
    ComparedRuns,
    baseline_of,
    compare,
    experiment_runs,
    progress,
    selected_runs,
    usual_margin,
)
from dashboard.compare.comparison_html import no_runs_html, warnings_html
from dashboard.compare.cost_section import CostSection
from dashboard.compare.export_links import NamedPrompt, links_html, named_margin, named_prompt, named_runs
from dashboard.compare.further_figures import FurtherFigures
from dashboard.compare.load_section import LoadSection
from dashboard.compare.matched_panel import MatchedPanel
from dashboard.compare.prompt_pairs_panel import PromptPairsPanel
from dashboard.compare.report_form import ReportForm
from dashboard.compare.run_picker import PICK_RUNS, picker_html
from dashboard.compare.section import Comparing, Section
from dashboard.compare.tables_section import AllFigures, SettingsSection
from dashboard.tables.saved_views_panel import SavedViewsPanel
from dashboard.ui.components import PRIVATE_EVENT, heading, notice, show
from dashboard.ui.question import Asked, Updates, Values, digest
from dashboard.ui.templates import Html, joined, script
from dashboard.ui.view import View
from fsd_core.analysis.series import run_names
from fsd_core.errors import FsdError, UnknownName
from fsd_core.models.model_pairs import pair_title

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentName, RunName, RunView

OFFERED_RUNS = 500
OFFERED_EXPERIMENTS = 100
REFRESH_SECONDS = 5.0

_SHOW_ADDRESS = script("compare/show_address.js")
_WANT_EXPERIMENT = "(id) => { if (id) window.fsd.want({runs: {experiment: id}}); }"

_LEAD = "Which setting to use: what each gains in speed, and costs in accuracy."

SECTIONS: tuple[type[Section], ...] = (
    AllFigures, MatchedPanel, FurtherFigures, LoadSection, CostSection, SettingsSection, PromptPairsPanel, ReportForm,
)  # fmt: skip
"""folded parts below the answer, in their order"""


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ComparePage(repository)


class Choice(NamedTuple):
    """The requested comparison."""

    ids: list[str]
    runs: list[RunView]
    """those of the ids that exist"""
    baseline_id: str | None
    """as asked for, or ``None`` for the first run with metrics"""
    margin: float | None
    problem: Html
    """why the runs of an experiment cannot be compared, or nothing"""
    ticked_in: object
    """the list in which the runs were ticked, or ``None``"""

    @property
    def baseline(self) -> RunView | None:
        return baseline_of(self.runs, self.baseline_id)


class ComparePage:
    """The page's components as attributes, and a method for each part that returns what differs of it."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Compare", _LEAD))
        self._build_choices()
        self.warnings = show()
        self.empty = show()
        with gr.Column(visible=False) as self.results:
            self.answer = AnswerPanel()
            self.sections = [section(repository) for section in SECTIONS]
            self._build_link()
        self.views = SavedViewsPanel(
            repository, "compare", "Choose runs, a baseline and a margin, type a name, and save them for the team."
        )
        self.clock = gr.Timer(REFRESH_SECONDS, active=False)
        self._listen()

    # --- components ----------------------------------------------------------------------------------------------

    def _build_choices(self) -> None:
        with gr.Row():
            self.experiment = gr.Dropdown([], label="Whole experiment", min_width=240, scale=3)
            self.baseline = gr.Dropdown([], label="Baseline", min_width=240, scale=3, allow_custom_value=True)
            self.margin = gr.Number(DEFAULT_MARGIN, label="Margin", min_width=140)
        self.picker = show(js_on_load=PICK_RUNS, elem_id="runs-to-compare")

    def _build_link(self) -> None:
        with gr.Row(equal_height=True):
            self.link = gr.Textbox(
                label="Link to this comparison",
                interactive=False,
                buttons=["copy"],
                max_lines=1,
                scale=4,
                min_width=300,
                elem_id="compare-link",
            )
            with gr.Column(scale=1, min_width=300, elem_classes=["cmp-exports"]):
                self.exports = show()

    def _listen(self) -> None:
        view = View(self.warnings, self.fail)
        view.on(self.picker.click, self.clock.tick)
        self.answer.listen(view)
        for section in self.sections:
            section.fold.listen(view)
            section.listen(view, self.link)
        self.views.listen(view, [self.link], self._query_at)
        # Of ticks and an experiment, the later choice counts.
        self.experiment.change(
            None, self.experiment, None, js=_WANT_EXPERIMENT, trigger_mode="multiple", **PRIVATE_EVENT
        )
        self.link.change(None, self.link, self.link, js=_SHOW_ADDRESS)
        fields = [self.experiment, self.baseline, self.margin]
        outputs = [
            self.experiment, self.baseline, self.picker, self.warnings, self.empty, self.results, self.link,
            self.exports, self.clock, *self.answer.outputs, *self.views.outputs,
        ]  # fmt: skip
        forms = [*self.views.forms]
        for section in self.sections:
            fields += section.fields
            forms += section.forms
            outputs += [section.fold.part, *section.outputs]
        view.listen(self.redraw, fields, outputs, forms)

    # --- what is asked -------------------------------------------------------------------------------------------

    def _choice(self, asked: Asked) -> Choice:
        """Return the requested comparison: the last ticks or experiment, or else the runs that the address names."""
        wanted = asked.wanted("runs")
        wanted = wanted if isinstance(wanted, dict) else {}
        problem = Html()
        if isinstance(ids := wanted.get("ids"), list):
            ids = [str(id) for id in ids[: 2 * MOST_COMPARED_RUNS]]
        elif not (ids := [] if wanted else named_runs(asked.address.get("runs", ""))):
            experiment = str(wanted.get("experiment") or asked.address.get("experiment") or "")
            try:
                ids = experiment_runs(self.repository, experiment) if experiment else []
            except UnknownName as error:
                problem = notice(str(error), "bad")
        runs = selected_runs(self.repository, ids)
        margin = named_margin(asked.address.get("margin", "")) if asked.opening else asked[self.margin]
        usual, before = usual_margin(runs), asked.shown.get("usual margin")
        if margin == "usual" or (margin is not None and f"{margin:g}" == before):
            margin = usual
        asked.shown["usual margin"] = f"{usual:g}"
        margin = None if margin is None else float(margin)
        return Choice(ids, runs, self._baseline_id(asked, runs), margin, problem, wanted.get("list"))

    def _query_at(self, values: Values) -> str:
        """Return the query of the comparison that was shown at a click."""
        return urlsplit(str(values[self.link] or "")).query

    def _baseline_id(self, asked: Asked, runs: Sequence[RunView]) -> str | None:
        """Return the baseline that is chosen, or the address's."""
        known = {run.id for run in runs}
        if asked[self.baseline] in known:
            return asked[self.baseline]
        named = asked.address.get("baseline")
        return named if asked.opening or named in known else None

    # --- the page ------------------------------------------------------------------------------------------------

    def redraw(self, asked: Asked) -> Updates:
        """Return what differs of the page: the answer first, then the picture, and of the sections those that are
        open."""
        choice = self._choice(asked)
        runs, baseline, stages = choice.runs, choice.baseline, progress(choice.runs)
        prompt = _compared(named_prompt(asked.address), runs)

        @cache
        def comparison() -> ComparedRuns:
            return compare(self.repository, choice.ids, choice.baseline_id, choice.margin)

        updates = self._choices(asked, choice) | self.views.redraw(asked)
        pinned = [[run.id for run in runs], baseline and baseline.id]
        if asked.differs("compared", pinned, choice.margin, stages, choice.problem):
            updates |= self._around(asked, choice, comparison())
        if not baseline:
            asked.new_address = "" if choice.ticked_in is not None else None
            return updates | ({self.link: ""} if asked.differs("link", "") else {})
        now = Comparing(runs, baseline, choice.margin, stages, prompt, comparison)
        updates |= self.answer.redraw(asked, now)
        for section in self.sections:
            updates |= section.redraw(asked, now)
        query = "?" + "&".join(part for part in [now.query, *(one.query(asked, now) for one in self.sections)] if part)
        asked.new_address = query
        if asked.differs("link", query):
            updates[self.link] = query
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error in place of a comparison. The clock asks again."""
        if not asked.opening:
            asked.shown["opened"] = "yes"  # the fields hold a person's choices, which the address does not replace
        return {section.fold.part: gr.Accordion(open=False) for section in self.sections} | {
            self.warnings: notice(str(error), "bad"),
            self.empty: "",
            self.results: gr.Column(visible=False),
            self.clock: gr.Timer(active=True),
        }

    def _choices(self, asked: Asked, choice: Choice) -> Updates:
        """Return the fields that say what is compared. They are filled in where what they hold is not compared."""
        updates = self._picker(asked, choice)
        if asked.differs("experiments"):
            experiments = self.repository.experiment_names(OFFERED_EXPERIMENTS)
            names = [(_experiment_name(experiment), experiment.id) for experiment in experiments]
            updates[self.experiment] = gr.Dropdown(names)
            opened = asked.address.get("experiment")
            if asked.opening and not asked.address.get("runs") and opened in {id for _, id in names}:
                asked.fill(self.experiment, opened)
        if choice.ticked_in is not None:
            asked.fill(self.experiment, None)
        names = [(name, id) for id, name in run_names(choice.runs).items()]
        if asked.differs("names", names):
            updates[self.baseline] = gr.Dropdown(names)
        asked.fill(self.baseline, choice.baseline and choice.baseline.id)
        asked.fill(self.margin, choice.margin)
        return updates

    def _picker(self, asked: Asked, choice: Choice) -> Updates:
        """Return the list of runs if other runs are to be ticked than a person has ticked in it."""
        selected = [run.id for run in choice.runs]
        drawn = asked.shown.get("list")
        if choice.ticked_in == drawn and drawn is not None:
            asked.shown["ticked"] = digest(selected)
            return {}
        if not asked.differs("ticked", selected):
            return {}
        latest: list[RunName | RunView] = [*self.repository.run_names(OFFERED_RUNS)]
        offered = {run.id for run in latest}
        older = [run for run in choice.runs if run.id not in offered]
        asked.shown["list"] = digest(selected, drawn)
        return {self.picker: picker_html([*latest, *older], selected, asked.shown["list"])}

    def _around(self, asked: Asked, choice: Choice, comparison: ComparedRuns) -> Updates:
        """Return the parts around the answer, or next steps if no run is chosen."""
        problems = [choice.problem, warnings_html(comparison.warnings)]
        prompt, ids = named_prompt(asked.address), {run.id for run in choice.runs}
        if comparison.rows and prompt and (missing := sorted({prompt.run_a, prompt.run_b} - ids)):
            names = ", ".join(id[:40] for id in missing)
            problems.append(
                notice(f"The link's prompt is not shown, because these runs are not compared: {names}.", "warn")
            )
        none = self.repository.experiments(limit=5, offset=0, archived=False) if not comparison.rows else ()
        return {
            self.warnings: joined(problems),
            self.empty: "" if comparison.rows else no_runs_html(none),
            self.results: gr.Column(visible=bool(comparison.rows)),
            self.exports: links_html(comparison),
            self.clock: gr.Timer(active=any(not run.ended for run in comparison.runs)),
        }


def _experiment_name(e: ExperimentName) -> str:
    return f"{e.name} · {pair_title(e.pair)} · {e.runs} runs · {e.created_at:%d %b %Y %H:%M}"


def _compared(prompt: NamedPrompt | None, runs: Sequence[RunView]) -> NamedPrompt | None:
    """Return a prompt if both of its runs are compared."""
    return prompt if prompt and {prompt.run_a, prompt.run_b} <= {run.id for run in runs} else None
