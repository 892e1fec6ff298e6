"""Custom tasks on the Experiments page: a file is chosen, checked, previewed and added."""

from __future__ import annotations

import base64
import binascii
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.own_tasks_html import checked_html, choice_html, lead_html, own_tasks_html
from dashboard.ui.components import PRIVATE_EVENT, notice, show
from dashboard.ui.signed_in import person_of
from dashboard.ui.templates import Html, script
from fsd_core.errors import FsdError, InvalidSetting
from fsd_core.roles import require
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import TaskFolder, checked_name, keep, own_tasks, suggested_name
from fsd_core.tasks.custom.reading import check
from fsd_core.tasks.custom.scorers import SCORERS

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

LARGEST_UPLOAD = 1_000_000
"""bytes; in base64 below the limit of a body (fsd_core/auth/middleware/bodies.py). The command line takes more."""
AS_THE_FILE_SAYS = ""
CHOOSING = script("experiments/own_tasks.js", LARGEST=LARGEST_UPLOAD)


class OwnTasksPanel:
    """The panel's components as attributes, and one method per event."""

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.folder = repository, TaskFolder(settings.tasks_folder)
        with gr.Accordion("Your own tasks", open=False):
            show(lead_html())
            with gr.Row():
                self.identifier = gr.Textbox(
                    label="Identifier", info="Small letters, digits, hyphens. Empty: as the file's.", max_length=40,
                    min_width=160,
                )  # fmt: skip
                scorers = [
                    ("As the file says", AS_THE_FILE_SAYS),
                    *((spec.title, spec.name) for spec in SCORERS.values()),
                ]
                self.scorer = gr.Dropdown(
                    scorers, value=AS_THE_FILE_SAYS, label="Scorer", info="Of every line.", min_width=160
                )
                self.title = gr.Textbox(label="Shown as", info="For people.", max_length=120, min_width=160)
            self.choice = show(choice_html(), js_on_load=CHOOSING, elem_id="own-file")
            self.answer = show(elem_id="own-answer")
            self.list = show(elem_id="own-tasks")

    def listen(self, after: Any, poll: dict[str, Any]) -> None:
        """Attach the event. ``after`` is called after a click, before the page is polled."""
        fields = [self.identifier, self.scorer, self.title]
        # A click during another's answer is not dropped but answered after it.
        self.choice.click(
            self.act, fields, self.answer, trigger_mode="multiple", concurrency_limit=1, **PRIVATE_EVENT
        ).then(after, **PRIVATE_EVENT).then(**poll)

    def act(self, identifier: str, scorer: str, title: str, event: gr.EventData, request: gr.Request) -> Html:
        """Check the uploaded file, or add it."""
        try:
            person = person_of(request)
            require(person, "author", "Adding a task")
            action, file = str(event.act), PurePath(str(event.file)[:300])
            checked = check(_uploaded(event), scorer or None)
            name = identifier.strip() or suggested_name(file.stem)
            if action != "add" or checked.problems:
                return checked_html(checked, name)
            stored = keep(self.repository, CustomTask.of(checked_name(name), checked, title.strip()), person.name)
        except FsdError as error:
            return notice(str(error), "bad")
        return notice(f"{stored.full_name} is in the list of tasks, with {stored.prompts:,} prompts.")

    def tasks(self) -> tuple[list[CustomTask], Html]:
        """Return the latest versions and their list as HTML, after importing changes in the folder."""
        refused = self.folder.take_in(self.repository)
        return own_tasks(self.repository), own_tasks_html(self.repository.task_versions(), refused)


def _uploaded(event: gr.EventData) -> bytes:
    """Return the bytes of the uploaded file. Raises ``InvalidSetting``."""
    size, data = event.size, event.data
    if not event.file:
        raise InvalidSetting("No file is chosen: choose one of JSON Lines first.")
    if not isinstance(size, int) or size < 0 or not isinstance(data, str):
        raise InvalidSetting("The file could not be read: choose it again.")
    if max(size, len(data) * 3 // 4 - 2) > LARGEST_UPLOAD:
        raise InvalidSetting(
            f"The file has {size:,} bytes: expected at most {LARGEST_UPLOAD:,} here. `fsd-lab task add` and the folder "
            "of tasks take larger ones."
        )
    try:
        return base64.b64decode(data, validate=True)
    except binascii.Error:
        raise InvalidSetting("The file arrived damaged: choose it again.") from None
