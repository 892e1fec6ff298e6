"""Two of the compared runs, prompt by prompt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.compare.chosen_run import chosen_run
from dashboard.compare.comparison_html import pairing_summary
from dashboard.compare.section import Comparing, Section
from dashboard.tables.pair_reader import PairReader, RunPair
from dashboard.tables.prompt_pairs import Pairing
from dashboard.ui.components import notice, show
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import joined
from dashboard.ui.view import View
from fsd_core.analysis.series import run_names
from fsd_core.plots import divergence

if TYPE_CHECKING:
    from dashboard.compare.export_links import NamedPrompt
    from fsd_core.storage.records import RunView

_PAIR = "pair"


class PromptPairsPanel(Section):
    """Outputs of run A and run B for each prompt."""

    name = "prompts"
    title = "Prompt by prompt"
    parts = ("prompts",)

    def build(self) -> None:
        """Make the choice of two runs, and the reader of their prompts."""
        with gr.Row():
            self.run_a = gr.Dropdown([], label="Run A", min_width=240, allow_custom_value=True)
            self.run_b = gr.Dropdown([], label="Run B", min_width=240, allow_custom_value=True)
        self.summary = show()
        self.reader = PairReader(self.repository, links=True)

    @property
    def runs(self) -> list[Any]:
        """Fields in which a run is chosen."""
        return [self.run_a, self.run_b]

    @property
    def fields(self) -> Sequence[Any]:
        return [*self.runs, *self.reader.fields]

    @property
    def drawn(self) -> Sequence[Any]:
        return [self.summary, self.reader.summary, self.reader.pairs]

    @property
    def outputs(self) -> Sequence[Any]:
        return [*self.runs, self.summary, *self.reader.outputs]

    def listen(self, view: View, link: gr.Textbox) -> None:
        self.reader.listen(view)

    def at_first(self, asked: Asked, now: Comparing) -> bool:
        """Return whether the address names a prompt, or the section."""
        return now.prompt is not None or super().at_first(asked, now)

    def chosen(
        self, asked: Asked, runs: Sequence[RunView], baseline: RunView, prompt: NamedPrompt | None
    ) -> tuple[str | None, str | None]:
        """Return the ids of run A and run B.

        By default they are those of the address's prompt, or else the baseline and the most lenient of the other runs.
        """
        others = [run for run in runs if run.id != baseline.id]
        lenient = divergence.telling(divergence.judged(runs))
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
        asked.shown[_PAIR] = " ".join(map(str, pair))
        prompt = now.prompt if now.prompt and (now.prompt.run_a, now.prompt.run_b) == pair else None
        return offers | self._prompts(asked, now, pair, prompt)

    def query(self, asked: Asked, now: Comparing) -> str:
        """Return the address's prompt, until two other runs are chosen."""
        prompt = now.prompt
        same = prompt and asked.shown.get(_PAIR) in (None, f"{prompt.run_a} {prompt.run_b}")
        return prompt.query if prompt and same else ""

    def _prompts(
        self, asked: Asked, now: Comparing, pair: tuple[str | None, str | None], prompt: NamedPrompt | None
    ) -> Updates:
        if asked.opening and prompt:
            asked.fill(self.reader.filter, "all")
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
            which="all" if asked.opening and prompt else None, linked=linked, about=summary, slow=True,
        )  # fmt: skip
