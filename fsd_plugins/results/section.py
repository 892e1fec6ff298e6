"""The section of the page Runs that imports results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePath
from typing import TYPE_CHECKING

import gradio as gr

from dashboard.ui.components import notice, show
from dashboard.ui.fields import UPLOAD, uploaded
from dashboard.ui.templates import Html, render, script
from dashboard.ui.view import Act, Asked, Part, Updates, View
from fsd_core.rules.measured import LONGEST_SERIES_NAME
from fsd_core.texts import count
from fsd_plugins.results.reading import RESULT_TOOLS, ReadFile, added_text, import_results, read_result

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository


_FILE, _ACT = "results/import_results.html", "import results"
_LISTED = 10


class ImportPanel(Part):
    """The panel's components as attributes, and what a person does with it."""

    def __init__(self, repository: Repository, forget: Callable[[], None]) -> None:
        """``forget`` is called after runs were added."""
        self.repository, self._forget = repository, forget
        with gr.Accordion("Import results", open=False, elem_id="import-results"):
            show(render(_FILE, "lead", RESULT_TOOLS))
            with gr.Row():
                self.task, self.model, self.family = (
                    gr.Textbox(label=label, placeholder="As the file says", max_length=LONGEST_SERIES_NAME)
                    for label in ("Task of the results", "Model of the results", "Series of the results")
                )
            self.file = show(render(_FILE, "file_field"), js_on_load=UPLOAD, elem_id="result-file")
            self.answer = show(elem_id="import-answer")

    def listen(self, view: View, *_: object) -> None:
        """Attach the event, whatever the page shows."""
        fields = [self.task, self.model, self.family]
        view.by_script(self.file.click, fields, script("results/send_results.js", NAME=_ACT))
        view.act(_ACT, self.check_or_add, self.answer, needs=("author", "Importing results"))

    def check_or_add(self, act: Act, asked: Asked) -> Updates:
        """Say what the file holds, or add it."""
        data = uploaded(act, f"a result of one of {RESULT_TOOLS}", "`fsd-lab import-results` takes")
        read = read_result(data, PurePath(act["file"][:300]).name)
        if act["action"] != "add":
            asked.unused.add(act.key)
            return {self.answer: _found_html(read)}
        stored = import_results(self.repository, [read], task=act["task"], model=act["model"], family=act["family"])
        self._forget()
        return {self.answer: notice(f"{added_text(stored)} They are marked as imported, and carry no verdict.")}


def _found_html(read: ReadFile) -> Html:
    """Return the contents of a file that can be added."""
    names = [result.name for result in read.results]
    found = f"{read.file} is of {read.tool}, with {count(len(names), 'measurement')}. Nothing is added yet."
    more = f"And {len(names) - _LISTED:,} more." if len(names) > _LISTED else ""
    return render(_FILE, "found", found, names[:_LISTED], more)
