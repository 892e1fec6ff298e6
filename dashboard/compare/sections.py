"""The parts of Compare below the answer, each drawn once somebody opens its tab.

A new one is a subclass of :class:`Section` in a module of its own, and a line in ``SECTIONS`` of
:mod:`dashboard.compare.compare_page`. It names itself, makes its components in :meth:`Section.build`, and returns what
differs of them from :meth:`Section.draw`, which is called only while its tab is open, with what is compared at that
moment.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from math import isfinite
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import gradio as gr

from dashboard.compare.compared_runs import DEFAULT_MARGIN
from dashboard.compare.comparison_html import (
    addition_links,
    at_price,
    comparison_html,
    cost_table,
    matched_html,
    pairing_summary,
    settings_html,
    worst_prompts_html,
)
from dashboard.compare.export import query_of
from dashboard.tables.prompt_pairs import Pairing, PairReader, RunPair
from dashboard.ui.components import KEEP_PLACE, notice, section, show
from dashboard.ui.fields import optional_number, read
from dashboard.ui.templates import addressed, joined, render, script
from dashboard.ui.view import Asked, Part, Updates, View, digest
from fsd_core.analysis.cells import measured, run_names
from fsd_core.analysis.comparability import COSTS
from fsd_core.analysis.matching import match
from fsd_core.analysis.recommendation import load_lines, load_sentences
from fsd_core.errors import InvalidSetting, Malformed, OutOfRange
from fsd_core.plots import acceptance, curves, trade_offs
from fsd_core.plots.curves import SPEEDS_BY_LOAD, draw_load_curves
from fsd_core.plots.trade_offs import COMPARISON_FIGURES, DIVERGENCE_FIGURE, FIRST_FIGURE
from fsd_core.statistics.tradeoff import MARGINS_LISTED, RATIOS

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns, RunProgress
    from dashboard.compare.export import NamedPrompt
    from fsd_core.storage.records import RunView
    from fsd_core.storage.repository import Repository


class Comparing(NamedTuple):
    """The current comparison of the page."""

    runs: Sequence[RunView]
    baseline: RunView
    margin: float | None
    stages: Mapping[str, RunProgress]
    prompt: NamedPrompt | None
    """that the address names, if both of its runs are compared"""
    comparison: Callable[[], ComparedRuns]
    """computes it, once for an answer"""

    @property
    def pinned(self) -> list[object]:
        """Which runs are compared with which baseline."""
        return [[run.id for run in self.runs], self.baseline.id]

    @property
    def begun(self) -> dict[str, RunProgress]:
        """How far the runs are that have done a prompt."""
        return {id: stage for id, stage in self.stages.items() if stage.prompts_done}

    @property
    def measured(self) -> dict[str, RunProgress]:
        """How far the runs are that have figures."""
        return {id: stage for id, stage in self.stages.items() if stage.measured}

    @property
    def query(self) -> str:
        """Query of the comparison's address, without a prompt."""
        return query_of(self.runs, self.baseline, self.margin)


class Section(Part):
    """The section's components as attributes."""

    tab: ClassVar[str] = "figures"
    title: ClassVar[str] = ""
    """its heading below those of the tab's other sections"""
    parts: ClassVar[tuple[str, ...]]
    """names under which :meth:`draw` asks what differs of ``drawn``"""

    drawn: Sequence[Any] = ()
    """figures and HTML of the comparison, which are ``outputs`` too; they are emptied once a section of another tab
    holds another comparison's"""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        with gr.Column(visible=not self.title) as self.part:
            if self.title:
                show(section(self.title))
            self.build()
        self.outputs = [self.part, *self.drawn, *self.outputs]

    def build(self) -> None:
        """Make the components, and say which it reads and changes."""
        raise NotImplementedError

    def listen(self, view: View) -> None:
        """Attach further events."""

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the updates of the section: ``part`` is shown if it has a heading and something to say."""
        raise NotImplementedError

    def query(self, asked: Asked, now: Comparing) -> str:
        """Return its part of the page's address, after :meth:`draw`, such as ``a=…&b=…&prompt=8``."""
        return ""

    def redraw(self, asked: Asked, now: Comparing, is_open: bool) -> Updates:
        """Return what differs of a section in the open tab, and of another one nothing, except that it forgets what it
        showed of another comparison: who opens its tab must not see that."""
        memory, compared = f"drawn {self.parts[0]}", digest(now.pinned, now.margin, now.stages)
        if is_open:
            asked.shown[memory] = compared
            return self.draw(asked, now)
        if asked.shown.get(memory, compared) == compared:
            return {}
        for part in (memory, *self.parts):
            asked.shown.pop(part, None)
        return {part: "" if isinstance(part, gr.HTML) else None for part in self.drawn}


