"""Playground: one prompt decoded by the worker with up to four settings, displayed side by side and token by token."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr
from anyio.to_thread import run_sync

from dashboard.playground.kept_job import ASK, RECALL, REMEMBER, RESUMED
from dashboard.playground.playground_html import compared_html, lane_html, waiting_html, worker_notice
from dashboard.playground.prompt_form import BUNDLED, PromptForm
from dashboard.playground.setting_card import SettingCard
from dashboard.playground.setting_views import MOST_OUTPUT_PANELS, FollowedJob, OutputPanel, comparison, payload
from dashboard.playground.visitors import VISITORS_NOTE, Visitors
from dashboard.ui.beginnings import beginning, untouched
from dashboard.ui.choosing import FOLLOWS
from dashboard.ui.components import PRIVATE_EVENT, heading, kept, legend, notice, on_load, show, tells_errors
from dashboard.ui.option_fields import chosen
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import joined
from fsd_core.conditions import SHARED_DEVICE
from fsd_core.errors import DatabaseUnavailable, FsdError, UnknownName
from fsd_core.models.model_pairs import check_drafter
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.worker import gpu_billing

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import JobView

_POLL_SECONDS = 0.15
_PRIORITY = 10
_LEAD = "See what a setting does to one text. The colour of each token says how it was produced."
WRITING = "The settings take turns, and each is timed by itself."
DEFAULTS = ("speculative", "fsd-reducible", "autoregressive", "fsd")
_PAIR_DEFAULTS = ({"draft_length": "exact_length"}, {"threshold": "threshold", "draft_length": "draft_length"}, {}, {})
"""for each setting, the fields whose default depends on the pair, with the name of the default in ``Beginning``"""

ASKED_SECONDS = 10.0
"""how long a reloaded page waits for a job that it requested a moment before"""
_ID = re.compile("[0-9a-f]{32}")

Updates = dict[Any, Any]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    Playground(repository, Visitors(repository) if settings.demo else None, settings.executor)


def owner_of(request: gr.Request) -> str | None:
    """Return the owner of the texts that a request asks for, or ``None`` if nobody has signed in."""
    person = person_of(request)
    return person.name if person.known else None


class Playground:
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository, visitors: Visitors | None, executor: Executor) -> None:
        self.repository, self.visitors = repository, visitors
        self.executor: Executor = executor
        show(joined([heading("Playground", _LEAD), kept(VISITORS_NOTE) if visitors else ""]))
        if executor == "in-process":
            show(kept(SHARED_DEVICE))
        self.form = PromptForm()
        with gr.Row(equal_height=True, elem_classes=["settings"]):
            defaults = beginning(BUNDLED)
            self.cards = [
                SettingCard(i + 1, kind, **{name: getattr(defaults, value) for name, value in fields.items()})
                for i, (kind, fields) in enumerate(zip(DEFAULTS, _PAIR_DEFAULTS, strict=True))
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
            for i in range(MOST_OUTPUT_PANELS):
                with gr.Column(min_width=300, visible=i < 2) as column:
                    self.lanes.append(show(waiting_html(i + 1), elem_id=f"lane-{i + 1}"))
                self.columns.append(column)
        show(legend())
        self.number = gr.State(2)
        self.job = gr.State(None)
        self.begun = gr.Textbox(visible="hidden")  # the last job's id, for the browser to keep
        self.asked = gr.Textbox(visible="hidden")  # the id that the browser chose for the next one
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self._events()

    @property
    def outputs(self) -> list[Any]:
        """Components that generating may change."""
        return [self.job, self.begun, self.clock, self.generate, self.stop, self.verdict, *self.lanes]

    @property
    def sizes(self) -> list[Any]:
        """Components that adding or removing a setting changes."""
        return [self.number, self.more, self.fewer, *self.columns, *(card.column for card in self.cards)]

    def _events(self) -> None:
        for button, step in ((self.more, 1), (self.fewer, -1)):
            button.click(self._resize(step), self.number, self.sizes, **PRIVATE_EVENT)
        inputs = {self.number, *self.form.fields.values(), *(part for c in self.cards for part in c.fields.values())}
        asking = self.generate.click(None, None, self.asked, js=ASK)
        generating = asking.then(self.start, {self.asked, *inputs}, [self.asked, *self.outputs], **PRIVATE_EVENT)
        generating.success(None, [self.begun, self.asked], None, js=REMEMBER)
        pair_fields = [
            card.fields[name] for card, fields in zip(self.cards, _PAIR_DEFAULTS, strict=True) for name in fields
        ]
        self.form.another_pair(self.begin_anew, {self.form.pair, *pair_fields}, pair_fields, **FOLLOWS)
        self.stop.click(self.cancel, self.job, [self.stop, self.verdict], **PRIVATE_EVENT)
        self.clock.tick(self.poll, self.job, self.outputs, trigger_mode="once", **PRIVATE_EVENT)
        controls = [*self.form.fields.values(), *(part for card in self.cards for part in card.parts)]
        components = [*self.outputs, *self.sizes, *controls]
        opening = on_load(self.resume, [self.begun, self.asked], components, js=RECALL)
        opening.success(None, self.begun, None, js=RESUMED)

    def _resize(self, step: int) -> Any:
        def resize(number: int) -> Updates:
            return self._sized(max(1, min(MOST_OUTPUT_PANELS, number + step)))

        return resize

    def begin_anew(self, values: Updates) -> Updates:
        """Return the defaults measured for the selected pair, for fields that nobody has changed."""
        defaults = beginning(values[self.form.pair])
        return {
            card.fields[name]: getattr(defaults, value)
            for card, fields in zip(self.cards, _PAIR_DEFAULTS, strict=True)
            for name, value in fields.items()
            if untouched(value, values[card.fields[name]])
        }

    def _sized(self, number: int) -> Updates:
        columns = zip(self.columns, (card.column for card in self.cards), strict=True)
        return {
            self.number: number,
            self.more: gr.Button(interactive=number < MOST_OUTPUT_PANELS),
            self.fewer: gr.Button(interactive=number > 1),
            **{column: gr.Column(visible=i < number) for i, pair in enumerate(columns) for column in pair},
        }

    def start(self, values: Updates, request: gr.Request) -> Updates:
        """Queue the job and follow it, or return what is wrong. ``values`` are by component."""
        try:
            return self._start(values, request)
        except FsdError as error:
            return {self.verdict: notice(str(error), "bad"), self.asked: ""}

    def _start(self, values: Updates, request: gr.Request) -> Updates:
        pair, prompt, seed, sampling = self.form.values(values)
        number = int(values[self.number])
        decodings = [chosen(card.values(values) | sampling) for card in self.cards[:number]]
        for decoding in decodings:
            check_drafter(pair, decoding)
        verdict = worker_notice(self.repository.worker(), self.executor, "queued")
        id = values[self.asked] or ""
        id = id if _ID.fullmatch(id) else None
        if id and self.repository.find_job(id):
            return {self.verdict: notice("This has begun already: reload the page to see it.", "bad")}
        message = payload(pair, prompt, seed, decodings, owner_of(request))
        person, visit = person_of(request), str(request.session_hash)
        if self.visitors is not None:
            self.visitors.check(person, visit, pair, decodings)
        job = self.repository.enqueue(message, _PRIORITY, id)
        gpu_billing.note(job)
        if self.visitors is not None:
            self.visitors.began(person, visit, job)
        following = self._following(FollowedJob(job, [OutputPanel(decoding) for decoding in decodings]))
        return following | {self.begun: job, self.verdict: verdict}

    async def resume(self, last: str, asked: str, request: gr.Request) -> Updates:
        """Return the job that this browser started last, with its form, or nothing if it is unknown or somebody else's.

        ``asked`` is the id of a job that was requested a moment ago and has not been answered yet.
        """
        job_id = asked if _ID.fullmatch(asked or "") and await self._wait_for(asked) else last
        resumed = await run_sync(self._resume, job_id, request)
        return resumed | {self.begun: job_id if resumed else last}

    async def _wait_for(self, id: str) -> bool:
        """Return whether a job exists within ``ASKED_SECONDS``. Waiting holds no thread."""
        end = time.monotonic() + ASKED_SECONDS
        try:
            while await run_sync(self.repository.find_job, id) is None:
                if time.monotonic() > end:
                    return False
                await asyncio.sleep(0.1)
        except DatabaseUnavailable:
            return False
        return True

    def _resume(self, job_id: str, request: gr.Request) -> Updates:
        """Return the page that follows a job, or nothing if the job is unknown."""
        try:
            state, message = self._find_job(job_id, request)
            job = FollowedJob(job_id, [OutputPanel(decoding) for decoding in message.decodings])
        except FsdError:
            return {}
        progress = self.poll(job, request)
        if state.status == "finished" and not job.begun:
            return {}  # its text is no longer stored
        stop = {self.stop: gr.Button(interactive=not state.cancel_requested)}
        return self._restore(message, job.lanes) | self._following(job) | stop | progress

    def _find_job(self, job_id: str, request: gr.Request) -> tuple[JobView, PlaygroundJob]:
        """Return a job of the playground. Raises ``UnknownName`` for any other job and for somebody else's."""
        state = self.repository.job(job_id)
        if state.kind != PlaygroundJob.kind:
            raise UnknownName("There is no such job of the Playground.")
        message = PlaygroundJob.read(state.payload)
        if message.owner not in (None, owner_of(request)):
            raise UnknownName("This text is somebody else's: write one of your own.")
        return state, message

    def _following(self, job: FollowedJob) -> Updates:
        return {
            self.job: job,
            self.clock: gr.Timer(active=True),
            self.generate: gr.Button(interactive=False),
            self.stop: gr.Button(interactive=True),
            **{html: lane_html(i + 1, lane) for i, (html, lane) in enumerate(zip(self.lanes, job.lanes, strict=False))},
        }

    def _restore(self, message: PlaygroundJob, lanes: Sequence[OutputPanel]) -> Updates:
        """Return the form that requested a job."""
        form = self.form.restore(message.pair, message.prompt, message.seed, lanes[0].decoding)
        for card, lane in zip(self.cards, lanes, strict=False):
            form |= card.restore(lane.decoding)
        return form | self._sized(len(lanes))

    @tells_errors("verdict")
    def cancel(self, job: FollowedJob | None, request: gr.Request) -> Any:
        """Ask the worker to stop. The page follows until it has."""
        if job is not None:
            self._find_job(job.id, request)
            self.repository.request_cancel(job.id)
        return {self.stop: gr.Button(interactive=False)}

    def poll(self, job: FollowedJob | None, request: gr.Request) -> Any:
        """Return what the worker has written since the last poll."""
        if job is None:
            return self._end(gr.skip())
        try:
            state, _ = self._find_job(job.id, request)  # read before the chunks: an ended job writes no more
            changed = job.add(self.repository.chunks(job.id, job.after))
            if job.begun:
                waiting = notice(WRITING if len(job.lanes) > 1 else "Writing.")
            else:
                waiting = worker_notice(self.repository.worker(), self.executor, state.status)
        except DatabaseUnavailable as error:  # perhaps temporary, so keep polling
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
            return updates | self._end(compared_html(comparison(job.lanes)))
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
