"""Rules at matched points: figures and tables of a comparison, at the requested costs and losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.compared_runs import DEFAULT_MARGIN
from dashboard.compare.matched_html import addition_links, matched_html
from dashboard.compare.section import Comparing, Section
from dashboard.ui.components import notice, show
from dashboard.ui.figure_address import addressed
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import script
from dashboard.ui.view import View
from fsd_core.analysis.comparability import COSTS
from fsd_core.analysis.matching import match
from fsd_core.errors import InvalidSetting, Malformed
from fsd_core.plots import draft_lengths, matched_curves, predicted
from fsd_core.statistics.ranking import MARGINS_LISTED, RATIOS

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns

MOST_POINTS = 8
BRING_INTO_VIEW = script("compare/bring_into_view.js")


class MatchedPanel(Section):
    """Which rule loses least at one cost, and which costs least within a loss."""

    name = "matched-points"
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

    @property
    def fields(self) -> Sequence[Any]:
        return [self.cost]

    @property
    def forms(self) -> Sequence[Any]:
        """Fields of several numbers, which are read once all are typed."""
        return [self.ratios, self.margins]

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.curves, self.reach, self.lengths, self.predicted, self.tables]

    @property
    def outputs(self) -> Sequence[Any]:
        return [self.row, *self.drawn]

    def listen(self, view: View, link: gr.Textbox) -> None:
        view.on(*(event for field in self.forms for event in (field.submit, field.blur)))

    def draw(self, asked: Asked, now: Comparing) -> Updates:
        """Return all figures and tables, if they differ."""
        values = [asked[field] or "" for field in (*self.fields, *self.forms)]
        measured = {id: stage for id, stage in now.stages.items() if stage.measured}
        if not asked.differs("matched", now.pinned, now.margin, measured, values, slow=True):
            return {}
        return self._draw(now.comparison(), now.query, *values)

    def _draw(self, comparison: ComparedRuns, query: str, cost: str, ratios: str, margins: str) -> Updates:
        """Return all figures and tables. An invalid number becomes a sentence in place of the tables."""
        lengths = draft_lengths.info(comparison.runs, comparison.baseline, comparison.prompts)
        predictions = predicted.info(comparison.runs)
        updates: Updates = {
            self.lengths: gr.Plot(
                addressed(draft_lengths.draw(lengths), "draft_lengths", query) if lengths.curves else None,
                visible=bool(lengths.curves),
            ),
            self.predicted: gr.Plot(
                addressed(predicted.draw(predictions), "predicted", query) if predictions else None,
                visible=bool(predictions),
            ),
        }
        matched = match(comparison.runs, comparison.baseline, comparison.prompts, cost)
        margin = DEFAULT_MARGIN if comparison.margin is None else comparison.margin
        has_curves = bool(matched.compared)
        has_reach = has_curves and matched.quality.is_ranked
        query += f"&cost={cost}"
        updates |= {
            self.row: gr.Row(visible=has_curves or bool(lengths.curves)),
            self.curves: gr.Plot(
                addressed(matched_curves.draw(matched), "matched", query) if has_curves else None, visible=has_curves
            ),
            self.reach: gr.Plot(
                addressed(matched_curves.draw_within(matched, margin), "equal_accuracy", query) if has_reach else None,
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