def chosen_run(
    asked: Asked, field: gr.Dropdown, name: str, runs: Sequence[RunView], default: RunView | None, compared: object
) -> str | None:
    """Return the id of the run that is chosen, or that of ``default`` where the field holds none of ``runs``.

    The field is filled in then. If something else is compared, a new default replaces the last one, but no run that a
    person has chosen. ``name`` is that of the field on the page.
    """
    chosen, memory = asked[field], f"default of {name}"
    anew = asked.differs(name, compared)
    if chosen not in {run.id for run in runs} or (anew and chosen == asked.shown.get(memory)):
        chosen = default.id if default else None
        asked.shown[memory] = chosen or ""
    asked.fill(field, chosen)
    return chosen


_TITLE, _HIGHEST = "Price per hour", 1e9
_NO_PRICE = "The price per hour cannot be used: expected a number above 0, or nothing."


class CostSection(Section):
    """Cost per million tokens and per solved task, with energy and memory where they were measured."""

    title = "Cost and energy"
    parts = ("cost",)

    def build(self) -> None:
        """Make the field and the table."""
        info = "Of the machine, in any currency. Empty: what each run was measured at."
        self.price = optional_number(_TITLE, info)
        self.table = show()
        self.fields = [self.price]
        self.drawn = [self.table]

    def redraw(self, asked: Asked, now: Comparing, is_open: bool) -> Updates:
        if asked.opening:
            asked.fill(self.price, _named_price(asked))
        return super().redraw(asked, now, is_open)

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if not asked.differs("cost", now.pinned, now.stages, asked.current(self.price)):
            return {}
        try:
            price = _price(asked.current(self.price))
        except InvalidSetting as error:
            return {self.table: notice(str(error), "warn")}
        comparison = now.comparison()
        rows = comparison.rows if price is None else at_price(comparison.rows, comparison.prompts, price)
        return {self.part: gr.Column(visible=True), self.table: cost_table(rows)}

    def query(self, asked: Asked, now: Comparing) -> str:
        with suppress(InvalidSetting):
            price = _price(asked.current(self.price))
            return "" if price is None else f"price={price:g}"
        return ""


def _named_price(asked: Asked) -> str:
    """Return the price in the address, or an empty text for what is none."""
    with suppress(InvalidSetting):
        price = _price(asked.address.get("price", ""))
        return "" if price is None else f"{price:g}"
    return ""


def _price(text: str | None) -> float | None:
    """Return the price that a text names, or ``None`` for nothing. Raises ``InvalidSetting`` for anything else."""
    price = read(text, _TITLE)
    if price is not None and not (isfinite(price) and 0 < price <= _HIGHEST):
        raise OutOfRange(_NO_PRICE)
    return price


