"""Experiments: several settings on the same prompts, started here, done by the worker, watched while they run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.experiment_list import OPEN, PER_PAGE, experiments_html, worker_notice
from dashboard.experiments.sweep_form import SweepForm, build_sweep, size_line
from dashboard.ui import actions
from dashboard.ui.algorithms import (
    DRAFTER_CHOICES,
    PLAIN,
    SEVERAL,
    SHAPE_CHOICES,
    TREE_TOKENS,
    TUNED,
    divergence_title,
)
from dashboard.ui.components import QUIET, escape, heading, notice, on_load, section, show
from dashboard.ui.polled import Polled
from fsd_core.benchmarks.tasks import TASKS
from fsd_core.config import CHAIN, DIVERGENCES, RULES
from fsd_core.errors import FsdError
from fsd_core.models.pairs import PAIRS

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository

LEAD = "Several settings on the same prompts, taking turns. The worker goes on whether this page is open or not."
POLL_SECONDS = 1.0
RULE_CHOICES = [(RULES[kind].title, kind) for kind in TUNED]
BASELINE_CHOICES = [(RULES[kind].title, kind) for kind in PLAIN]
SEVERAL_CHOICES = [(RULES[kind].title, kind) for kind in SEVERAL]
THRESHOLD_HINT = (
    "A list such as 0.05, 0.1, off or a range start:stop:count. Useful values differ by divergence, pair and task. "
    "The published experiments' “JS” was computed as ag: their thresholds, such as 0.4, do not carry over to js."
)


def build(repository: Repository, settings: Settings) -> None:
    """The page's components and events, inside the Blocks context of the caller."""
    ExperimentsPage(repository, settings.home)


