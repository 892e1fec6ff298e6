"""Playground: one prompt, two to four settings, written side by side by the worker and shown token by token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.algorithms import ALGORITHMS, DRAFTER_CHOICES, about, decoding, divergence_title, threshold_range
from dashboard.components import QUIET, heading, legend, notice, show, tells_errors
from dashboard.lanes import MOST_SETTINGS, Job, Lane, comparison, payload
from dashboard.playground_html import lane_html, waiting_html
from fsd_core.benchmarks.arithmetic import held_out
from fsd_core.config import BASELINES, DIVERGENCES, SamplingConfig
from fsd_core.errors import DatabaseUnavailable, FsdError, InvalidSetting
from fsd_core.models.pairs import PAIRS

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository

POLL_SECONDS = 0.15
PRIORITY = 10
EXAMPLES = 8
LEAD = "See what a setting does to one text: every token is marked by how it came to be written."
HINT = "The bundled pair knows problems of the form “Question: … Answer:”. The text is sent as it stands here."
WRITING = "The settings take turns, each on its own clock."
DEFAULTS = ("speculative", "fsd-reducible", "autoregressive", "fsd")

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """The page's components and events, inside the Blocks context of the caller."""
    Playground(repository)


class SettingCard:
    """The controls of one setting. Those that its algorithm does not read are hidden."""

    def __init__(self, number: int, kind: str) -> None:
        divergence, fuzzy, drafts = "js", kind.startswith("fsd"), kind not in BASELINES
        with gr.Column(min_width=300, visible=number <= 2, elem_classes=["setting"]) as self.column:
            self.kind = gr.Dropdown(
                [(algorithm.title, name) for name, algorithm in ALGORITHMS.items()],
                value=kind,
                label=f"Setting {number}",
            )
            self.about = show(about(kind, divergence))
            with gr.Row(elem_classes=["dials"]):
                self.divergence = gr.Dropdown(
                    [(divergence_title(name), name) for name in DIVERGENCES],
                    value=divergence, label="Divergence", min_width=160, scale=2, visible=fuzzy,
                )  # fmt: skip
                self.threshold = gr.Number(
                    0.1, label="Threshold", info=threshold_range(divergence), step=0.01, min_width=110, visible=fuzzy
                )
                self.drafter = gr.Dropdown(
                    DRAFTER_CHOICES, value="draft-model", label="Drafter", min_width=140, scale=2, visible=drafts
                )
                self.length = gr.Number(5, label="Draft length", precision=0, min_width=96, visible=drafts)
        controls = [self.about, self.divergence, self.threshold, self.drafter, self.length]
        gr.on([self.kind.input, self.divergence.input], self.arrange, [self.kind, self.divergence], controls, **QUIET)

    def arrange(self, kind: str, divergence: str) -> Updates:
        """Shows what the algorithm reads, with the range of its threshold."""
        official, fuzzy, drafts = kind == "fsd-official", kind.startswith("fsd"), kind not in BASELINES
        return {
            self.about: about(kind, divergence),
            self.divergence: gr.Dropdown(visible=fuzzy and not official),
            self.threshold: gr.Number(visible=fuzzy, info=threshold_range("ag" if official else divergence)),
            self.drafter: gr.Dropdown(visible=drafts and not official),
            self.length: gr.Number(visible=drafts),
        }

    @property
    def inputs(self) -> list[Any]:
        """The arguments of :func:`dashboard.algorithms.decoding`, but for what all settings share."""
        return [self.kind, self.divergence, self.threshold, self.drafter, self.length]