class LoadSection(Section):
    """Throughput and times, over how many prompts are decoded at once and over how many arrive in a second."""

    title = "Over load"
    parts = ("over load",)

    def build(self) -> None:
        """Make the sentences and the figures."""
        self.told = show()
        self.rows, self.plots = {}, {}
        for by_rate in (False, True):
            with gr.Row(equal_height=False) as self.rows[by_rate]:
                for name, what in SPEEDS_BY_LOAD.items():
                    if what.by_rate == by_rate:
                        self.plots[name] = gr.Plot(show_label=False, min_width=340)
        self.drawn = [self.told, *self.plots.values()]
        self.outputs = [*self.rows.values()]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the figures and sentences, if they differ."""
        if not asked.differs("over load", now.pinned, now.measured, slow=True):
            return {}
        result = now.comparison()
        lines = load_lines(result.runs, result.baseline, result.prompts)
        kinds = {line.by_rate for line in lines}
        rows = {row: gr.Row(visible=by_rate in kinds) for by_rate, row in self.rows.items()}
        return {
            self.part: gr.Column(visible=bool(lines)),
            self.told: render("compare/load.html", "sentences", load_sentences(lines)),
            **rows,
            **{
                plot: addressed(draw_load_curves(lines, what), name, now.query)
                for name, plot in self.plots.items()
                if (what := SPEEDS_BY_LOAD[name]).by_rate in kinds
            },
        }


FURTHER = {name: draw for name, draw in COMPARISON_FIGURES.items() if name != FIRST_FIGURE}


class FurtherFigures(Section):
    """Acceptance, answers and speed of all runs, in two columns."""

    title = "Further figures"
    parts = ("figures", "divergences")

    def build(self) -> None:
        """Make the figures, first down one column, then down the next."""
        with gr.Row(equal_height=False):
            with gr.Column(min_width=340):
                self.plots = [gr.Plot(show_label=False) for _ in range(3)]
                self.run = gr.Dropdown([], label="Run of the divergences", allow_custom_value=True)
                self.histogram = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.plots += [gr.Plot(show_label=False) for _ in range(3)]
        self.fields = [self.run]
        self.drawn = [*self.plots, self.histogram]
        self.outputs = [self.run]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the figures that differ. Before a run has done a prompt there are none.

        The divergences are those of the chosen run, if it has any.
        """
        updates: Updates = {}
        if asked.differs("figures", now.pinned, now.begun, slow=True):
            result = now.comparison()
            figures = [draw(result.runs, result.baseline, result.prompts) for draw in FURTHER.values()]
            for name, figure in zip(FURTHER, figures, strict=True):
                addressed(figure, name, now.query)
            updates |= {self.part: gr.Column(visible=bool(now.begun)), **dict(zip(self.plots, figures, strict=True))}
        judged, names = acceptance.runs_with_judged_tokens(now.runs), run_names(now.runs)
        choices = [(names[run.id], run.id) for run in judged]
        if asked.differs("runs of divergences", choices):
            updates[self.run] = gr.Dropdown(choices, visible=bool(choices))
        id = chosen_run(asked, self.run, "run of divergences", judged, acceptance.telling(judged), now.pinned)
        if asked.differs("divergences", id, now.stages[id] if id else None, slow=True):
            figure = (
                acceptance.draw_divergence(acceptance.divergence_info(next(run for run in judged if run.id == id)))
                if id
                else None
            )
            if figure is not None:
                addressed(figure, DIVERGENCE_FIGURE, f"runs={id}")
            updates[self.histogram] = gr.Plot(figure, visible=id is not None)
        return updates


MOST_POINTS = 8
BRING_INTO_VIEW = script("compare/bring_into_view.js")