class ExperimentsPage:
    """The components as attributes; a method per event."""

    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository, self.home = repository, home
        self.latest = Polled(self._latest, POLL_SECONDS / 2)
        show(heading("Experiments", LEAD))
        self.worker = show()
        with gr.Row(equal_height=False):
            with gr.Column(scale=5, min_width=340):
                self.fields = self._form()
                self.size = show(elem_classes=["exp-size"])
                self.start = gr.Button("Start experiment", variant="primary")
                self.answer = show()
            with gr.Column(scale=6, min_width=340):
                show(section("Progress and history"))
                self.list = gr.HTML(
                    apply_default_css=False, js_on_load=actions.CLICKS, elem_classes=["fsd-html"], elem_id="experiments"
                )
                self.older = gr.Button("Show older experiments", size="sm", visible=False)
        self.shown = gr.State(("", ""))
        self.limit = gr.State(PER_PAGE)
        self._events()

    def _form(self) -> dict[str, Any]:
        pairs = [(spec.title, name) for name, spec in PAIRS.items()]
        tasks = [(task.title, name) for name, task in TASKS.items() if task.available]
        divergence_choices = [(divergence_title(name), name) for name in DIVERGENCES]
        with gr.Group():
            name = gr.Textbox(label="Name", placeholder="What this experiment is to find out", max_length=120)
            with gr.Row():
                pair = gr.Dropdown(pairs, value=pairs[0][1], label="Model pair", min_width=160)
                task = gr.Dropdown(tasks, value=tasks[0][1], label="Task", min_width=160)
            baselines = gr.CheckboxGroup(BASELINE_CHOICES, value=["autoregressive", "speculative"], label="Baselines")
            rules = gr.CheckboxGroup(RULE_CHOICES, value=["fsd-reducible"], label="Algorithms")
            with gr.Row():
                several = gr.Dropdown(
                    SEVERAL_CHOICES, value=[], multiselect=True, label="Verifiers of several drafts", min_width=220,
                    info="Lossless; meant for sampling (see Drafting and sampling for the temperature)",
                )  # fmt: skip
                drafts = gr.Number(3, label="Drafts per position", info="SpecHub: 2", precision=0, min_width=110)
            divergences = gr.Dropdown(divergence_choices, value=["js"], multiselect=True, label="Divergences")
            thresholds = gr.Textbox("0.02, 0.05, 0.1, 0.2, 0.4", label="Thresholds", info=THRESHOLD_HINT)
            with gr.Row():
                limit = gr.Number(50, label="Prompts", precision=0, min_width=110)
                seeds = gr.Textbox("0", label="Seeds", min_width=110)
                max_new_tokens = gr.Number(128, label="Longest answer", precision=0, min_width=110)
        with gr.Accordion("Drafting and sampling", open=False):
            with gr.Row():
                drafters = gr.Dropdown(
                    DRAFTER_CHOICES, value=["draft-model"], multiselect=True, label="Drafters", min_width=160
                )
                draft_length = gr.Number(5, label="Draft length γ", precision=0, min_width=110)
            with gr.Row():
                shapes = gr.CheckboxGroup(
                    SHAPE_CHOICES, value=[CHAIN], label="Draft shapes", min_width=160,
                    info="A tree is as deep as the draft length",
                )  # fmt: skip
                tree_width = gr.Number(10, label="Tree width", precision=0, min_width=96)
                tree_tokens = gr.Number(TREE_TOKENS, label="Tree tokens", precision=0, min_width=96)
            with gr.Row():
                temperature = gr.Number(0, label="Temperature", info="0 is greedy", step=0.1, min_width=110)
                top_k = gr.Number(0, label="Top-k", info="0 is off", precision=0, min_width=110)
                top_p = gr.Number(1, label="Top-p", info="1 is off", step=0.05, min_width=110)
            batch = gr.Number(
                1, label="Texts side by side", precision=0, min_width=110,
                info="1 measures each text alone; more finish sooner, and no text has a time of its own",
            )  # fmt: skip
        return {
            "pair": pair, "task": task, "limit": limit, "baselines": baselines, "rules": rules,
            "divergences": divergences, "thresholds": thresholds, "drafters": drafters, "draft_length": draft_length,
            "shapes": shapes, "tree_width": tree_width, "tree_tokens": tree_tokens,
            "temperature": temperature, "top_k": top_k, "top_p": top_p, "max_new_tokens": max_new_tokens,
            "seeds": seeds, "several": several, "drafts": drafts, "batch": batch, "name": name,
        }  # fmt: skip

    def _events(self) -> None:
        fields = list(self.fields.values())
        # Without triggers: when the page opens, and whenever a field changes.
        size = [self.size, self.start]
        gr.on(fn=self.measure, inputs=fields, outputs=size, trigger_mode="always_last", queue=False, **QUIET)
        poll: dict[str, Any] = {
            "fn": self.poll, "inputs": [self.limit, self.shown],
            "outputs": [self.worker, self.list, self.older, self.shown], **QUIET,
        }  # fmt: skip
        gr.Timer(POLL_SECONDS).tick(queue=False, trigger_mode="once", **poll)
        on_load(self.poll, poll["inputs"], poll["outputs"])
        self.start.click(
            self.begin, fields, [self.answer, self.fields["name"]], trigger_mode="once", **QUIET
        ).then(**poll)  # fmt: skip
        self.list.click(self.act, None, self.answer, **QUIET).then(**poll)
        self.older.click(lambda limit: limit + PER_PAGE, self.limit, self.limit, **QUIET).then(**poll)

    # --- events --------------------------------------------------------------------------------------------------

    def measure(self, *values: Any) -> tuple[str, Any]:
        """How much work the form asks for, or what is wrong with it."""
        try:
            sweep = build_sweep(self._filled(values))
        except FsdError as error:
            return notice(str(error), "warn"), gr.Button(interactive=False)
        return escape(size_line(sweep)), gr.Button(interactive=True)

    def begin(self, *values: Any) -> tuple[str, str]:
        """Writes the experiment and its job; the worker finds them. The name is emptied for the next one."""
        form = self._filled(values)
        try:
            sweep = build_sweep(form)
            self.repository.create_experiment(sweep)
            self.latest.forget()
        except FsdError as error:
            return notice(str(error), "bad"), form.name
        return notice(f"Added: {size_line(sweep)}."), ""

    def act(self, event: gr.EventData) -> str:
        """Cancels, resumes or deletes the experiment whose button was clicked."""
        answer = actions.answered(self.repository, self.home, str(event.act), str(event.kind), str(event.id))
        self.latest.forget()
        return answer

    def poll(self, limit: int, shown: tuple[str, str]) -> tuple[Any, Any, Any, Any]:
        """The list and the worker's state; nothing where nothing has changed."""
        try:
            worker, experiments, more = self.latest(limit)
        except FsdError as error:
            worker, experiments, more = notice(str(error), "bad"), shown[1], False
        if (worker, experiments) == shown:
            return gr.skip(), gr.skip(), gr.skip(), gr.skip()
        return worker, experiments, gr.Button(visible=more), (worker, experiments)

    def _latest(self, limit: int) -> tuple[str, str, bool]:
        """The worker's state and the list, as HTML, and whether there are older experiments."""
        found = self.repository.experiments(limit=limit + 1, offset=0)
        waiting = any(experiment.status in OPEN for experiment in found)
        return worker_notice(self.repository.worker(), waiting), experiments_html(found[:limit]), len(found) > limit

    def _filled(self, values: tuple[Any, ...]) -> SweepForm:
        return SweepForm(**dict(zip(self.fields, values, strict=True)))
