"""Playground: one prompt, two to four settings, written side by side by the worker and shown token by token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.playground.playground_html import lane_html, waiting_html, worker_notice
from dashboard.playground.prompt_form import BUNDLED, PromptForm
from dashboard.playground.setting_card import SettingCard
from dashboard.playground.setting_views import MOST_SETTINGS, Job, SettingView, comparison, payload
from dashboard.ui.beginnings import beginning, untouched
from dashboard.ui.components import QUIET, heading, legend, notice, on_load, show, tells_errors
from dashboard.ui.option_fields import chosen
from fsd_core.errors import DatabaseUnavailable, FsdError
from fsd_core.models.model_pairs import check_drafter
from fsd_core.tracking.messages import PlaygroundJob

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.tracking.database.repository import Repository

POLL_SECONDS = 0.15
PRIORITY = 10
LEAD = "See what a setting does to one text. The colour of each token says how it was produced."
WRITING = "The settings take turns, and each is timed by itself."
ONE_TIMING = (
    '<p class="cmp-note">This is one timing of one text, and it varies from click to click. '
    '<a href="experiments">An experiment</a> measures the difference.</p>'
)
DEFAULTS = ("speculative", "fsd-reducible", "autoregressive", "fsd")
BEGUN = ({"draft_length": "exact_length"}, {"threshold": "threshold", "draft_length": "draft_length"}, {}, {})
"""of each setting, the fields that begin with another value for another pair, with the name of the value"""

# The browser keeps which job it began last: the tab first, since another tab may have begun another one since.
REMEMBER = """(job) => {
  try { for (const storage of [sessionStorage, localStorage]) if (job) storage.setItem('fsd-lab-job', job); }
  catch { /* a browser that keeps nothing */ }
}"""
RECALL = """() => {
  try { return sessionStorage.getItem('fsd-lab-job') || localStorage.getItem('fsd-lab-job') || ''; }
  catch { return ''; }
}"""

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """The page's components and events, inside the Blocks context of the caller."""
    Playground(repository)


