"""Compare page and its API: any runs side by side, against a pinned baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from itertools import groupby
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from urllib.parse import urlsplit

import gradio as gr
from typing_extensions import TypedDict

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
from dashboard.compare.comparison_html import answers_html, no_runs_html, sentence_html, warnings_html
from dashboard.compare.export import (
    NamedPrompt,
    links_html,
    named_margin,
    named_prompt,
    named_runs,
    query_of,
    record,
)
from dashboard.compare.sections import (
    AllFigures,
    Comparing,
    CostSection,
    FurtherFigures,
    LoadSection,
    MatchedPanel,
    PromptPairsPanel,
    Section,
    SettingsSection,
)
from dashboard.tables.saved_views_panel import SavedViewsPanel
from dashboard.ui.components import KEEP_PLACE, PRIVATE_EVENT, heading, notice, show
from dashboard.ui.templates import Html, addressed, joined, render, script
from dashboard.ui.view import Asked, Part, Polled, Updates, Values, View, digest, together
from fsd_core.actions.action import Ask, action
from fsd_core.analysis.cells import run_names
from fsd_core.errors import FsdError, NotGiven, UnknownName
from fsd_core.models.model_pairs import pair_title
from fsd_core.plots import trade_offs
from fsd_core.plots.trade_offs import FIRST_FIGURE
from fsd_core.plugins import parts
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.records import ExperimentName, RunName, RunView
    from fsd_core.storage.repository import Repository

    Offered = Sequence[RunName | RunView]


WITHOUT_EXPERIMENT = "Runs without an experiment"
LONGEST_WAIT = 400
"""milliseconds after the last tick until the page updates"""

PICK_RUNS = script("compare/pick_runs.js", WAIT=LONGEST_WAIT)


def picker_html(offered: Offered, selected: Sequence[str], list_id: str = "") -> Html:
    """Return the list, folded if something is selected. ``selected`` are ids. Ticks name the list by ``list_id``."""
    if not offered:
        return Html()
    ticked = set(selected)
    tasks = len({run.task for run in offered}) > 1
    groups = []
    for (name, created), group in groupby(offered, key=_group):
        runs = list(group)
        names, pairs = short_names(runs, tasks), {pair_title(run.pair) for run in runs}
        about = " · ".join([*([created] if created else []), *(pairs if len(pairs) == 1 else ())])
        groups.append((name, about, [(run, names[run.id], run.id in ticked) for run in runs]))
    return render("compare/picker.html", "picker", selected, groups, list_id)


def subject_html(runs: Sequence[RunView]) -> Html:
    """Return which experiments the runs are of: the name of each, its date, and how many of the runs are its own."""
    counts = Counter((run.experiment_id, *_group(run)) for run in runs)
    return render("compare/comparison.html", "subject", counts.most_common()) if counts else Html()


def _group(run: RunName | RunView) -> tuple[str, str]:
    """Return the heading of a run's group. All runs of an experiment have the same creation time."""
    name = run.experiment_name
    return (name, f"{run.created_at:%d %b %Y %H:%M}") if name else (WITHOUT_EXPERIMENT, "")


def short_names(runs: Offered, tasks: bool) -> dict[str, str]:
    """Return names of a group's runs by id: the setting, and as much of pair, task, seed, time and id as distinguishes
    them."""
    pairs = len({run.pair for run in runs}) > 1
    names = {
        run.id: run.label + (f" · {pair_title(run.pair)}" if pairs else "") + (f" · {run.task}" if tasks else "")
        for run in runs
    }
    for extra in (
        lambda run: f"seed {run.seed}",
        lambda run: f"{run.created_at:%d %b %H:%M}",
        lambda run: run.id[:6],
    ):
        counts = Counter(names.values())
        names = {run.id: names[run.id] + (f" · {extra(run)}" if counts[names[run.id]] > 1 else "") for run in runs}
    return names


_SORTED = "answers sorted"


