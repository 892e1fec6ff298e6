"""One run opened: its metrics, its figures, its prompts, and one prompt token by token."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.runs.annotation_panel import AnnotationPanel
from dashboard.runs.run_html import (
    CHOOSE_PROMPT,
    header_html,
    prompt_html,
    prompts_html,
    provenance_html,
    sittings_html,
    slower_html,
    tiles_html,
)
from dashboard.runs.token_text import shown_tokens
from dashboard.tables.company import company, on_same_prompts
from dashboard.tables.task_version import version_facts
from dashboard.ui import actions
from dashboard.ui.choosing import FOLLOWS, on_choice
from dashboard.ui.components import PRIVATE_EVENT, section, show, tells_errors
from dashboard.ui.pager import Pager
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import render
from fsd_core.analysis.slowdown import slowdown
from fsd_core.errors import FsdError, UnknownName
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.plots import divergence, positions, requests

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import GenerationView, RunView

PROMPTS_PER_PAGE = 20
_POLL_SECONDS = 1.5
OUTCOMES = ("correct", "wrong", "truncated", "failed", "unscored")
_ALL = "all"
IN_ORDER, WORST = "", "worst"

Updates = dict[Any, Any]


class OpenedRun:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository, home: Path, mlflow_url: str | None) -> None:
        self.repository, self.home = repository, home
        self.mlflow_url = mlflow_url
        self.head = show(js_on_load=actions.CLICKS)
        self.answer = show()
        self.panel = AnnotationPanel(repository, "run")
        self.tiles = show()
        with gr.Row(visible=False) as self.figures:
            with gr.Column(min_width=340):
                self.positions = gr.Plot(show_label=False, container=False)
            with gr.Column(min_width=340):
                self.divergences = gr.Plot(show_label=False, container=False)
            with gr.Column(min_width=340):
                self.requests = gr.Plot(show_label=False, container=False)
        self.provenance = show()
        self.history = show()
        self.panel.listen(self.history)
        self._prompts()
        self.run_id = gr.State(None)
        self.shown = gr.State(None)
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self._events()

    def _prompts(self) -> None:
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
        self.chosen = gr.State(None)  # the position of the displayed prompt

    @property
    def outputs(self) -> list[Any]:
        """Components that the events may change."""
        return [
            self.head, self.answer, self.tiles, self.figures, self.positions, self.divergences, self.requests,
            self.provenance, self.history, *self.panel.outputs,
            self.prompts, self.prompt, self.order, self.chosen, self.run_id, self.shown, self.clock, *self.pager.parts,
        ]  # fmt: skip

    def _events(self) -> None:
        listing = [self.prompts, *self.pager.parts]
        inputs = [self.run_id, self.outcome, self.search, self.order, self.chosen]
        gr.on([self.outcome.change, self.search.change, on_choice(self.order)], self.filter, inputs, listing, **FOLLOWS)
        for button, step in self.pager.steps:
            button.click(partial(self.turn, step), [self.pager.page, *inputs], listing, **PRIVATE_EVENT)
        self.prompts.click(
            self.choose, [self.pager.page, *inputs], [*listing, self.prompt, self.chosen], **PRIVATE_EVENT
        )
        self.clock.tick(self.poll, [self.shown, self.pager.page, *inputs], self.outputs, **PRIVATE_EVENT)
        self.head.click(self.act, None, self.outputs, **PRIVATE_EVENT)

    def open(self, run_id: str, order: str = IN_ORDER) -> Updates:
        """Return the whole run with its first prompt selected, or that of lowest acceptance by the order ``worst``.

        Raises ``UnknownName`` if the run does not exist.
        """
        return self._open(run_id, order) | self.panel.open(self.repository.run(run_id))

    def _open(self, run_id: str, order: str) -> Updates:
        run = self.repository.run(run_id)
        order = WORST if order == WORST else IN_ORDER  # an address may hold anything
        first = self.repository.generations(run_id, worst_first=order == WORST, limit=1)
        selected = first[0].position if first else None
        prompt = {self.prompt: self._prompt(run, first[0])} if first else {}
        return (
            {self.run_id: run_id}
            | self._run(run)
            | self.list_prompts(0, run_id, _ALL, "", order, selected)
            | prompt
            | {self.order: order}
        )

    def act(self, event: gr.EventData, request: gr.Request) -> Updates:
        """Resume or delete the run, as its button asks for."""
        action, kind, id = str(event.act), str(event.kind), str(event.id)
        answer = {self.answer: actions.answered(self.repository, self.home, person_of(request), action, kind, id)}
        try:
            run = self.repository.run(id)
            return self._run(run) | self.panel.refresh(run) | answer
        except UnknownName:
            return self._gone() | answer
        except FsdError:
            return answer

    def _gone(self) -> Updates:
        """Return the page of a deleted run."""
        return (
            dict.fromkeys((self.tiles, self.provenance, self.prompts, self.prompt), "")
            | self.panel.gone()
            | {
                self.head: render("runs/run.html", "back"),
                self.figures: gr.Row(visible=False),
                self.clock: gr.Timer(active=False),
            }
        )

    @tells_errors("prompts")
    def filter(self, *inputs: Any) -> Updates:
        return self.list_prompts(0, *inputs)

    @tells_errors("prompts")
    def turn(self, step: int, page: int, *inputs: Any) -> Updates:
        return self.list_prompts(page + step, *inputs)

    @tells_errors("prompt")
    def choose(
        self, page: int, run_id: str, outcome: str, search: str, order: str, _: int | None, event: gr.EventData
    ) -> Updates:
        """Display the prompt whose row was clicked."""
        position = int(event.prompt)
        generations = self.repository.generations(run_id, position=position)
        if not generations:
            return self.list_prompts(page, run_id, outcome, search, order, None)
        return self.list_prompts(page, run_id, outcome, search, order, position) | {
            self.prompt: self._prompt(self.repository.run(run_id), generations[0]),
            self.chosen: position,
        }

    def poll(
        self, shown: Any, page: int, run_id: str, outcome: str, search: str, order: str, chosen: int | None
    ) -> Any:
        """Redraw an unfinished run if it has changed."""
        try:
            run = self.repository.run(run_id)
            if _state(run) == shown:
                return gr.skip()
            if chosen is None and run.prompts_done:
                return self._open(run_id, order)
            return self._run(run) | self.list_prompts(page, run_id, outcome, search, order, chosen)
        except FsdError:
            return gr.skip()  # the header says that the database does not answer

    def list_prompts(
        self, page: int, run_id: str, outcome: str, search: str, order: str, chosen: int | None
    ) -> Updates:
        """Return a page of the prompts."""
        filters: dict[str, Any] = {} if outcome == _ALL else {"outcome": outcome}
        if search.strip():
            filters["search"] = search
        total = self.repository.count_generations(run_id, **filters)
        page = self.pager.clamp(page, total)
        part = {"worst_first": order == WORST, "limit": PROMPTS_PER_PAGE, "offset": page * PROMPTS_PER_PAGE}
        generations = self.repository.generations(run_id, **filters, **part)
        html = prompts_html(run_id, generations, chosen, filtered=bool(filters))
        return {self.prompts: html} | self.pager.updates(page, total)

    def _run(self, run: RunView) -> Updates:
        target = self._target_alone(run)
        prompts = self.repository.prompts([run.id, *([target.id] if target else [])]) if run.metrics else {}
        run = refreshed(run, prompts.get(run.id, {}))
        slower = slowdown(run, target, prompts) if target else None
        session_positions = self.repository.sitting_positions(run.id)
        has_drafts = run.metrics is not None and bool(run.metrics.get("acceptance_at_position"))
        figures = (
            {
                self.positions: positions.draw(positions.info([run])),
                self.divergences: divergence.draw(divergence.info(run)),
                self.requests: requests.draw(requests.info([run])),
            }
            if has_drafts
            else {}
        )
        return figures | {
            self.head: header_html(run, self.mlflow_url),
            **({self.answer: ""} if run.ended else {}),  # an answer about a running run is outdated
            self.tiles: tiles_html(run)
            + sittings_html(run, session_positions)
            + (slower_html(slower) if slower else ""),
            self.figures: gr.Row(visible=has_drafts),
            self.provenance: provenance_html(run, session_positions, version_facts(self.repository, run.task)),
            self.shown: _state(run),
            # An ended run is polled until its MLflow mirror exists, whose link then appears.
            self.clock: gr.Timer(active=not run.ended or (self.mlflow_url is not None and run.mlflow_run_id is None)),
        }

    def _target_alone(self, run: RunView) -> RunView | None:
        """Return the target alone on the same prompts, if the run's experiment measured it."""
        if not run.metrics:
            return None
        return next(iter(on_same_prompts(run, company(self.repository, run, "autoregressive"))), None)

    def _prompt(self, run: RunView, generation: GenerationView) -> str:
        try:
            tokens = shown_tokens(run.pair, self.repository.trace(generation.id))
        except FsdError as error:
            return prompt_html(generation, None, str(error))
        if "".join(token.text for token in tokens) != generation.text:
            return prompt_html(
                generation, None, "The pair's tokenizer has changed since this run, so its tokens cannot be shown."
            )
        return prompt_html(generation, tokens)


def _state(run: RunView) -> list[Any]:
    """Return what a poll compares."""
    return [run.status, run.prompts_done, run.mlflow_run_id]
