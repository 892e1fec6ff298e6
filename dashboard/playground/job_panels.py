"""The texts of a job side by side, what is said of them, and the prompt kept as a task."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.playground.followed_jobs import FollowedJobs, owner_of
from dashboard.playground.paying import slow_prompt
from dashboard.playground.playground_html import (
    added_html,
    compared_html,
    followed_html,
    output_panel_html,
    waiting_html,
    worker_notice,
)
from dashboard.playground.setting_views import MOST_OUTPUT_PANELS, FollowedJob, comparison, differences
from dashboard.ui.components import legend, notice, page_note, show
from dashboard.ui.question import Act, Asked, Updates, digest
from dashboard.ui.templates import Html, script
from dashboard.ui.view import View
from fsd_core.errors import FsdError
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.tasks.custom.adding import add_prompt

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.database.repository import Repository

WRITING = "The settings take turns, and each is timed by itself."
FORMER = "These texts are of the form as it was: it has been changed since."
OWN_TASK = "my-prompts"
"""the task to which a prompt is added unless another one is named"""


class JobPanels:
    """The components as attributes."""

    def __init__(self, repository: Repository, jobs: FollowedJobs, executor: Executor) -> None:
        self.repository, self.jobs = repository, jobs
        self.executor: Executor = executor
        self.verdict = show(elem_id="verdict")
        self.former = show(elem_id="former")
        with gr.Row(equal_height=False, elem_classes=["lanes"]):
            self.panels: list[gr.HTML] = []
            self.columns = []
            for i in range(MOST_OUTPUT_PANELS):
                with gr.Column(min_width=300, visible=i < 2) as column:
                    self.panels.append(show(waiting_html(i + 1), elem_id=f"lane-{i + 1}"))
                self.columns.append(column)
        self.legend = show()
        with gr.Row(visible=False, elem_classes=["keep-prompt"]) as self.keep_prompt:
            self.task = gr.Textbox(
                OWN_TASK, label="Task of your own", info="It begins with this prompt if it is new.", max_length=40,
                min_width=170,
            )  # fmt: skip
            self.reference = gr.Textbox(
                label="Expected answer", info="Only if the task is scored.", max_length=10_000, min_width=170
            )
            self.add = gr.Button("Add the prompt to the task", scale=0, min_width=250)
        self.added = show(elem_id="added")
        self.followed = show(js_on_load=script("playground/remember.js"), elem_id="followed")

    @property
    def built(self) -> dict[str, str]:
        """Digests of what is shown before the first answer."""
        texts = {f"text {i + 1}": digest(None, None) for i in range(MOST_OUTPUT_PANELS)}
        return texts | {"keep prompt": digest(False, ""), "legend": digest(False)}

    @property
    def outputs(self) -> list[Any]:
        """Components that :meth:`redraw` may change."""
        return [self.verdict, self.former, *self.panels, self.followed, self.keep_prompt, self.added, self.legend]

    def listen(self, view: View) -> None:
        """Let the prompt be kept."""
        view.by_script(self.add.click, [self.task, self.reference], script("playground/keep_prompt.js"))
        view.act("keep prompt", self.add_prompt, self.added)

    def add_prompt(self, act: Act, asked: Asked) -> Updates:
        """Add the prompt of a job to a custom task."""
        job = self.jobs.read(act["job"], owner_of(asked))
        task = add_prompt(
            self.repository, act["task"].strip(), job.message.prompt, act["reference"].strip() or None,
            asked.person.name,
        )  # fmt: skip
        return {self.added: added_html(task.name, task.prompts, job.id)}

    def redraw(
        self, asked: Asked, job: FollowedJob | None, form: list[Any], differs: Callable[[PlaygroundJob], bool]
    ) -> Updates:
        """Return what differs of the texts and of the sentences on them.

        ``form``: what the form holds. ``differs``: whether it asks for something else than a job did.
        """
        id, updates = job.id if job else "", Updates()
        finished = job is not None and job.status == "finished"
        marks = cache(lambda: differences(job.panels) if job and finished else [])
        for i, html in enumerate(self.panels):
            panel = job.panels[i] if job and i < len(job.panels) else None
            state = (panel.after, *(["compared"] if finished else [])) if panel else None
            if not asked.differs(f"text {i + 1}", panel and id, state):
                continue
            if job and panel:
                pieces = marks()[i] if finished else []
                updates[html] = output_panel_html(i + 1, panel, job.message.pair, pieces)
            else:
                updates[html] = waiting_html(i + 1)
        if job and asked.differs("followed", id):
            updates[self.followed] = followed_html(id)
        written = job if job and job.has_output else None
        if asked.differs("legend", bool(written)):
            updates[self.legend] = legend() if written else ""
        keeps = bool(written) and asked.person.may("author")
        if asked.differs("keep prompt", keeps, id):
            updates |= {self.keep_prompt: gr.Row(visible=keeps), self.added: ""}
        if asked.differs("former", bool(written), id, form):
            former = written is not None and differs(written.message)
            updates[self.former] = page_note(FORMER) if former else ""
        running = job if job and not job.ended else None
        waiting = self._waiting(running) if running else ""
        if asked.differs("verdict", id, waiting or (job and (job.status, job.after))):
            updates[self.verdict] = waiting or (_ended_html(job) if job else "")
        return updates

    def failed(self, asked: Asked, error: FsdError) -> Updates:
        """Return why a job cannot be shown."""
        return {self.verdict: notice(str(error), "bad")} if asked.differs("verdict", str(error)) else {}

    def _waiting(self, job: FollowedJob) -> Html:
        if job.has_output:
            return notice(WRITING if len(job.panels) > 1 else "Writing.")
        return worker_notice(self.repository.worker(), self.executor, job.status)


def _ended_html(job: FollowedJob) -> Html:
    """Return what there is to say of a job that has ended."""
    if job.status == "finished":
        marked = any(panel.ids != job.panels[0].ids for panel in job.panels if panel.tokens)
        sentences = [*filter(None, [slow_prompt(job.panels)]), *comparison(job.panels)]
        return compared_html(sentences, job.id, marked=marked)
    if job.status == "cancelled":
        return notice("Stopped. The text written so far is shown.")
    return notice(job.error or "The worker could not generate the texts.", "bad")