class AnswerPanel(Part):
    """The panel's components as attributes."""

    def __init__(self) -> None:
        self.sentence = show(elem_id="answer")
        with gr.Row(equal_height=False, elem_classes=["cmp-first"]):
            with gr.Column(scale=5, min_width=340):
                self.picture = gr.Plot(show_label=False, elem_id="answer-picture")
            with gr.Column(scale=6, min_width=340):
                self.table = show(js_on_load=script("compare/answers_table.js") + KEEP_PLACE)
        self.outputs = [self.sentence, self.picture, self.table]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.table.click)

    def redraw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the updates. The picture comes after the table, in an answer of its own."""
        updates: Updates = {}
        order = str(asked.wanted(_SORTED) or "")[:40]
        state = now.pinned, now.margin, now.stages
        if asked.differs("answers", *state, order):
            updates |= {
                self.sentence: sentence_html(now.comparison()), self.table: answers_html(now.comparison(), order),
            }  # fmt: skip
        if asked.differs("picture", now.pinned, now.margin, now.begun, slow=True):
            comparison = now.comparison()
            figure = addressed(
                trade_offs.draw_tradeoff(trade_offs.tradeoff_info(comparison.runs), comparison.best),
                FIRST_FIGURE,
                now.query,
            )
            updates[self.picture] = gr.Plot(figure, visible=bool(now.begun))
        return updates


OFFERED_RUNS = 500
OFFERED_EXPERIMENTS = 100
REFRESH_SECONDS = 5.0

_KEPT_SECONDS = 5.0
"""for which a comparison serves the answers that a page asks for one after the other"""
_MOST_BEFOREHAND = 3_000
"""prompts of all runs: the page's HTML waits for no larger comparison"""

_SHOW_ADDRESS = script("compare/show_address.js")
_WANT_EXPERIMENT = "(id) => { if (id) window.fsd.want({runs: {experiment: id}}); }"

_LEAD = "Which setting to use: what each gains in speed, and costs in accuracy."

