"""One run opened: its metrics, its figures, its prompts, and one prompt token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.runs.annotation_panel import AnnotationPanel
from dashboard.runs.elsewhere_html import origin_html
from dashboard.runs.run_html import (
    CHOOSE_PROMPT,
    engine_html,
    header_html,
    notes_html,
    prompt_html,
    prompts_html,
    provenance_html,
    sittings_html,
    slower_html,
)
from dashboard.runs.run_tiles import categories_html, further_tiles_html, tiles_html
from dashboard.runs.token_text import displayed_tokens
from dashboard.tables.hidden_html import hidden_html
from dashboard.tables.siblings import on_same_prompts, sibling_runs
from dashboard.tables.task_version import version_facts
from dashboard.ui import actions
from dashboard.ui.components import section, show
from dashboard.ui.figure_address import addressed
from dashboard.ui.fold import Fold
from dashboard.ui.pager import Pager
from dashboard.ui.question import MOST_COUNTED, Asked, Updates, count_in, digest
from dashboard.ui.templates import joined
from dashboard.ui.view import View
from fsd_core.analysis.categories import by_category
from fsd_core.analysis.slowdown import slowdown
from fsd_core.errors import FsdError
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.models.thoughts import THOUGHT_MARKS
from fsd_core.plots import divergence, positions, requests
from fsd_core.plots.gallery import DIVERGENCE_FIGURE
from fsd_core.review.blinding import HiddenAnswers, hidden_answers
from fsd_core.review.resting import resting_on
from fsd_core.tasks.custom.lookup import categories

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import GenerationView, RunView

PROMPTS_PER_PAGE = 20
_POLL_SECONDS = 1.5
OUTCOMES = ("correct", "wrong", "truncated", "failed", "unscored")
_ALL = "all"
IN_ORDER, WORST = "", "worst"


class OpenedRun:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository, mlflow_url: str | None) -> None:
        self.repository, self.mlflow_url = repository, mlflow_url
        self.head = show(js_on_load=actions.CLICKS)
        self.answer = show()
        self.tiles = show()
        self.all_figures = Fold("run-figures", "All figures")
        with self.all_figures.part:
            self.further = show()
        self.panel = AnnotationPanel(repository, "run")
        self.categories = show()
        with gr.Row(visible=False) as self.figures:
            with gr.Column(min_width=340):
                self.positions = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.divergences = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.requests = gr.Plot(show_label=False)
        self.provenance = show()
        self.history = self.panel.history = show()
        self._build_prompts()
        self.clock = gr.Timer(_POLL_SECONDS, active=False)

    def _build_prompts(self) -> None:
        show(section("Prompts"))
        with gr.Row(elem_classes=["run-filters"]):
            choices = [("All", _ALL), *((outcome.capitalize(), outcome) for outcome in OUTCOMES)]
            self.outcome = gr.Dropdown(choices, value=_ALL, label="Outcome", min_width=150)
            orders = [("As in the task", IN_ORDER), ("Lowest acceptance first", WORST)]
            self.order = gr.Dropdown(orders, value=IN_ORDER, label="Order", min_width=170)
            self.search = gr.Textbox(
                label="Search", placeholder="Prompt, text or answer", max_length=200, scale=3, min_width=220
            )
        with gr.Row(equal_height=False, elem_classes=["run-prompts"]):
            with gr.Column(scale=7, min_width=340):
                self.prompts = show(js_on_load=CHOOSE_PROMPT, elem_id="prompts")
                self.pager = Pager(PROMPTS_PER_PAGE, "prompt")
            with gr.Column(scale=5, min_width=340, elem_classes=["run-side"]):
                self.prompt = show(elem_id="prompt")

    @property
    def fields(self) -> list[Any]:
        """Components that :meth:`redraw` reads."""
        return [self.outcome, self.search, self.order]

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [
            self.head, self.answer, self.tiles, self.further, self.categories, self.figures, self.positions,
            self.divergences, self.requests, self.provenance, self.history, *self.panel.outputs, self.prompts,
            self.prompt, self.clock, *self.pager.parts,
        ]  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        self.panel.listen(view)
        self.all_figures.listen(view)
        view.turns(self.pager.name, self.pager.steps)
        view.on(self.prompts.click, self.head.click, self.clock.tick)

    def redraw(self, asked: Asked, run_id: str) -> Updates:
        """Return the updates of a run. Raises ``UnknownName`` if it does not exist."""
        run = self.repository.run(run_id)
        order = asked.address.get("prompts", "") if asked.opening else asked[self.order]
        order = WORST if order == WORST else IN_ORDER  # an address may hold anything
        if asked.opening:
            asked.fill(self.order, order)
        updates = self.panel.redraw(run, asked)
        if asked.differs("run", _state(run), run.archived, run.label):
            updates |= self._run(run)
        unfolded = self.all_figures.is_open(asked)
        if asked.differs("all figures", unfolded, _state(run) if unfolded else None):
            counts = self.repository.prompts([run.id]) if unfolded and run.metrics else {}
            updates[self.further] = further_tiles_html(refreshed(run, counts.get(run.id, {}))) if unfolded else ""
        hidden = hidden_answers(self.repository, asked.person, [run.id])
        position = self._selected(asked, run, order, hidden.of(run.id))
        return (
            updates
            | self._list(asked, run, order, position, hidden)
            | self._selected_prompt(asked, run, position, hidden.of(run.id))
        )

    def _selected(self, asked: Asked, run: RunView, order: str, hidden: frozenset[int]) -> int | None:
        """Return the position of the prompt that was opened; without one, it is the first that was listed."""
        wanted = asked.wanted("prompt")
        if not isinstance(wanted, int) or not 0 <= wanted < MOST_COUNTED:
            wanted = count_in(asked.shown["first prompt"]) if "first prompt" in asked.shown else None
        part: dict[str, Any] = {"worst_first": order == WORST, "limit": 1, "without": hidden}
        if wanted is None and (first := self.repository.generations(run.id, **part)):
            wanted = first[0].position
            asked.shown["first prompt"] = str(wanted)
        return wanted

    def _list(
        self, asked: Asked, run: RunView, order: str, selected: int | None, hidden: HiddenAnswers
    ) -> Updates:  # fmt: skip
        """Return a page of the prompts, if it differs."""
        outcome, search = asked[self.outcome], (asked[self.search] or "").strip()
        filters: dict[str, Any] = {} if outcome == _ALL else {"outcome": outcome}
        if search:
            filters["search"] = search
        filtered = bool(filters)
        if without := hidden.of(run.id):  # neither a search nor a filter tells which answer is whose
            filters["without"] = sorted(without)
        of = digest(filters, order)
        wanted_page = asked.page(self.pager.name, of)
        if not asked.differs("prompts", of, wanted_page, selected, _state(run)):
            return {}
        total = self.repository.count_generations(run.id, **filters)
        page = self.pager.clamp(wanted_page, total)
        part = {"worst_first": order == WORST, "limit": PROMPTS_PER_PAGE, "offset": page * PROMPTS_PER_PAGE}
        generations = self.repository.generations(run.id, **filters, **part)
        html = hidden_html(len(without), hidden.proposals)
        if generations or not without or filtered:
            html = joined(
                [prompts_html(run.id, generations, selected, filtered=filtered, elsewhere=run.measured_elsewhere), html]
            )
        return {self.prompts: html} | self.pager.updates(page, total, of)

    def _selected_prompt(self, asked: Asked, run: RunView, position: int | None, hidden: frozenset[int]) -> Updates:
        """Return one prompt token by token, if it differs."""
        if position in hidden:
            return {self.prompt: ""} if asked.differs("prompt", "hidden") else {}
        generation = (
            next(iter(self.repository.generations(run.id, position=position)), None) if position is not None else None
        )
        if generation is None or not asked.differs("prompt", generation.id, sorted(hidden)):
            return {}
        return {self.prompt: self._prompt(run, generation, hidden)}

    def _run(self, run: RunView) -> Updates:
        target = self._target_alone(run)
        prompts = self.repository.prompts([run.id, *([target.id] if target else [])]) if run.metrics else {}
        run = refreshed(run, prompts.get(run.id, {}))
        slower = slowdown(run, target, prompts) if target else None
        session_positions = self.repository.session_positions(run.id)
        has_drafts = run.metrics is not None and bool(run.metrics.get("acceptance_at_position"))
        figures = (
            {
                self.positions: addressed(positions.draw(positions.info([run])), "positions", f"runs={run.id}"),
                self.divergences: addressed(divergence.draw(divergence.info(run)), DIVERGENCE_FIGURE, f"runs={run.id}"),
                self.requests: addressed(requests.draw(requests.info([run])), "requests", f"runs={run.id}"),
            }
            if has_drafts
            else {}
        )
        return figures | {
            self.head: header_html(run, self.mlflow_url, resting_on(self.repository, [run.id])),
            **({self.answer: ""} if run.ended else {}),  # an answer about a running run is outdated
            self.tiles: tiles_html(run)
            + sittings_html(run, session_positions)
            + notes_html(run)
            + engine_html(run)
            + origin_html(run)
            + (slower_html(slower) if slower else ""),
            self.categories: categories_html(by_category(prompts.get(run.id, {}), self._categories(run))),
            self.figures: gr.Row(visible=has_drafts),
            self.provenance: provenance_html(run, session_positions, version_facts(self.repository, run.task)),
            # An ended run is polled until its MLflow mirror exists, whose link then appears.
            self.clock: gr.Timer(active=not run.ended or (self.mlflow_url is not None and run.mlflow_run_id is None)),
        }

    def _categories(self, run: RunView) -> dict[int, str]:
        return categories(run.task, self.repository) if run.metrics else {}

    def _target_alone(self, run: RunView) -> RunView | None:
        """Return the target alone on the same prompts, if the run's experiment measured it."""
        if not run.metrics:
            return None
        return next(iter(on_same_prompts(run, sibling_runs(self.repository, run, "autoregressive"))), None)

    def _prompt(self, run: RunView, generation: GenerationView, hidden: frozenset[int]) -> str:
        turns = [at for at in range(generation.position - generation.turn, generation.position) if at not in hidden]
        earlier = [said for position in turns for said in self.repository.generations(run.id, position=position)]
        try:
            marks = str((run.provenance or {}).get(THOUGHT_MARKS, ""))
            tokens = displayed_tokens(run.pair, self.repository.trace(generation.id), marks)
        except FsdError as error:
            return prompt_html(generation, None, str(error), earlier)
        if "".join(token.text for token in tokens) != generation.text:
            problem = "The pair's tokenizer has changed since this run, so its tokens cannot be shown."
            return prompt_html(generation, None, problem, earlier)
        return prompt_html(generation, tokens, earlier=earlier)


def _state(run: RunView) -> list[Any]:
    """Return the values by which a poll notices a change."""
    return [run.status, run.prompts_done, run.mlflow_run_id]
