"""Custom tasks on the Experiments page: a file is chosen or dropped, checked, previewed and added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import PurePath
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.experiments.custom_tasks_html import (
    checked_html,
    custom_tasks_html,
    drop_field_html,
    file_field_html,
    lead_html,
)
from dashboard.ui.components import notice, show
from dashboard.ui.question import Act, Asked, Updates, count_in
from dashboard.ui.templates import Html, script
from dashboard.ui.uploads import UPLOAD, uploaded
from dashboard.ui.view import View
from fsd_core.calibration.request import margins_for
from fsd_core.formatting import count
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.field_guess import guess
from fsd_core.tasks.custom.lookup import TaskFolder, checked_name, keep, latest_custom_tasks, suggested_name
from fsd_core.tasks.custom.reading import CheckedFile, check
from fsd_core.tasks.custom.scorers import SCORERS
from fsd_core.tasks.custom.shapes import FieldNames
from fsd_core.tasks.custom.similar import grouped, noted
from fsd_core.tasks.suitable import form_hint, formless

if TYPE_CHECKING:
    from dashboard.experiments.experiment_form import ExperimentForm
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

CHOSEN_BY_ADDING = ("task", "limit")
"""fields of the experiment that a task sets when it is added"""
AS_THE_FILE_SAYS = ""
_OTHERWISE = "If that is wrong, name the fields and the scorer under “Your own tasks”."
_EXPECTED = "one of JSON Lines, JSON or Parquet"
_LARGER = "`fsd-lab task add` and the folder of tasks take"


class CustomTasksPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``form`` gets a task that was added, and ``forget`` is called then."""
        self.repository, self.folder = repository, TaskFolder(settings.tasks_folder)
        self.form, self._forget = form, forget
        with form.beside_task:
            self.drop_field = show(drop_field_html(), js_on_load=UPLOAD, elem_id="own-drop")
        with form.below_task:
            self.form_hint = show()
            self.formless = gr.Textbox("0", visible="hidden")  # prompts of the checked file
            self.drop_answer = show(elem_id="drop-answer")
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
            with gr.Accordion("Fields of the file", open=False), gr.Row():
                self.prompt_field = gr.Textbox(
                    label="Prompt field", info="Empty: prompt or messages.", max_length=200, min_width=160
                )
                self.reference_field = gr.Textbox(
                    label="Reference field", info="Empty: reference.", max_length=200, min_width=160
                )
                self.group_similar = gr.Checkbox(
                    label="Group near-duplicates", info="A group counts once in intervals and promises.", min_width=160
                )
            self.file_field = show(file_field_html(), js_on_load=UPLOAD, elem_id="own-file")
            self.answer = show(elem_id="own-answer")
            self.list = show(elem_id="own-tasks")

    def listen(self, view: View) -> None:
        """Attach the event."""
        fields = [self.identifier, self.scorer, self.title, self.prompt_field, self.reference_field, self.group_similar]
        fields += [self.form.fields[name] for name in CHOSEN_BY_ADDING]
        view.by_script(self.file_field.click, fields, script("experiments/send_file.js", NAME="custom task"))
        view.act("custom task", self.check_or_add, self.answer)
        before = [self.form.fields[name] for name in CHOSEN_BY_ADDING]
        view.by_script(self.drop_field.click, before, script("experiments/send_dropped.js", NAME="dropped file"))
        view.act("dropped file", self.check_or_use, self.drop_answer)

    def redraw(self, asked: Asked, listed: Html) -> Updates:
        """Return the list of tasks, and whether the chosen pair knows the form of the file, as far as they differ."""
        hint = form_hint(asked.current(self.form.fields["pair"]), count_in(asked.current(self.formless)))
        updates: Updates = {self.list: listed} if asked.differs("custom tasks", listed) else {}
        return updates | ({self.form_hint: notice(hint, "warn") if hint else ""} if asked.differs("form", hint) else {})

    def check_or_add(self, act: Act, asked: Asked) -> Updates:
        """Check the uploaded file, or add it and choose it in the form."""
        names = FieldNames(act["prompt_field"].strip(), act["reference_field"].strip())
        checked = check(uploaded(act, _EXPECTED, _LARGER), act["scorer"] or None, names)
        checked = grouped(checked) if act["group_similar"] else noted(checked, "or tick “Group near-duplicates”")
        return {self.answer: self._checked_or_added(act, asked, checked, act["identifier"].strip(), act["title"])}

    def check_or_use(self, act: Act, asked: Asked) -> Updates:
        """Guess what the fields of the dropped file hold, show it, or add the file so and choose it in the form."""
        data = uploaded(act, _EXPECTED, _LARGER)
        guessed = guess(data)
        checked = noted(
            check(data, guessed.scorer, guessed.names),
            "or add the file under “Your own tasks” with “Group near-duplicates” ticked",
        )
        if guessed.sentence:
            checked = replace(checked, notes=(f"{guessed.sentence} {_OTHERWISE}", *checked.notes))
        return {self.drop_answer: self._checked_or_added(act, asked, checked)}

    def _checked_or_added(self, act: Act, asked: Asked, checked: CheckedFile, name: str = "", title: str = "") -> Html:
        """Return the content of a file, or its problems. Add the file if that was requested and it has none."""
        name = name or suggested_name(PurePath(act["file"][:300]).name)
        if act["action"] != "add" or checked.problems:
            asked.unused.add(act.key)
            asked.fill(self.formless, str(formless(line.model_input for line in checked.lines)))
            return checked_html(replace(checked, notes=(*checked.notes, *filter(None, [margins_for(checked)]))), name)
        asked.fill(self.formless, "0")
        stored = keep(self.repository, CustomTask.of(checked_name(name), checked, title.strip()), asked.person.name)
        self._forget()
        self.form.choose_task(asked, stored.full_name, {name: act[name] for name in CHOSEN_BY_ADDING})
        return notice(f"{stored.full_name} is in the list of tasks, with {count(stored.prompts, 'prompt')}.")

    def tasks(self) -> tuple[list[CustomTask], Html]:
        """Return the latest versions and their list as HTML, after importing changes in the folder."""
        refused = self.folder.take_in(self.repository)
        return latest_custom_tasks(self.repository), custom_tasks_html(self.repository.task_versions(), refused)