TABS = {"figures": "Figures", "settings": "Settings", "prompts": "Prompts"}
"""titles of the tabs below the answer, by the names that addresses have for them; the first is open at first"""
SECTIONS: tuple[type[Section], ...] = (
    AllFigures, MatchedPanel, FurtherFigures, LoadSection, CostSection, SettingsSection, PromptPairsPanel,
)  # fmt: skip
"""what is in the tabs, in its order"""


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
        self._compared = Polled(
            lambda ids, baseline, margin, stages: compare(repository, ids, baseline, margin), _KEPT_SECONDS
        )
        show(heading("Compare", _LEAD))
        self.subject = show()
        self._build_choices()
        self.warnings = show()
        self.empty = show()
        with gr.Column(visible=False) as self.results:
            self.answer = AnswerPanel()
            self._build_link()
            self._build_tabs()
            self.further = [make(repository, self._compared.forget) for make in parts("sections", "compare")]
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

    def _build_tabs(self) -> None:
        titles = [(title, name) for name, title in TABS.items()]
        self.tab = gr.Radio(titles, value="figures", label="Details", show_label=False, elem_id="compare-tabs")
        self.tabs: dict[str, gr.Column] = {}
        self.sections: list[Section] = []
        for name in TABS:
            with gr.Column(visible=name == "figures") as self.tabs[name]:
                self.sections += [section(self.repository) for section in SECTIONS if section.tab == name]

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
            section.listen(view)
        for panel in (*self.further, self.views):
            panel.listen(view, [self.link], self._query_at)
        # Of ticks and an experiment, the later choice counts.
        self.experiment.change(
            None, self.experiment, None, js=_WANT_EXPERIMENT, trigger_mode="multiple", **PRIVATE_EVENT
        )
        self.link.change(None, self.link, self.link, js=_SHOW_ADDRESS)
        fields = [self.experiment, self.baseline, self.margin, self.tab]
        outputs = [
            self.subject, self.experiment, self.baseline, self.picker, self.warnings, self.empty, self.results,
            *self.tabs.values(), self.link, self.exports, self.clock,
        ]  # fmt: skip
        view.listen(self.redraw, *together([self.answer, self.views, *self.further, *self.sections], fields, outputs))

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

    def _tab(self, asked: Asked) -> str:
        """Return the chosen tab: at first that of the address, whose ``open=…`` or prompt names one too."""
        address, named = asked.address, [asked[self.tab]]
        if asked.opening:
            named = [
                address.get("tab"),
                address.get("open", "").partition(",")[0],
                "prompts" * bool(named_prompt(address)),
            ]
        tab = next((one for one in named if one in TABS), "figures")
        asked.fill(self.tab, tab)
        return tab

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
        """Return what differs of the page: the answer first, then the picture, and of the sections those of the open
        tab."""
        choice, tab = self._choice(asked), self._tab(asked)
        runs, baseline, stages = choice.runs, choice.baseline, progress(choice.runs)
        prompt = _compared(named_prompt(asked.address), runs)

        if asked.beforehand and sum(run.prompts_done for run in runs) > _MOST_BEFOREHAND:
            return {}

        @cache
        def comparison() -> ComparedRuns:
            return self._compared(tuple(choice.ids), choice.baseline_id, choice.margin, digest(stages))

        updates = self._choices(asked, choice) | self.views.redraw(asked)
        if asked.differs("tab", tab):
            updates |= {part: gr.Column(visible=name == tab) for name, part in self.tabs.items()}
        pinned = [[run.id for run in runs], baseline and baseline.id]
        if asked.differs("compared", pinned, choice.margin, stages, choice.problem):
            updates |= self._around(asked, choice, comparison())
        if not baseline:
            asked.new_address = "" if choice.ticked_in is not None else None
            return updates | ({self.link: ""} if asked.differs("link", "") else {})
        now = Comparing(runs, baseline, choice.margin, stages, prompt, comparison)
        updates |= self.answer.redraw(asked, now)
        for section in self.sections:
            updates |= section.redraw(asked, now, section.tab == tab)
        parts = [now.query, *[f"tab={tab}"] * (tab != "figures" or prompt is not None)]
        query = "?" + "&".join([*parts, *filter(None, (one.query(asked, now) for one in self.sections))])
        asked.new_address = query
        if asked.differs("link", query):
            updates[self.link] = query
        return updates

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error in place of a comparison. The clock asks again."""
        if not asked.opening:
            asked.shown["opened"] = "yes"  # the fields hold a person's choices, which the address does not replace
        return {
            self.subject: "",
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
            self.subject: subject_html(choice.runs),
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


class ComparisonAnswer(TypedDict):
    """Runs beside a baseline, for programs. Each row has the columns of the CSV file."""

    baseline: str | None
    rows: list[dict[str, Any]]
    warnings: list[str]
    times: Any
    answer: str | None
    best: str | None
    undecided: str | None
    prompts_to_decide: int | None
    page: str


@action()
def compare_runs(
    ask: Ask,
    runs: Annotated[list[Id], "ids of the runs"] = [],  # noqa: B006
    experiment: Annotated[Id, "id of an experiment, instead of its runs' ids"] = "",
    baseline: Annotated[Id, "id of the run to compare with. Default: the first that has metrics"] = "",
    margin: Annotated[
        float | None, "points of accuracy that may be lost, 0 to 20. Default: those of the runs' calibration, or 2"
    ] = None,
) -> ComparisonAnswer:
    """Compare runs with a baseline on the prompts that both have done. Shares are from 0 to 1.

    Returns every metric, its difference or ratio with its 95 % interval, a verdict on accuracy, which run is the
    fastest and what time does not tell apart from it, and warnings if the runs are not comparable. The answer says
    in a sentence which run is the fastest within the margin (best), or which lossy run (undecided) how many prompts
    in all would decide.
    """
    ids = runs or (experiment_runs(ask.repository, experiment) if experiment else [])
    if not ids:
        raise NotGiven(f"No run is named: give runs (at most {MOST_COMPARED_RUNS} ids), or an experiment.")
    comparison = compare(ask.repository, ids, baseline or None, "usual" if margin is None else margin)
    if not comparison.runs:
        raise UnknownName("None of these runs is in this database: list_runs has those that are.")
    found = comparison.recommendation
    return {
        "baseline": comparison.baseline.id if comparison.baseline else None,
        "rows": [record(row, comparison.margin) for row in comparison.rows],
        "warnings": comparison.warnings,
        "times": comparison.times,
        "answer": found.sentence if found else None,
        "best": comparison.best,
        "undecided": found.undecided_id if found else None,
        "prompts_to_decide": found.prompts if found else None,
        "page": f"{ask.settings.root_path}/compare?{query_of(comparison.runs, comparison.baseline, comparison.margin)}",
    }
