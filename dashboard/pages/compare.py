"""Compare: any runs beside each other, against a pinned baseline; the address reproduces the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import gradio as gr

from dashboard.comparison import Comparison, compare, experiment_runs
from dashboard.comparison_html import (
    comparison_html,
    nothing_chosen,
    pairing_summary,
    pairs_html,
    settings_html,
    warnings_html,
)
from dashboard.components import QUIET, heading, notice, section, show, tells_errors
from dashboard.export import write_csv, write_html
from dashboard.figures import divergence
from dashboard.figures.gallery import comparison_figures
from dashboard.figures.series import run_names
from dashboard.pairing import SHOWS, Show, pair_up
from fsd_core.errors import FsdError

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository
    from fsd_core.tracking.records import RunView

OFFERED_RUNS = 500
OFFERED_EXPERIMENTS = 100
PAIRS_PER_PAGE = 5

# The address bar follows the choice without a reload; the field shows the whole address to copy.
SHOW_ADDRESS = """(link) => {
  const url = new URL(link || "?", window.location.href);
  window.history.replaceState(window.history.state, "", url);
  return url.href;
}"""
# The file is written when it is asked for; the browser then follows the hidden button's link.
FOLLOW = "() => setTimeout(() => document.querySelector('#{0}').closest('a, button').click(), 50)"

LEAD = "What each setting gains in speed and costs in accuracy, against a baseline of your choice."

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """The page's components and events, inside the Blocks context of the caller."""
    ComparePage(repository)


