"""Playground: one prompt decoded by the worker with up to four settings, displayed side by side and token by token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.playground.followed_jobs import FollowedJobs, owner_of
from dashboard.playground.job_panels import JobPanels
from dashboard.playground.paying import slow_pair
from dashboard.playground.prompt_form import BUNDLED, PromptForm
from dashboard.playground.requested_job import check_choices, differs, requested
from dashboard.playground.setting_card import SettingCard, default_cards, fill_defaults
from dashboard.playground.setting_views import MOST_OUTPUT_PANELS, FollowedJob
from dashboard.playground.visitors import VISITORS_NOTE, Visitors
from dashboard.ui.components import PRIVATE_EVENT, heading, notice, page_note, show
from dashboard.ui.pair_field import pair_badges, pair_choices, redraw_pairs
from dashboard.ui.polled import Polled
from dashboard.ui.question import Act, Asked, Updates, Values, digest
from dashboard.ui.templates import joined, script
from dashboard.ui.view import View
from fsd_core.conditions import SHARED_DEVICE
from fsd_core.errors import DatabaseUnavailable, FsdError, Refused
from fsd_core.roles import same_name
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.worker import gpu_billing
from fsd_core.worker.pair_names import check_offered

if TYPE_CHECKING:
    from fsd_core.settings import Executor, Settings
    from fsd_core.storage.database.repository import Repository

_PAIRS_SECONDS = 1.0
_MEASURED_SECONDS = 10.0
_POLL_SECONDS = 0.15
_PRIORITY = 10
_LEAD = "See what a setting does to one text. The colour of each token says how it was produced."
_BOUNDS = {
    1: "The last setting stays: there is nothing to generate without one.",
    MOST_OUTPUT_PANELS: f"These are all: at most {MOST_OUTPUT_PANELS} settings take turns.",
}
"""why a setting can be neither added nor removed, by the number of settings"""
_ID = re.compile("[0-9a-f]{32}")


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    Playground(repository, Visitors(repository) if settings.demo else None, settings.executor)


class Playground:
    """The page's components as attributes, and what it shows of a job.

    ``asked.shown["job"]`` is the job that the browser shows, or an empty text.
    """

    def __init__(self, repository: Repository, visitors: Visitors | None, executor: Executor) -> None:
        self.repository, self.visitors, self.jobs = repository, visitors, FollowedJobs(repository)
        self.executor: Executor = executor
        self.pairs = Polled(lambda: pair_choices(repository, pair_badges(repository)), _PAIRS_SECONDS)
        self.slow_pair = Polled(lambda pair: slow_pair(repository, pair), _MEASURED_SECONDS)
        show(joined([heading("Playground", _LEAD), page_note(VISITORS_NOTE) if visitors else ""]))
        if executor == "in-process":
            show(page_note(SHARED_DEVICE))
        self.form = PromptForm()
        with gr.Row(equal_height=True, elem_classes=["settings"]):
            self.cards = default_cards(BUNDLED)
        with gr.Row(elem_classes=["actions"]):
            self.generate = gr.Button("Generate", variant="primary", scale=0, min_width=140, elem_id="generate")
            self.stop = gr.Button("Stop", variant="stop", scale=0, min_width=90, interactive=False)
            self.more = gr.Button("Add a setting", scale=0, min_width=130)
            self.fewer = gr.Button("Remove the last", scale=0, min_width=140)
            self.bounds = show(elem_classes=["bounds"])
        self.pays = show(elem_id="pays")
        self.texts = JobPanels(repository, self.jobs, executor)
        self.number = gr.Number(2, visible="hidden")  # of settings
        self.owner = gr.Textbox(visible="hidden")  # whose page it is
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self._built = {"pair": digest(BUNDLED), "buttons": digest(False, False), "number": digest(2, 2)}
        self._built |= {"pays": digest("")} | self.form.built | self.texts.built
        self._built |= {
            card.title: digest(card.selected({part: part.value for part in card.fields.values()}))
            for card in self.cards
        }
        """what the page shows before the first answer"""
        self._listen()

    @property
    def fields(self) -> list[Any]:
        """What a person fills in."""
        return [
            *self.form.fields.values(),
            self.number,
            *(part for card in self.cards for part in card.fields.values()),
        ]

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` may change."""
        return [
            self.form.pair, self.form.example, self.form.prompt, self.form.sampling, self.pays,
            *(part for card in self.cards for part in card.outputs), self.generate, self.stop, self.more, self.fewer,
            self.bounds, *self.texts.columns, *self.texts.outputs, self.clock,
        ]  # fmt: skip

    def _listen(self) -> None:
        for button, step in ((self.more, 1), (self.fewer, -1)):
            js = script("playground/step.js", STEP=step, MOST=MOST_OUTPUT_PANELS)
            button.click(None, self.number, self.number, js=js, trigger_mode="multiple", **PRIVATE_EVENT)
        view = View(self.texts.verdict, self.fail)
        asking = [*self.fields, self.owner]
        view.button(self.generate, "generate", asking, self.start, js=script("playground/generate.js"))
        view.by_script(self.stop.click, [], script("playground/stop.js"))
        view.act("stop", self.cancel)
        self.texts.listen(view)
        view.on(self.clock.tick)
        view.listen(self.redraw, self.fields, self.outputs, [self.owner], kept=asking)

    def start(self, values: Values, asked: Asked) -> None:
        """Begin the job of an act, once. Raises ``FsdError`` with what is wrong."""
        if not self._is_own(values[self.owner], asked):
            return
        if self.repository.find_job(values.key) is None:
            self._begin(values, asked)
        asked.shown["job"] = values.key

    def _begin(self, values: Values, asked: Asked) -> None:
        check_offered(self.repository, values[self.form.pair])
        check_choices((part for part in self.fields if part is not self.form.pair), values)
        message = requested(self.form, self._chosen_cards(values), values, owner_of(asked))
        if self._is_open(asked.shown.get("job"), asked):
            raise Refused("The texts of this page are still being written: stop them, or wait for their end.")

        def enqueue() -> str:
            return self.repository.enqueue(message, _PRIORITY, values.key)

        if self.visitors is None:
            enqueue()
        else:
            visit = str(asked.request.session_hash)
            self.visitors.begin(asked.person, visit, message.pair, message.decodings, enqueue)
        gpu_billing.remember_requester(values.key)

    def _chosen_cards(self, values: Mapping[Any, Any]) -> list[SettingCard]:
        """Return the cards of the settings that take turns."""
        return self.cards[: _clamped(values[self.number])]

    def _is_open(self, id: str | None, asked: Asked) -> bool:
        try:
            return bool(id) and not self.jobs.read(id, owner_of(asked)).ended
        except FsdError:
            return False

    def cancel(self, act: Act, asked: Asked) -> None:
        """Ask the worker to stop a job. The page follows it until it has."""
        self.jobs.read(act["job"], owner_of(asked))
        self.repository.request_cancel(act["job"])

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error in place of what was asked for."""
        return {self.texts.verdict: notice(str(error), "bad")}

    def redraw(self, asked: Asked) -> Updates:
        """Return what differs of the form and of the job that the page follows."""
        typed = asked.reloaded and self._is_own(asked[self.owner], asked)
        if asked.reloaded and not typed:
            for field in self.fields:
                asked.fill(field, field.value)
        asked.fill(self.owner, owner_of(asked) or "")
        opening, chosen = "job" not in asked.shown, "pair" in asked.shown
        asked.shown |= {} if asked.shown else self._built
        job, failed = None, None
        try:
            if opening:
                asked.shown["job"] = self._remembered(asked)
            job = self._followed(asked)
        except FsdError as error:
            failed = error
        if opening and job and not typed:
            self._restore_form(asked, job.message)
        form = self._redraw_form(asked, job, chosen=chosen)
        return form | (self._redraw_failure(asked, failed) if failed else self._redraw_job(asked, job))

    @staticmethod
    def _is_own(owner: str, asked: Asked) -> bool:
        """Return whether a form is the asking person's. Somebody else may have signed in since it was filled in."""
        return not owner or same_name(owner, owner_of(asked) or "")

    def _remembered(self, asked: Asked) -> str:
        """Return the job that this browser showed last, or an empty text if it is unknown or somebody else's."""
        id = asked.wanted("job")
        if not isinstance(id, str) or not _ID.fullmatch(id):
            return ""
        try:
            job = self.jobs.read(id, owner_of(asked))
        except DatabaseUnavailable:
            raise
        except FsdError:
            return ""
        return "" if job.status == "finished" and not job.has_output else id  # its text is no longer stored

    def _followed(self, asked: Asked) -> FollowedJob | None:
        id = asked.shown["job"]
        return self.jobs.read(id, owner_of(asked)) if id else None

    def _restore_form(self, asked: Asked, message: PlaygroundJob) -> None:
        """Fill in the form that requested a job."""
        decodings = message.decodings
        self.form.restore(asked, message, decodings[0])
        asked.fill(self.number, len(decodings))
        for card, decoding in zip(self.cards, decodings, strict=False):
            card.restore(asked, decoding)

    def _redraw_form(self, asked: Asked, job: FollowedJob | None, *, chosen: bool) -> Updates:
        """Return what differs of the form. If the person has ``chosen`` the pair, its defaults are filled in."""
        pair = asked.current(self.form.pair)
        updates = self.form.redraw(asked, pair, chosen=chosen)
        if updates and chosen and any(pair == name for _, name in self.pairs()):
            fill_defaults(self.cards, asked, pair)
        updates |= redraw_pairs(asked, self.form.pair, self.pairs())
        if asked.differs("pays", slow := self.slow_pair(pair)):
            updates[self.pays] = notice(slow, "warn") if slow else ""
        values = self._values(asked)
        for card in self.cards:
            updates |= card.redraw(asked, values)
        number = _clamped(values[self.number])
        texts = max(number, len(job.panels)) if job else number
        if asked.differs("number", number, texts):
            updates |= {column: gr.Column(visible=i < texts) for i, column in enumerate(self.texts.columns)}
            updates |= {card.column: gr.Column(visible=i < number) for i, card in enumerate(self.cards)}
            updates |= {
                self.more: gr.Button(interactive=number < MOST_OUTPUT_PANELS),
                self.fewer: gr.Button(interactive=number > 1),
                self.bounds: page_note(_BOUNDS[number]) if number in _BOUNDS else "",
            }
        return updates

    def _values(self, asked: Asked) -> dict[Any, Any]:
        """Return the values of the fields as this answer leaves them."""
        return {field: asked.current(field) for field in self.fields}

    def _redraw_job(self, asked: Asked, job: FollowedJob | None) -> Updates:
        """Return what differs of the texts, and of the buttons."""
        values = self._values(asked)
        updates = self.texts.redraw(
            asked, job, list(values.values()),
            lambda message: differs(self.form, self._chosen_cards(values), values, message),
        )  # fmt: skip
        return updates | self._redraw_buttons(asked, job)

    def _redraw_failure(self, asked: Asked, error: FsdError) -> Updates:
        """Return why the job cannot be shown. A database that does not answer may do so at the next tick."""
        updates = self.texts.failed(asked, error)
        return updates if isinstance(error, DatabaseUnavailable) else updates | self._redraw_buttons(asked, None)

    def _redraw_buttons(self, asked: Asked, job: FollowedJob | None) -> Updates:
        running, stoppable = (not job.ended, not (job.ended or job.cancel_requested)) if job else (False, False)
        if not asked.differs("buttons", running, stoppable):
            return {}
        return {
            self.clock: gr.Timer(active=running),
            self.generate: gr.Button(interactive=not running),
            self.stop: gr.Button(interactive=stoppable),
        }


def _clamped(number: Any) -> int:
    """Return a possible number of settings."""
    return int(min(max(number, 1), MOST_OUTPUT_PANELS)) if isinstance(number, int | float) else 2
