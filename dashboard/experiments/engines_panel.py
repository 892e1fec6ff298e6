"""Running engines on the Experiments page: named by address, asked whether they are there, offered, and forgotten."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.ui import actions
from dashboard.ui.actions import button
from dashboard.ui.components import notice, show
from dashboard.ui.quantities import moment
from dashboard.ui.question import Act, Asked, Updates, Values
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import SECRET_FIELD, View
from fsd_core.rules import ENGINE_TITLES
from fsd_core.worker.endpoint_names import (
    KEY_PREFIX,
    MOST_HARDWARE,
    add_endpoint,
    check_endpoint,
)

if TYPE_CHECKING:
    from dashboard.experiments.experiment_form import ExperimentForm
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ServedEngine

_FILE = "experiments/engines.html"
_KINDS = [(title, kind) for kind, title in ENGINE_TITLES.items()]


class EnginesPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``forget`` is called after an endpoint was added or forgotten."""
        self.repository, self.settings, self.form, self._forget = repository, settings, form, forget
        with gr.Accordion("Running engines", open=False, elem_id="running-engines"):
            show(render(_FILE, "lead", settings.access_is_on, KEY_PREFIX))
            with gr.Row():
                self.name = _text("Endpoint's name", "vllm-draft5", 40)
                self.kind = gr.Dropdown(_KINDS, value="vllm", label="Kind of engine", min_width=140)
                self.hardware = _text("Runs on", "Nothing is said: one H100", MOST_HARDWARE)
            with gr.Row():
                self.url = _text("Address", "http://127.0.0.1:8000/v1", 400)
                self.model = _text("Model, as the engine calls it", "my-model", 300)
                self.key = _text("Variable with its key", f"None: {KEY_PREFIX}", 100, SECRET_FIELD)  # or the key
            self.asks = gr.Checkbox(True, label="Ask the engine before it is added", container=False)
            self.add = gr.Button("Add the endpoint", scale=0, min_width=160)
            self.answer = show(elem_id="engines-answer")
            self.list = show(js_on_load=actions.CLICKS, elem_id="endpoints")

    @property
    def _parts(self) -> dict[str, Any]:
        return {
            "endpoint": self.name, "engine": self.kind, "hardware": self.hardware, "url": self.url,
            "model": self.model, "key_variable": self.key,
        }  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.list.click)
        view.button(self.add, "add endpoint", [*self._parts.values(), self.asks], self.add_endpoint, self.answer)
        view.act("check endpoint", self.check_endpoint, self.answer)
        view.act("forget endpoint", self.forget_endpoint, self.answer)

    def redraw(self, asked: Asked, lines: Html) -> Updates:
        """Return the list, if it differs."""
        return {self.list: lines} if asked.differs("engines", lines) else {}

    # --- what a person does --------------------------------------------------------------------------------------

    def add_endpoint(self, values: Values, asked: Asked) -> Updates:
        """Keep an endpoint, unless the engine does not answer, and choose it."""
        given = {name: str(values[part] or "") for name, part in self._parts.items()}
        told = add_endpoint(self.repository, self.settings, asked.person, given, check=bool(values[self.asks]))
        self._forget()
        chosen = self.form.fields["endpoints"]
        asked.fill(chosen, [*dict.fromkeys([*(asked[chosen] or ()), given["endpoint"].strip()])])
        return {self.answer: notice(f"{told} It is chosen under “Running engines” above.")}

    def check_endpoint(self, act: Act, asked: Asked) -> Updates:
        """Ask an engine whether it is there, and has the model."""
        return {self.answer: notice(check_endpoint(self.repository, self.settings, act["id"]))}

    def forget_endpoint(self, act: Act, asked: Asked) -> Updates:
        """Forget an endpoint. What was measured stays."""
        self.repository.remove_engine(act["id"])
        self._forget()
        return {self.answer: notice(f"{act['id']} is forgotten. Its runs stay.")}


def engines_html(engines: Sequence[ServedEngine]) -> Html:
    """Return a line for each endpoint, with what can be done."""
    return render(_FILE, "endpoints", [_line(engine) for engine in engines])


def _line(engine: ServedEngine) -> Html:
    served = engine.served
    question = f"Forget the endpoint {engine.name}? Its runs stay, and none of them can be continued."
    buttons = [
        button("check endpoint", "endpoint", engine.name, "Check"),
        button("forget endpoint", "endpoint", engine.name, "Forget", question),
    ]
    by = f"{engine.added_by}, {moment(engine.added_at)}"
    return render(_FILE, "endpoint", engine, ENGINE_TITLES[served.engine], by, joined(buttons))


def _text(label: str, placeholder: str, longest: int, *styles: str) -> gr.Textbox:
    return gr.Textbox(label=label, placeholder=placeholder, max_length=longest, min_width=160, elem_classes=[*styles])