class Playground:
    """The components as attributes; a method per event, which returns what it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Playground", LEAD))
        self._shared()
        with gr.Row(equal_height=True, elem_classes=["settings"]):
            self.cards = [SettingCard(i + 1, kind) for i, kind in enumerate(DEFAULTS)]
        with gr.Row(elem_classes=["actions"]):
            self.generate = gr.Button("Generate", variant="primary", scale=0, min_width=140)
            self.stop = gr.Button("Stop", variant="stop", scale=0, min_width=90, interactive=False)
            self.more = gr.Button("Add a setting", scale=0, min_width=130)
            self.fewer = gr.Button("Remove the last", scale=0, min_width=140, interactive=False)
        self.verdict = show(elem_id="verdict")
        with gr.Row(equal_height=False, elem_classes=["lanes"]):
            self.lanes: list[gr.HTML] = []
            self.columns = []
            for i in range(MOST_SETTINGS):
                with gr.Column(min_width=300, visible=i < 2) as column:
                    self.lanes.append(show(waiting_html(i + 1), elem_id=f"lane-{i + 1}"))
                self.columns.append(column)
        show(legend())
        self.number = gr.State(2)
        self.job = gr.State(None)
        self.clock = gr.Timer(POLL_SECONDS, active=False)
        self._events()

    def _shared(self) -> None:
        problems = held_out(EXAMPLES)
        with gr.Row(equal_height=False):
            with gr.Column(scale=3, min_width=320):
                self.prompt = gr.Textbox(
                    problems[0].prompt,
                    label="Prompt",
                    elem_id="prompt-text",
                    info=HINT,
                    lines=6,
                    max_lines=12,
                    max_length=20_000,
                )
            with gr.Column(scale=2, min_width=320):
                with gr.Row():
                    self.pair = gr.Dropdown(
                        [(spec.title, name) for name, spec in PAIRS.items()], value="bundled", label="Model pair",
                        min_width=150,
                    )  # fmt: skip
                    self.example = gr.Dropdown(
                        [(problem.question, problem.prompt) for problem in problems], value=None,
                        label="Example problem", min_width=150,
                    )  # fmt: skip
                with gr.Row(elem_classes=["sampling"]):
                    self.temperature = gr.Number(0, label="Temperature", info="0 is greedy", step=0.1, min_width=76)
                    self.top_k = gr.Number(0, label="Top-k", info="0 is off", precision=0, min_width=76)
                    self.top_p = gr.Number(1, label="Top-p", info="1 is off", step=0.05, min_width=76)
                    self.seed = gr.Number(0, label="Seed", info="Repeatable", precision=0, min_width=76)
                    self.longest = gr.Number(96, label="Tokens", info="At most", precision=0, min_width=76)

    @property
    def outputs(self) -> list[Any]:
        """What generating may change."""
        return [self.job, self.clock, self.generate, self.stop, self.verdict, *self.lanes]

    def _events(self) -> None:
        self.example.input(lambda prompt: prompt or gr.skip(), self.example, self.prompt, **QUIET)
        columns = [self.number, self.more, self.fewer, *self.columns, *(card.column for card in self.cards)]
        for button, step in ((self.more, 1), (self.fewer, -1)):
            button.click(self._resize(step), self.number, columns, **QUIET)
        shared = [self.temperature, self.top_k, self.top_p, self.seed, self.longest]
        cards = [part for card in self.cards for part in card.inputs]
        self.generate.click(self.start, [self.number, self.pair, self.prompt, *shared, *cards], self.outputs, **QUIET)
        self.stop.click(self.cancel, self.job, self.stop, **QUIET)
        self.clock.tick(self.poll, self.job, self.outputs, queue=False, trigger_mode="once", **QUIET)

    def _resize(self, step: int) -> Any:
        def resize(number: int) -> Updates:
            number = max(1, min(MOST_SETTINGS, number + step))
            columns = zip(self.columns, self.cards, strict=True)
            return {
                self.number: number,
                self.more: gr.Button(interactive=number < MOST_SETTINGS),
                self.fewer: gr.Button(interactive=number > 1),
                **{
                    c: gr.Column(visible=i < number)
                    for i, pair in enumerate(columns)
                    for c in (pair[0], pair[1].column)
                },
            }

        return resize

    @tells_errors(5 + MOST_SETTINGS)
    def start(self, number: int, pair: str, prompt: str, *values: Any) -> Updates:
        """Writes the job, and begins to follow it."""
        temperature, top_k, top_p, seed, longest, *cards = values
        if None in (temperature, top_k, top_p, seed, longest):
            raise InvalidSetting("A field of the sampling is empty: expected a number in each.")
        sampling = SamplingConfig.checked(temperature=temperature, top_k=top_k, top_p=top_p)
        size = len(self.cards[0].inputs)
        chosen = [cards[i * size : (i + 1) * size] for i in range(number)]
        decodings = [
            decoding(kind, divergence, threshold, drafter, length, sampling, longest)
            for kind, divergence, threshold, drafter, length in chosen
        ]
        job = self.repository.enqueue("playground", payload(pair, prompt, seed, decodings), PRIORITY)
        lanes = [Lane(decoding) for decoding in decodings]
        return {
            self.job: Job(job, lanes),
            self.clock: gr.Timer(active=True),
            self.generate: gr.Button(interactive=False),
            self.stop: gr.Button(interactive=True),
            self.verdict: self._waiting("queued"),
            **{html: lane_html(i + 1, lane) for i, (html, lane) in enumerate(zip(self.lanes, lanes, strict=False))},
        }

    @tells_errors(1)
    def cancel(self, job: Job | None) -> Any:
        """Asks the worker to stop; the page goes on following until it has."""
        if job is not None:
            self.repository.request_cancel(job.id)
        return gr.Button(interactive=False)

    def poll(self, job: Job | None) -> Any:
        """What the worker has written since the last look."""
        if job is None:
            return self._end(gr.skip())
        try:
            state = self.repository.job(job.id)  # before the chunks: an ended job writes no more
            changed = job.add(self.repository.chunks(job.id, job.after))
            begun = any(lane.tokens or lane.done for lane in job.lanes)
            waiting = notice(WRITING if len(job.lanes) > 1 else "Writing.") if begun else self._waiting(state.status)
        except DatabaseUnavailable as error:  # perhaps for a moment: goes on looking
            return {self.verdict: notice(str(error), "bad")}
        except FsdError as error:
            return self._end(notice(str(error), "bad"))
        updates = {self.lanes[i]: lane_html(i + 1, job.lanes[i]) for i in changed}
        if state.status in ("queued", "running"):
            if not changed and job.said == waiting:
                return gr.skip()
            job.said = waiting
            return updates | {self.job: job, self.verdict: waiting}
        if state.status == "finished":
            sentences = [notice(sentence) for sentence in comparison(job.lanes)]
            return updates | self._end("".join(sentences))
        if state.status == "cancelled":
            return updates | self._end(notice("Stopped. What was written until then is shown."))
        return updates | self._end(notice(state.error or "The worker could not do this.", "bad"))

    def _end(self, verdict: Any) -> Updates:
        return {
            self.job: None,
            self.clock: gr.Timer(active=False),
            self.generate: gr.Button(interactive=True),
            self.stop: gr.Button(interactive=False),
            self.verdict: verdict,
        }

    def _waiting(self, status: str) -> str:
        worker = self.repository.worker()
        if worker is None or not worker.alive:
            return notice(
                "The worker is not running, so nothing is written. Start it: python -m fsd_core worker", "warn"
            )
        if status == "running":
            return notice("The worker gets the models ready.")
        busy = worker.activity not in ("", "idle")
        return notice(
            "Waiting for the worker: it comes here after the prompt it is at." if busy else "Waiting for the worker."
        )
