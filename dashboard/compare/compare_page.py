"""Compare page: any runs side by side, against a pinned baseline. The page's address reproduces it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.compared_runs import (
    DEFAULT_MARGIN,
    MOST_COMPARED_RUNS,
    ComparedRuns,
    RunProgress,
    compare,
    experiment_runs,
    progress,
)
from dashboard.compare.comparison_html import (
    comparison_html,
    nothing_chosen,
    settings_html,
    warnings_html,
    worst_prompts_html,
)
from dashboard.compare.export_links import NamedPrompt, links_html, named_margin, named_prompt, named_runs, query_of
from dashboard.compare.figures_panel import FiguresPanel
from dashboard.compare.matched_panel import MatchedPanel
from dashboard.compare.prompt_pairs_panel import PromptPairsPanel
from dashboard.compare.run_picker import PICK, picker_html
from dashboard.tables.prompt_pairs import Show
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import KEEP_PLACE, PRIVATE_EVENT, heading, notice, section, show, tells_errors
from dashboard.ui.templates import Html, joined, script
from fsd_core.errors import FsdError, UnknownName
from fsd_core.plots import divergence

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunName, RunView

OFFERED_RUNS = 500
OFFERED_EXPERIMENTS = 100
REFRESH_SECONDS = 5.0

_SHOW_ADDRESS = script("compare/show_address.js")
BRING = script("compare/bring_into_view.js")

_LEAD = "What each setting gains in speed and costs in accuracy, against a baseline of your choice."

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    ComparePage(repository)


class ComparePage:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Compare", _LEAD))
        self._choice()
        self.warnings = show()
        self.empty = show()
        with gr.Column(visible=False) as self.results:
            self._share()
            self.table = show(js_on_load=KEEP_PLACE)
            self.figures = FiguresPanel(repository)
            self.matched = MatchedPanel(repository)
            self._settings()
            self.pairs = PromptPairsPanel(repository)
        self.seen = gr.State({})
        self.clock = gr.Timer(REFRESH_SECONDS, active=False)
        self._events()

    # --- components ----------------------------------------------------------------------------------------------

    def _choice(self) -> None:
        with gr.Row():
            self.experiment = gr.Dropdown([], label="Whole experiment", info="Chooses all of its runs", min_width=240)
            self.baseline = gr.Dropdown([], label="Baseline", info="All differences are against it", min_width=240)
            self.margin = gr.Number(DEFAULT_MARGIN, label="Margin", info="Points that may be lost", min_width=140)
        self.picker = show(js_on_load=PICK, elem_id="runs-to-compare")
        self.runs = gr.Dropdown([], multiselect=True, allow_custom_value=True, visible="hidden")  # their ids

    def _settings(self) -> None:
        show(section("Settings"))
        self.differences_only = gr.Checkbox(True, label="Differences only", container=False)
        self.settings = show()

    def _share(self) -> None:
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

    def _events(self) -> None:
        inputs = [self.runs, self.baseline, self.margin, self.differences_only]
        polled = [self.warnings, self.table, self.seen, self.clock]
        outputs = [
            *polled, self.experiment, self.picker, self.runs, self.baseline, self.margin, self.empty, self.results,
            self.settings, self.pairs.run_a, self.pairs.run_b, self.pairs.reader.filter, self.pairs.linked, self.link,
            self.exports,
        ]  # fmt: skip

        def then_the_rest(event: Any) -> Any:
            """Draw figures and prompts after the table: they take longer and are further down."""
            figures = event.then(self.draw, [self.runs, self.baseline], self.figures.outputs, **PRIVATE_EVENT)
            matched = figures.then(
                self.matched.redraw,
                [self.runs, self.baseline, self.margin, *self.matched.chosen],
                self.matched.outputs,
                **PRIVATE_EVENT,
            )
            return matched.then(
                self.pairs.first,
                [*self.pairs.chosen, self.pairs.linked],
                self.pairs.outputs,
                **PRIVATE_EVENT,
            )

        then_the_rest(gr.on(fn=self.open, outputs=outputs, **PRIVATE_EVENT)).then(None, js=BRING)
        on_experiment = on_choice(self.experiment)
        then_the_rest(on_experiment(self.choose_experiment, [self.experiment, *inputs], outputs, **FOLLOWS))
        then_the_rest(self.picker.click(self.pick, inputs, outputs, **PRIVATE_EVENT))
        then_the_rest(on_choice(self.baseline, self.margin)(self.choose, inputs, outputs, **FOLLOWS))
        on_choice(self.differences_only)(self.show_settings, inputs, [self.settings], **FOLLOWS)
        self.clock.tick(
            self.refresh,
            [
                self.runs,
                self.baseline,
                self.figures.run,
                self.seen,
                *self.pairs.chosen,
                self.pairs.reader.page,
                self.margin,
                *self.matched.chosen,
            ],
            [*polled, *self.figures.outputs, *self.matched.outputs, *self.pairs.outputs],
            trigger_mode="once",
            **PRIVATE_EVENT,
        )
        self.matched.listen(self.runs, self.baseline, self.margin)
        self.link.change(None, self.link, self.link, js=_SHOW_ADDRESS)

    # --- events --------------------------------------------------------------------------------------------------

    def open(self, request: gr.Request) -> Updates:
        """Return the page that its address asks for."""
        query = request.query_params
        ids = named_runs(query.get("runs", ""))
        margin = named_margin(query.get("margin", ""))
        prompt = named_prompt(query)
        return self._guarded(lambda: self._open(ids, query.get("experiment"), query.get("baseline"), margin, prompt))

    def choose_experiment(
        self, experiment: str | None, ids: list[str], baseline: str | None, margin: float | None, differences_only: bool
    ) -> Updates:
        """Replace the chosen runs by all runs of an experiment."""
        if not experiment:
            return {self.experiment: gr.skip()}
        return self._guarded(
            lambda: self._with_picker(
                self._comparison_updates(experiment_runs(self.repository, experiment), None, margin, differences_only)
            )
        )

    def choose(self, ids: list[str], baseline: str | None, margin: float | None, differences_only: bool) -> Updates:
        """Compare the chosen runs with the chosen baseline. The browser keeps the ticks in the list of runs."""
        updates = self._guarded(lambda: self._comparison_updates(ids, baseline, margin, differences_only))
        return {self.experiment: None} | updates

    def pick(
        self, ids: list[str], baseline: str | None, margin: float | None, differences_only: bool, event: gr.EventData
    ) -> Updates:
        """Compare the runs that are ticked now, with the chosen baseline if it is among them."""
        picked = [str(id) for id in event.ids][: 2 * MOST_COMPARED_RUNS]
        return self.choose(picked, baseline if baseline in picked else None, margin, differences_only)

    def draw(self, ids: list[str], baseline: str | None) -> Updates:
        """Return the figures of the chosen runs."""
        try:
            return self.figures.draw(compare(self.repository, ids, baseline), None)
        except FsdError:
            return {}  # the page already shows the error

    @tells_errors("settings")
    def show_settings(
        self, ids: list[str], baseline: str | None, margin: float | None, differences_only: bool
    ) -> Updates:
        """Return the settings table alone."""
        return {self.settings: settings_html(compare(self.repository, ids, baseline), differences_only)}

    def refresh(
        self, ids: list[str], baseline: str | None, histogram_run: str | None, seen: dict[str, RunProgress],
        run_a: str | None, run_b: str | None, which: Show, size: int, page: int, margin: float | None,
        cost: str, ratios: str, margins: str, request: gr.Request,
    ) -> Any:  # fmt: skip
        """Return what has changed in the runs since ``seen``, and stop polling when all have ended."""
        try:
            if progress(self.repository.runs(ids=ids, limit=MOST_COMPARED_RUNS)) == seen:
                return gr.skip()
            comparison = compare(self.repository, ids, baseline, margin)
        except FsdError:
            return gr.skip()  # the header says that the database does not answer
        now = progress(comparison.runs)
        updates = {
            self.warnings: warnings_html(comparison.warnings),
            self.table: joined([comparison_html(comparison), worst_prompts_html(comparison)]),
            **self._polling(comparison),
        }
        if _measured(now) != _measured(seen):
            updates |= self.figures.draw(comparison, histogram_run)
            updates |= self.matched.draw(comparison, cost, ratios, margins)
        if any(now.get(id) != seen.get(id) for id in (run_a, run_b) if id):
            updates |= self.pairs.show(run_a, run_b, which, size, request, page)
        return updates

    # --- shared helpers ------------------------------------------------------------------------------------------

    def _open(
        self, ids: list[str], experiment: str | None, baseline: str | None, margin: float | None,
        prompt: NamedPrompt | None,
    ) -> Updates:  # fmt: skip
        problem = Html()
        if experiment and not ids:
            try:
                ids = experiment_runs(self.repository, experiment)
            except UnknownName as error:
                problem = notice(str(error), "bad")
        experiments = self.repository.experiment_names(OFFERED_EXPERIMENTS)
        choices = [(f"{e.name} · {e.runs} runs · {e.created_at:%d %b %Y %H:%M}", e.id) for e in experiments]
        updates = self._with_picker(self._comparison_updates(ids, baseline, margin, True, prompt))
        return updates | {
            self.warnings: joined([problem, updates[self.warnings]]),
            self.experiment: gr.Dropdown(
                choices, value=experiment if experiment in {id for _, id in choices} else None
            ),
        }

    def _comparison_updates(
        self, ids: Sequence[str], baseline: str | None, margin: float | None, differences_only: bool,
        prompt: NamedPrompt | None = None,
    ) -> Updates:  # fmt: skip
        comparison = compare(self.repository, ids, baseline, margin)
        names = [(row.name, row.run.id) for row in comparison.rows]
        pinned = comparison.baseline.id if comparison.baseline else None
        other_ids = [run_id for _, run_id in names if run_id != pinned]
        most_lenient = divergence.telling(divergence.judged(comparison.runs))
        run_b = most_lenient.id if most_lenient and most_lenient.id in other_ids else next(iter(other_ids), None)
        if prompt and not {prompt.run_a, prompt.run_b} <= {run.id for run in comparison.runs}:
            prompt = None  # it names runs that are not compared
        return {
            self.runs: [run.id for run in comparison.runs],
            self.baseline: gr.Dropdown(names, value=pinned),
            self.margin: gr.skip() if comparison.margin is None else comparison.margin,
            self.warnings: warnings_html(comparison.warnings),
            self.empty: ""
            if comparison.rows
            else nothing_chosen(self.repository.experiments(limit=5, offset=0, archived=False)),
            self.results: gr.Column(visible=bool(comparison.rows)),
            self.table: joined([comparison_html(comparison), worst_prompts_html(comparison)]),
            self.settings: settings_html(comparison, differences_only),
            self.pairs.run_a: gr.Dropdown(names, value=prompt.run_a if prompt else pinned),
            self.pairs.run_b: gr.Dropdown(names, value=prompt.run_b if prompt else run_b),
            self.pairs.reader.filter: "all" if prompt else gr.skip(),
            self.pairs.linked: prompt.number if prompt else None,
            self.link: f"?{query_of(comparison)}" + (f"&{prompt.query}" if prompt else ""),
            self.exports: links_html(comparison),
            **self._polling(comparison),
        }

    def _polling(self, comparison: ComparedRuns) -> Updates:
        return {
            self.seen: progress(comparison.runs),
            self.clock: gr.Timer(active=any(not run.ended for run in comparison.runs)),
        }

    def _with_picker(self, updates: Updates) -> Updates:
        """Return ``updates`` with the list of runs redrawn: the latest runs, and older ones that are chosen."""
        selected: list[str] = updates[self.runs]
        latest: list[RunName | RunView] = [*self.repository.run_names(OFFERED_RUNS)]
        missing = set(selected).difference(offered.id for offered in latest)
        older = self.repository.runs(missing, limit=None) if missing else []
        return updates | {
            self.picker: picker_html([*latest, *sorted(older, key=lambda run: selected.index(run.id))], selected)
        }

    def _guarded(self, update: Callable[[], Updates]) -> Updates:
        """Return ``update()``, or its error as a sentence on the page with everything else unchanged."""
        try:
            return update()
        except FsdError as error:
            return {self.warnings: notice(str(error), "bad")}


def _measured(stages: dict[str, RunProgress]) -> set[str]:
    return {run_id for run_id, stage in stages.items() if stage.measured}
