"""Models of one's own on the Experiments page: named by folder or id, checked without loading them, and offered."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import gradio as gr
import psutil

from dashboard.ui import actions
from dashboard.ui.actions import button
from dashboard.ui.components import notice, show
from dashboard.ui.quantities import moment
from dashboard.ui.templates import Html, render
from dashboard.ui.view import Act, Asked, Updates, Values, View
from fsd_core.config.model_names import models_of, name_of_models
from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.model_roots import check_folders
from fsd_core.models.pair_check import PairCheck, check_pair
from fsd_core.roles import require, require_person
from fsd_core.worker.pair_names import checked_pair_name

if TYPE_CHECKING:
    from dashboard.experiments.experiment_form import ExperimentForm
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import OwnPair

_FILE = "experiments/own_models.html"
_LEAD = (
    "A target and what drafts for it: folders on the worker's machine, or models of the Hugging Face hub, as "
    "OWNER/NAME or OWNER/NAME@REVISION. Nothing is loaded until you measure."
)


class OwnModelsPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``forget`` is called after a pair was added or forgotten."""
        self.repository, self.settings, self.form, self._forget = repository, settings, form, forget
        with gr.Accordion("Your own models", open=False, elem_id="own-models"):
            show(render(_FILE, "lead", _LEAD))
            with gr.Row():
                self.name = gr.Textbox(label="Pair's name", placeholder="support-7b", max_length=40, min_width=140)
                self.models = {"target": _model("Target", "Folder, or OWNER/NAME")}
                self.models["draft"] = _model("Draft", "None: copies of the text draft")
            with gr.Row():
                self.models["head"] = _model("EAGLE head", "None")
                self.models["adapter"] = _model("Adapter of the target", "Folder of a LoRA, or none")
                self.models["draft-adapter"] = _model("Adapter of the draft", "Folder of a LoRA, or none")
            with gr.Row():
                self.check = gr.Button("Check the models", scale=0, min_width=150)
                self.add = gr.Button("Add the pair", scale=0, min_width=130)
            self.answer = show(elem_id="models-answer")
            self.list = show(js_on_load=actions.CLICKS, elem_id="own-pairs")

    @property
    def fields(self) -> list[gr.Textbox]:
        """What a person fills in."""
        return [self.name, *self.models.values()]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.list.click)
        view.button(self.check, "check models", self.fields, self.check_models, self.answer)
        view.button(self.add, "add models", self.fields, self.add_models, self.answer)
        view.act("forget models", self.forget_models, self.answer)

    def check_models(self, values: Values, asked: Asked) -> Updates:
        """Check the models, and say what was found."""
        require(asked.person, "author", "Checking models")
        return {self.answer: checked_html(self._checked(self._named(values)))}

    def add_models(self, values: Values, asked: Asked) -> Updates:
        """Keep the pair under its name, unless it cannot be used, and choose it."""
        require(asked.person, "author", "Adding models")
        name, models = checked_pair_name(str(values[self.name] or "").strip()), self._named(values)
        checked = self._checked(models)
        if not checked.problems:
            self.repository.add_pair(name, models, asked.person.name)
            self._forget()
            asked.fill(self.form.fields["pair"], models)
        return {self.answer: checked_html(checked, name)}

    def forget_models(self, act: Act, asked: Asked) -> Updates:
        """Forget a pair's name. What was measured stays."""
        require(asked.person, "author", "Forgetting a pair")
        require_person(asked.person, "Forgetting a pair")
        self.repository.remove_pair(act["id"])
        self._forget()
        return {self.answer: notice(f"{act['id']} is no longer offered. What was measured stays.")}

    def _named(self, values: Values) -> str:
        models = name_of_models({role: str(values[field] or "") for role, field in self.models.items()})
        check_folders(models, self.settings)
        return models

    def _checked(self, models: str) -> PairCheck:
        return check_pair(get_pair(models), psutil.virtual_memory().total)


def _model(label: str, placeholder: str) -> gr.Textbox:
    return gr.Textbox(label=label, placeholder=placeholder, max_length=200, min_width=160)


def checked_html(checked: PairCheck, added: str = "") -> Html:
    """Return what was found. ``added``: the name under which the pair is kept, if nothing is wrong."""
    if checked.problems:
        summary = "The models cannot be used yet."
    else:
        summary = f"{added} is added and chosen: {checked.badge}." if added else f"The models are {checked.badge}."
    tone = "bad" if checked.problems else ""
    return render(_FILE, "checked", summary, tone, checked.problems, [*checked.facts, *checked.notes])


def own_pairs_html(pairs: list[OwnPair]) -> Html:
    """Return a line for each pair that somebody has named, with its state and a button that forgets it."""
    return render(_FILE, "pairs", [(pair, *_described(pair)) for pair in pairs])


def _described(pair: OwnPair) -> tuple[str, str, Html]:
    models = ", ".join(f"{role} {model}" for role, model in models_of(pair.models).items())
    about = f"{models} · {pair.added_by}, {moment(pair.added_at)}"
    question = f"Forget the name {pair.name}? What was measured with it stays."
    return about, _badge(pair.models), button("forget models", "pair", pair.name, "Forget", question)


def _badge(models: str) -> str:
    """Return a pair's state in a few words, without asking the hub."""
    try:
        return check_pair(get_pair(models), psutil.virtual_memory().total, _unasked).badge
    except FsdError:
        return "not here"


def _unasked(model: object) -> int:
    return 0