class MatchedPanel(Section):
    """Which rule loses least at one cost, and which costs least within a loss."""

    title = "At matched points"
    parts = ("matched",)

    def build(self) -> None:
        """Make the fields, the figures and the tables."""
        with gr.Row():
            self.cost = gr.Radio(
                [(cost.title, key) for key, cost in COSTS.items()], value="target_passes", label="Cost", min_width=240
            )
            self.ratios = gr.Textbox(_listed(RATIOS), label="Times fewer", max_length=80, min_width=200)
            self.margins = gr.Textbox(
                _listed(MARGINS_LISTED), label="Points that may be lost", max_length=80, min_width=200
            )
        with gr.Row(equal_height=False) as self.row:
            with gr.Column(min_width=340):
                self.curves = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.reach = gr.Plot(show_label=False)
                self.lengths = gr.Plot(show_label=False, visible=False)
        self.predicted = gr.Plot(show_label=False, visible=False, elem_id="predicted")
        self.tables = show(elem_id="matched", js_on_load=BRING_INTO_VIEW)
        self.fields = [self.cost]
        self.forms = [self.ratios, self.margins]  # lists of numbers, which are read once all are typed
        self.drawn = [self.curves, self.reach, self.lengths, self.predicted, self.tables]
        self.outputs = [self.row]

    def listen(self, view: View) -> None:
        view.on(*(event for field in self.forms for event in (field.submit, field.blur)))

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return all figures and tables, if they differ."""
        values = [asked[field] or "" for field in (*self.fields, *self.forms)]
        if not asked.differs("matched", now.pinned, now.margin, now.measured, values, slow=True):
            return {}
        return self._draw(now.comparison(), now.query, *values)

    def _draw(self, comparison: ComparedRuns, query: str, cost: str, ratios: str, margins: str) -> Updates:
        """Return all figures and tables. An invalid number becomes a sentence in place of the tables."""
        lengths = trade_offs.draft_lengths_info(comparison.runs, comparison.baseline, comparison.prompts)
        predictions = curves.info(comparison.runs)
        updates: Updates = {
            self.lengths: gr.Plot(
                addressed(trade_offs.draw_draft_lengths(lengths), "draft_lengths", query) if lengths.curves else None,
                visible=bool(lengths.curves),
            ),
            self.predicted: gr.Plot(
                addressed(curves.draw_predicted(predictions), "predicted", query) if predictions else None,
                visible=bool(predictions),
            ),
        }
        matched = match(comparison.runs, comparison.baseline, comparison.prompts, cost)
        margin = DEFAULT_MARGIN if comparison.margin is None else comparison.margin
        has_curves = bool(matched.compared)
        has_reach = has_curves and matched.quality.is_ranked
        query += f"&cost={cost}"
        told = has_curves or lengths.curves or predictions or (measured(comparison.runs) and matched.notes)
        updates |= {
            self.part: gr.Column(visible=bool(told)),
            self.row: gr.Row(visible=has_curves or bool(lengths.curves)),
            self.curves: gr.Plot(
                addressed(curves.draw_matched_curves(matched), "matched", query) if has_curves else None,
                visible=has_curves,
            ),
            self.reach: gr.Plot(
                addressed(curves.draw_within(matched, margin), "equal_accuracy", query) if has_reach else None,
                visible=has_reach,
            ),
        }
        try:
            html = matched_html(matched, _numbers(ratios), _numbers(margins), addition_links(matched, comparison.runs))
        except InvalidSetting as error:
            html = notice(str(error), "warn")
        return updates | {self.tables: html}


def _listed(values: tuple[float, ...]) -> str:
    return ", ".join(f"{value:g}" for value in values)


def _numbers(text: str) -> list[float]:
    """Return the numbers of a list. Raises ``InvalidSetting`` unless it has 1 to ``MOST_POINTS`` numbers."""
    parts = [part.strip() for part in text.split(",") if part.strip()]
    try:
        values = list(dict.fromkeys(float(part) for part in parts))
    except ValueError:
        values = []
    if not 0 < len(values) <= MOST_POINTS:
        raise Malformed(f"{text[:60]!r} cannot be read: expected 1 to {MOST_POINTS} numbers, such as 1.1, 1.3.")
    return values


_PAIR = "pair"


class PromptPairsPanel(Section):
    """Outputs of run A and run B for each prompt."""

    tab = "prompts"
    parts = ("prompts",)

    def build(self) -> None:
        """Make the choice of two runs, and the reader of their prompts."""
        with gr.Row():
            self.run_a = gr.Dropdown([], label="Run A", min_width=240, allow_custom_value=True)
            self.run_b = gr.Dropdown([], label="Run B", min_width=240, allow_custom_value=True)
        self.summary = show()
        self.reader = PairReader(self.repository, links=True)
        self.runs = [self.run_a, self.run_b]
        """fields in which a run is chosen"""
        self.fields = [*self.runs, *self.reader.fields]
        self.drawn = [self.summary, self.reader.summary, self.reader.pairs]
        self.outputs = [*self.runs, *self.reader.outputs]

    def listen(self, view: View) -> None:
        self.reader.listen(view)

    def chosen(
        self, asked: Asked, runs: Sequence[RunView], baseline: RunView, prompt: NamedPrompt | None
    ) -> tuple[str | None, str | None]:
        """Return the ids of run A and run B.

        By default they are those of the address's prompt, or else the baseline and the most lenient of the other runs.
        """
        others = [run for run in runs if run.id != baseline.id]
        lenient = acceptance.telling(acceptance.runs_with_judged_tokens(runs))
        defaults = baseline, lenient if lenient in others else next(iter(others), None)
        if prompt:
            by_id = {run.id: run for run in runs}
            defaults = by_id[prompt.run_a], by_id[prompt.run_b]
        compared = [run.id for run in runs], baseline.id
        run_a, run_b = (
            chosen_run(asked, field, str(field.label), runs, default, compared)
            for field, default in zip(self.runs, defaults, strict=True)
        )
        return run_a, run_b

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return a page of two runs' prompts, if it differs: at first the page with the address's prompt."""
        names = [(name, id) for id, name in run_names(now.runs).items()]
        offers: Updates = (
            {field: gr.Dropdown(names) for field in self.runs} if asked.differs("names of the pair", names) else {}
        )
        pair = self.chosen(asked, now.runs, now.baseline, now.prompt)
        prompt = now.prompt if now.prompt and (now.prompt.run_a, now.prompt.run_b) == pair else None
        if prompt and _PAIR not in asked.shown:
            asked.fill(self.reader.filter, "all")
        asked.shown[_PAIR] = " ".join(map(str, pair))
        return offers | self._prompts(asked, now, pair, prompt)

    def query(self, asked: Asked, now: Comparing) -> str:
        """Return the address's prompt, until two other runs are chosen."""
        prompt = now.prompt
        same = prompt and asked.shown.get(_PAIR) in (None, f"{prompt.run_a} {prompt.run_b}")
        return prompt.query if prompt and same else ""

    def _prompts(
        self, asked: Asked, now: Comparing, pair: tuple[str | None, str | None], prompt: NamedPrompt | None
    ) -> Updates:
        run_a, run_b = pair
        if not run_a or not run_b:
            hint = notice("Choose two runs to see where they disagree.")
            updates = self.reader.redraw(asked, None, slow=True)
            return updates and updates | {self.summary: hint}
        names = run_names([run for run in now.runs if run.id in pair])
        linked = prompt.number - 1 if prompt else None

        def summary(pairing: Pairing) -> Updates:
            parts = [pairing_summary(pairing, names[run_a], names[run_b])]
            if prompt and all(one.a.position != linked for one in pairing.pairs):
                parts.append(notice(f"The two runs have no prompt {prompt.number} in common.", "warn"))
            return {self.summary: joined(parts)}

        ids = {run.id: run.ids for run in now.runs}
        return self.reader.redraw(
            asked, RunPair(ids[run_a], ids[run_b], names[run_a], names[run_b]), [now.stages[run_a], now.stages[run_b]],
            which=asked.current(self.reader.filter), linked=linked, about=summary, slow=True,
        )  # fmt: skip


class AllFigures(Section):
    """Every metric of every run, with its interval and its difference from the baseline."""

    title = "All figures"
    parts = ("all figures",)

    def build(self) -> None:
        """Make the table."""
        self.table = show(js_on_load=KEEP_PLACE)
        self.drawn = [self.table]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if not asked.differs("all figures", now.pinned, now.margin, now.stages):
            return {}
        comparison = now.comparison()
        html = joined([comparison_html(comparison), worst_prompts_html(comparison)])
        return {self.part: gr.Column(visible=True), self.table: html}


class SettingsSection(Section):
    """The settings of the runs, by default those in which they differ."""

    tab = "settings"
    parts = ("settings",)

    def build(self) -> None:
        """Make the box and the table."""
        self.differences_only = gr.Checkbox(True, label="Differences only", container=False)
        self.settings = show()
        self.fields = [self.differences_only]
        self.drawn = [self.settings]

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return the table, if it differs."""
        if not asked.differs("settings", now.pinned, asked[self.differences_only]):
            return {}
        return {self.settings: settings_html(now.comparison(), asked[self.differences_only])}