class Playground:
    """The components as attributes; a method per event, which returns what it changes."""

    def __init__(self, repository: Repository) -> None:
        self.repository = repository
        show(heading("Playground", LEAD))
        self.form = PromptForm()
        with gr.Row(equal_height=True, elem_classes=["settings"]):
            begun = beginning(BUNDLED)
            self.cards = [
                SettingCard(i + 1, kind, **{name: getattr(begun, value) for name, value in fields.items()})
                for i, (kind, fields) in enumerate(zip(DEFAULTS, BEGUN, strict=True))
            ]
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
        self.begun = gr.Textbox(visible="hidden")  # the job's id, for the browser to keep
        self.clock = gr.Timer(POLL_SECONDS, active=False)
        self._events()

    @property
    def outputs(self) -> list[Any]:
        """What generating may change."""
        return [self.job, self.begun, self.clock, self.generate, self.stop, self.verdict, *self.lanes]

    @property
    def sizes(self) -> list[Any]:
        """What adding or removing a setting changes."""
        return [self.number, self.more, self.fewer, *self.columns, *(card.column for card in self.cards)]

    def _events(self) -> None:
        for button, step in ((self.more, 1), (self.fewer, -1)):
            button.click(self._resize(step), self.number, self.sizes, **QUIET)
        filled = {self.number, *self.form.fields.values(), *(part for c in self.cards for part in c.fields.values())}
        generating = self.generate.click(self.start, filled, self.outputs, **QUIET)
        generating.then(None, self.begun, None, js=REMEMBER)
        begun = [card.fields[name] for card, fields in zip(self.cards, BEGUN, strict=True) for name in fields]
        self.form.pair.input(self.begin_anew, {self.form.pair, *begun}, begun, **QUIET)
        self.stop.click(self.cancel, self.job, self.stop, **QUIET)
        self.clock.tick(self.poll, self.job, self.outputs, queue=False, trigger_mode="once", **QUIET)
        controls = [*self.form.fields.values(), *(part for card in self.cards for part in card.parts)]
        on_load(self.resume, self.begun, [*self.outputs, *self.sizes, *controls], js=RECALL)

    def _resize(self, step: int) -> Any:
        def resize(number: int) -> Updates:
            return self._sized(max(1, min(MOST_SETTINGS, number + step)))

        return resize

    def begin_anew(self, values: Updates) -> Updates:
        """What was measured of the pair that is chosen now, in fields that nobody has changed."""
        begun = beginning(values[self.form.pair])
        return {
            card.fields[name]: getattr(begun, value)
            for card, fields in zip(self.cards, BEGUN, strict=True)
            for name, value in fields.items()
            if untouched(value, values[card.fields[name]])
        }

    def _sized(self, number: int) -> Updates:
        columns = zip(self.columns, (card.column for card in self.cards), strict=True)
        return {
            self.number: number,
            self.more: gr.Button(interactive=number < MOST_SETTINGS),
            self.fewer: gr.Button(interactive=number > 1),
            **{column: gr.Column(visible=i < number) for i, pair in enumerate(columns) for column in pair},
        }

    @tells_errors(6 + MOST_SETTINGS)
    def start(self, values: Updates) -> Updates:
        """Writes the job, and begins to follow it. ``values``: by component."""
        pair, prompt, seed, sampling = self.form.values(values)
        number = int(values[self.number])
        decodings = [chosen(card.values(values) | sampling) for card in self.cards[:number]]
        for decoding in decodings:
            check_drafter(pair, decoding)
        verdict = worker_notice(self.repository.worker(), "queued")
        job = self.repository.enqueue(payload(pair, prompt, seed, decodings), PRIORITY)
        following = self._following(Job(job, [SettingView(decoding) for decoding in decodings]))
        return following | {self.begun: job, self.verdict: verdict}

    def resume(self, job_id: str) -> Any:
        """The job that this browser began last, with the form that asked for it; nothing where none is known."""
        try:
            state = self.repository.job(job_id)
            if state.kind != PlaygroundJob.kind:
                return gr.skip()
            request = PlaygroundJob.read(state.payload)
            job = Job(job_id, [SettingView(decoding) for decoding in request.decodings])
        except FsdError:
            return gr.skip()
        progress = self.poll(job)
        if state.status == "finished" and not job.begun:
            return gr.skip()  # what it wrote is no longer kept
        stop = {self.stop: gr.Button(interactive=not state.cancel_requested)}
        return self._restored(request, job.lanes) | self._following(job) | stop | progress

    def _following(self, job: Job) -> Updates:
        return {
            self.job: job,
            self.clock: gr.Timer(active=True),
            self.generate: gr.Button(interactive=False),
            self.stop: gr.Button(interactive=True),
            **{html: lane_html(i + 1, lane) for i, (html, lane) in enumerate(zip(self.lanes, job.lanes, strict=False))},
        }

    def _restored(self, request: PlaygroundJob, lanes: Sequence[SettingView]) -> Updates:
        """The form as it was when it asked for a job."""
        form = self.form.restore(request.pair, request.prompt, request.seed, lanes[0].decoding)
        for card, lane in zip(self.cards, lanes, strict=False):
            form |= card.restore(lane.decoding)
        return form | self._sized(len(lanes))

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
            if job.begun:
                waiting = notice(WRITING if len(job.lanes) > 1 else "Writing.")
            else:
                waiting = worker_notice(self.repository.worker(), state.status)
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
            sentences = "".join(notice(sentence) for sentence in comparison(job.lanes))
            return updates | self._end(sentences + (ONE_TIMING if sentences else ""))
        if state.status == "cancelled":
            return updates | self._end(notice("Stopped. The text written so far is shown."))
        return updates | self._end(notice(state.error or "The worker could not generate the texts.", "bad"))

    def _end(self, verdict: Any) -> Updates:
        return {
            self.job: None,
            self.clock: gr.Timer(active=False),
            self.generate: gr.Button(interactive=True),
            self.stop: gr.Button(interactive=False),
            self.verdict: verdict,
        }