class ComparePage:
    """The components as attributes; a method per event, which returns what it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Compare", LEAD))
        self._choice()
        self.warnings = show()
        self.empty = show()
        with gr.Column(visible=False) as self.results:
            self._share()
            self._figures()
            self._settings()
            self._pairs()
        self._events()

    # --- components ----------------------------------------------------------------------------------------------

    def _choice(self) -> None:
        with gr.Row():
            self.experiment = gr.Dropdown([], label="Whole experiment", info="Chooses all of its runs", min_width=240)
            self.runs = gr.Dropdown(
                [],
                label="Runs",
                info="Search by setting, task or experiment",
                multiselect=True,
                scale=3,
                min_width=320,
                elem_classes=["cmp-runs"],
            )
            self.baseline = gr.Dropdown([], label="Baseline", info="All differences are against it", min_width=240)

    def _figures(self) -> None:
        self.table = show()
        with gr.Row(equal_height=False):
            with gr.Column(min_width=340):
                self.plots = [gr.Plot(show_label=False) for _ in range(3)]
            with gr.Column(min_width=340):
                self.plots += [gr.Plot(show_label=False) for _ in range(2)]
                self.histogram = gr.Plot(show_label=False)
                self.histogram_run = gr.Dropdown([], label="Run of the divergences")

    def _settings(self) -> None:
        show(section("Settings"))
        self.differences_only = gr.Checkbox(True, label="Differences only", container=False)
        self.settings = show()

    def _pairs(self) -> None:
        show(section("Prompt by prompt"))
        with gr.Row():
            self.run_a = gr.Dropdown([], label="Run A", min_width=240)
            self.run_b = gr.Dropdown([], label="Run B", min_width=240)
            self.filter = gr.Radio(list(SHOWS), value="outcome", label="Prompts with", min_width=320)
        self.summary = show()
        self.pairs = show()
        self.page = gr.State(0)
        with gr.Row():
            self.back = gr.Button("Previous prompts", interactive=False, size="sm")
            self.forward = gr.Button("Next prompts", interactive=False, size="sm")

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
            self.csv = gr.Button("Export CSV", size="md", min_width=140)
            self.html = gr.Button("Export HTML", size="md", min_width=140)
        self.csv_file = gr.DownloadButton("CSV", visible="hidden", elem_id="compare-csv-file")
        self.html_file = gr.DownloadButton("HTML", visible="hidden", elem_id="compare-html-file")

    def _events(self) -> None:
        chosen = [self.runs, self.baseline, self.differences_only]
        paired = [self.run_a, self.run_b, self.filter]
        everything = [
            self.experiment, self.runs, self.baseline, self.warnings, self.empty, self.results, self.table,
            *self.plots, self.histogram, self.histogram_run, self.settings, self.run_a, self.run_b, self.link,
        ]  # fmt: skip
        pair_outputs = [self.summary, self.pairs, self.page, self.back, self.forward]

        def then_pairs(event: Any) -> None:
            event.then(self.show_pairs, paired, pair_outputs, **QUIET)

        then_pairs(gr.on(fn=self.open, outputs=everything, **QUIET))
        then_pairs(self.experiment.input(self.choose_experiment, [self.experiment, *chosen], everything, **QUIET))
        for field in (self.runs, self.baseline):
            then_pairs(field.input(self.choose, chosen, everything, **QUIET))
        self.differences_only.input(tells_errors(1)(self.show_settings), chosen, self.settings, **QUIET)
        self.histogram_run.input(tells_errors(1)(self.show_histogram), self.histogram_run, self.histogram, **QUIET)
        for field in paired:
            field.input(self.show_pairs, paired, pair_outputs, **QUIET)
        for button, step in ((self.back, -1), (self.forward, 1)):
            button.click(self._turn(step), [*paired, self.page], pair_outputs, **QUIET)
        self.link.change(None, self.link, self.link, js=SHOW_ADDRESS)
        for button, file, write in ((self.csv, self.csv_file, write_csv), (self.html, self.html_file, write_html)):
            event = button.click(tells_errors(1)(self._export(write)), chosen[:2], file, **QUIET)
            event.then(None, js=FOLLOW.format(file.elem_id))

    # --- events --------------------------------------------------------------------------------------------------

    def open(self, request: gr.Request) -> Updates:
        """The page as its address asks for it."""
        query = request.query_params
        ids = [part.strip() for part in query.get("runs", "").split(",") if part.strip()]
        return self._guarded(lambda: self._opened(ids, query.get("experiment"), query.get("baseline")))

    def choose_experiment(
        self, experiment: str | None, ids: list[str], baseline: str | None, differences_only: bool
    ) -> Updates:
        """All runs of an experiment take the place of those chosen."""
        if not experiment:
            return {self.experiment: gr.skip()}
        return self._guarded(lambda: self._shown(experiment_runs(self.repository, experiment), None, differences_only))

    def choose(self, ids: list[str], baseline: str | None, differences_only: bool) -> Updates:
        """The chosen runs and baseline."""
        shown = self._guarded(lambda: self._shown(ids, baseline, differences_only))
        return {self.experiment: None} | shown

    def show_settings(self, ids: list[str], baseline: str | None, differences_only: bool) -> str:
        """The settings table alone."""
        return settings_html(compare(self.repository, ids, baseline), differences_only)

    def show_histogram(self, run_id: str | None) -> Any:
        """Divergences of another run."""
        return divergence.draw(divergence.info(self.repository.run(run_id))) if run_id else None

    def show_pairs(self, run_a: str | None, run_b: str | None, which: Show, page: int = 0) -> Updates:
        """One page of prompts of two runs."""
        if not run_a or not run_b:
            hint = notice("Choose two runs to see where they disagree.")
            return {self.summary: hint, self.pairs: "", self.page: 0} | self._turnable(0, 0)
        return self._guarded(lambda: self._paired(run_a, run_b, which, page))

    # --- what they share -----------------------------------------------------------------------------------------

    def _opened(self, ids: list[str], experiment: str | None, baseline: str | None) -> Updates:
        if experiment and not ids:
            ids = experiment_runs(self.repository, experiment)
        found = self.repository.experiments(limit=OFFERED_EXPERIMENTS, offset=0)
        choices = [(f"{e.name} · {len(e.runs)} runs · {e.created_at:%d %b %Y %H:%M}", e.id) for e in found]
        return self._shown(ids, baseline, True) | {
            self.experiment: gr.Dropdown(choices, value=experiment if experiment in {id for _, id in choices} else None)
        }

    def _shown(self, ids: Sequence[str], baseline: str | None, differences_only: bool) -> Updates:
        comparison = compare(self.repository, ids, baseline)
        names = [(row.name, row.run.id) for row in comparison.rows]
        pinned = comparison.baseline.id if comparison.baseline else None
        others = [run_id for _, run_id in names if run_id != pinned]
        drafting = [run for run in comparison.runs if (run.metrics or {}).get("divergence_histogram")]
        tuned = [run for run in drafting if run.decoding.threshold is not None]
        drawn = (tuned or drafting or [None])[-1]  # of a sweep the loosest: there is most to see
        figures = comparison_figures(comparison.runs, comparison.baseline) if comparison.rows else [None] * 5
        return {
            self.runs: gr.Dropdown(self._offered(comparison.runs), value=[run.id for run in comparison.runs]),
            self.baseline: gr.Dropdown(names, value=pinned),
            self.warnings: warnings_html(comparison.warnings),
            self.empty: "" if comparison.rows else nothing_chosen(self.repository.experiments(limit=5, offset=0)),
            self.results: gr.Column(visible=bool(comparison.rows)),
            self.table: comparison_html(comparison),
            **dict(zip(self.plots, figures, strict=True)),
            self.histogram: divergence.draw(divergence.info(drawn)) if drawn else None,
            self.histogram_run: gr.Dropdown(
                [(name, run_id) for name, run_id in names if any(run.id == run_id for run in drafting)],
                value=drawn.id if drawn else None,
            ),
            self.settings: settings_html(comparison, differences_only),
            self.run_a: gr.Dropdown(names, value=pinned),
            self.run_b: gr.Dropdown(
                names, value=drawn.id if drawn and drawn.id in others else next(iter(others), None)
            ),
            self.link: self._link(comparison),
        }

    def _paired(self, run_a: str, run_b: str, which: Show, page: int) -> Updates:
        names = run_names(self.repository.runs(ids=[run_a, run_b]))
        pairing = pair_up(self.repository, run_a, run_b)
        shown = pairing.shown(which)
        begin = page * PAIRS_PER_PAGE
        return {
            self.summary: pairing_summary(pairing, names[run_a], names[run_b]),
            self.pairs: pairs_html(shown[begin : begin + PAIRS_PER_PAGE], names[run_a], names[run_b])
            or notice("No prompt of this kind: choose other runs, or show all prompts."),
            self.page: page,
        } | self._turnable(page, len(shown))

    def _offered(self, chosen: Sequence[RunView]) -> list[tuple[str, str]]:
        """The latest runs, and those chosen even if they are older."""
        latest = self.repository.runs(limit=OFFERED_RUNS)
        older = [run for run in chosen if run.id not in {offered.id for offered in latest}]
        return [(_choice_name(run), run.id) for run in [*latest, *older]]

    def _link(self, comparison: Comparison) -> str:
        if not comparison.runs or not comparison.baseline:
            return "?"
        ids = ",".join(run.id for run in comparison.runs)
        return "?" + urlencode({"runs": ids, "baseline": comparison.baseline.id}, safe=",")

    def _turn(self, step: int) -> Callable[..., Updates]:
        def turn(run_a: str | None, run_b: str | None, which: Show, page: int) -> Updates:
            return self.show_pairs(run_a, run_b, which, max(0, page + step))

        return turn

    def _turnable(self, page: int, prompts: int) -> Updates:
        return {
            self.back: gr.Button(interactive=page > 0),
            self.forward: gr.Button(interactive=(page + 1) * PAIRS_PER_PAGE < prompts),
        }

    def _export(self, write: Callable[[Comparison], Path]) -> Callable[[list[str], str | None], str]:
        def export(ids: list[str], baseline: str | None) -> str:
            return str(write(compare(self.repository, ids, baseline)))

        return export

    def _guarded(self, update: Callable[[], Updates]) -> Updates:
        """What ``update`` returns; or its error as a sentence on the page, everything else as it was."""
        try:
            return update()
        except FsdError as error:
            return {self.warnings: notice(str(error), "bad")}


def _choice_name(run: RunView) -> str:
    """A run as the list of runs calls it: what a person may search for."""
    parts = [run.label, f"seed {run.seed}", run.experiment_name, run.task, f"{run.created_at:%d %b %H:%M}", run.id[:6]]
    return " · ".join(filter(None, parts))
