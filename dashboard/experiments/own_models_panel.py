"""Models of one's own on the Experiments page: named by folder or id, checked without loading them, and offered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, get_args

import gradio as gr

from dashboard.experiments.pair_lists import PairLists
from dashboard.ui import actions
from dashboard.ui.actions import button
from dashboard.ui.components import notice, show
from dashboard.ui.question import Act, Asked, Updates, Values
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.view import View
from fsd_core.config.model_names import name_of_models
from fsd_core.config.run_config import Dtype
from fsd_core.formatting import count
from fsd_core.models.draft_offers import DraftOffers, offered_drafts
from fsd_core.models.hub_search import FoundModel, search_models
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.model_roots import check_folders
from fsd_core.models.named_models import model_of
from fsd_core.models.pair_check import PairCheck, check_pair, size
from fsd_core.worker.device_memory import device_memory
from fsd_core.worker.pair_fetches import cancel_pair_fetch, request_pair_fetch
from fsd_core.worker.pair_names import add_checked, checked_pair_name, known_models, recorded_name

if TYPE_CHECKING:
    from dashboard.experiments.experiment_form import ExperimentForm
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

_FILE = "experiments/own_models.html"
_LEAD = (
    "A target and what drafts for it: folders on the worker's machine, or models of the Hugging Face hub, as "
    "OWNER/NAME or OWNER/NAME@REVISION. Nothing is loaded until you measure."
)
_FOUND_ROLES = ("target", "draft")
_DTYPES = [("As the checkpoint", "auto"), *((dtype, dtype) for dtype in get_args(Dtype) if dtype != "auto")]


class OwnModelsPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``forget`` is called after a pair was added or forgotten, or its fetch was begun or stopped."""
        self.repository, self.settings, self.form, self._forget = repository, settings, form, forget
        with gr.Accordion("Your own models", open=False, elem_id="own-models"):
            show(render(_FILE, "lead", _LEAD))
            with gr.Row():
                self.name = gr.Textbox(label="Pair's name", placeholder="support-7b", max_length=40, min_width=140)
                self.models: dict[str, Any] = {"target": _model("Target", "Folder, or OWNER/NAME")}
                self.models["draft"] = _model("Draft", "None: copies of the text draft")
            with gr.Row():
                self.models["head"] = _model("EAGLE head", "None")
                self.models["adapter"] = _model("Adapter of the target", "Folder of a LoRA, or none")
                self.models["draft-adapter"] = _model("Adapter of the draft", "Folder of a LoRA, or none")
                self.models["template"] = _model("Template arguments of the pair", '{"enable_thinking": false}')
                self.models["dtype"] = gr.Dropdown(_DTYPES, value="auto", label="Loaded as", min_width=140)
            with gr.Row():
                self.check = gr.Button("Check the models", scale=0, min_width=150)
                self.add = gr.Button("Add the pair", scale=0, min_width=130)
                self.suggest = gr.Button("Suggest drafts", scale=0, min_width=140)
            with gr.Row(equal_height=True):
                self.sought = gr.Textbox(
                    label="Search the hub", placeholder="A part of a model's name, such as Qwen2.5", max_length=100
                )
                self.search = gr.Button("Search", scale=0, min_width=100)
            self.answer = show(js_on_load=actions.CLICKS, elem_id="models-answer")
            self.list = show(js_on_load=actions.CLICKS, elem_id="own-pairs")
            with gr.Accordion("Pairs of the program that are not here", open=False):
                self.presets = show(js_on_load=actions.CLICKS, elem_id="preset-pairs")

    @property
    def fields(self) -> list[Any]:
        """Fields that a person fills in."""
        return [self.name, *self.models.values()]

    @property
    def filled_in(self) -> list[Any]:
        """Fields that a click on a found model fills in."""
        return [self.models[role] for role in _FOUND_ROLES]

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.list.click, self.presets.click, self.answer.click)
        view.button(self.check, "check models", self.fields, self.check_models, self.answer)
        view.button(self.add, "add models", self.fields, self.add_models, self.answer)
        view.button(self.suggest, "suggest drafts", [self.models["target"]], self.suggest_drafts, self.answer)
        view.button(self.search, "search models", [self.sought], self.search_hub, self.answer)
        view.act("use model", self.use_model, self.answer)
        view.act("fetch models", self.fetch_models, self.answer)
        view.act("cancel fetch", self.cancel_fetch, self.answer)
        view.act("forget models", self.forget_models, self.answer)

    def redraw(self, asked: Asked, lists: PairLists) -> Updates:
        """Return the lists that differ."""
        updates = {self.list: lists.own} if asked.differs("own pairs", lists.own) else {}
        return updates | ({self.presets: lists.presets} if asked.differs("presets", lists.presets) else {})

    # --- what a person does --------------------------------------------------------------------------------------

    def check_models(self, values: Values, asked: Asked) -> Updates:
        """Check the models, and say what was found."""
        _, models = self._named(values)
        asked.unused.add(values.key)
        return {self.answer: checked_html(check_pair(get_pair(models), device_memory(self.repository)))}

    def add_models(self, values: Values, asked: Asked) -> Updates:
        """Keep the pair under its name, unless it cannot be used, and choose it."""
        name, models = self._named(values)
        checked = add_checked(self.repository, name, models, asked.person.name)
        if checked.problems:
            asked.unused.add(values.key)
        else:
            self._forget()
            asked.fill(self.form.fields["pair"], recorded_name(self.repository, name))
        return {self.answer: checked_html(checked, name)}

    def search_hub(self, values: Values, asked: Asked) -> Updates:
        """Show models of the hub whose names contain a text, each with buttons that choose it."""
        return {self.answer: found_html(search_models(str(values[self.sought] or "")))}

    def suggest_drafts(self, values: Values, asked: Asked) -> Updates:
        """Show drafts that share the target's tokenizer."""
        target = str(values[self.models["target"]] or "").strip()
        check_folders(name_of_models({"target": target}), self.settings)
        asked.unused.add(values.key)
        offers = offered_drafts(model_of("target", target), known_models(self.repository))
        return {self.answer: drafts_html(target, offers)}

    def use_model(self, act: Act, asked: Asked) -> None:
        """Fill in a model that was found."""
        if act["kind"] in _FOUND_ROLES:
            asked.fill(self.models[act["kind"]], act["id"])

    def fetch_models(self, act: Act, asked: Asked) -> Updates:
        """Let the worker fetch a pair's models."""
        check_folders(act["id"], self.settings)
        request_pair_fetch(self.repository, act["id"])
        self._forget()
        return {self.answer: ""}

    def cancel_fetch(self, act: Act, asked: Asked) -> Updates:
        """Stop a fetch. What has arrived is kept."""
        cancel_pair_fetch(self.repository, act["id"])
        self._forget()
        return {self.answer: ""}

    def forget_models(self, act: Act, asked: Asked) -> Updates:
        """Forget a pair's name. What was measured stays."""
        self.repository.remove_pair(act["id"])
        self._forget()
        return {self.answer: notice(f"{act['id']} is no longer offered. What was measured stays.")}

    def _named(self, values: Values) -> tuple[str, str]:
        """Return the pair's name, which may be empty, and that of its models. Raises ``FsdError`` for what cannot be
        kept here."""
        if name := str(values[self.name] or "").strip():
            checked_pair_name(name)
        models = name_of_models({role: str(values[field] or "") for role, field in self.models.items()})
        check_folders(models, self.settings)
        return name, models


def _model(label: str, placeholder: str) -> gr.Textbox:
    return gr.Textbox(label=label, placeholder=placeholder, max_length=1000, min_width=160)


def checked_html(checked: PairCheck, added: str = "") -> Html:
    """Return the result of the check. ``added``: the name under which the pair is kept, if nothing is wrong."""
    if checked.problems:
        summary = "The models cannot be used yet."
    else:
        summary = f"{added} is added and chosen: {checked.badge}." if added else f"The models are {checked.badge}."
    tone = "bad" if checked.problems else ""
    return render(_FILE, "checked", summary, tone, checked.problems, [*checked.facts, *checked.notes])


def found_html(models: Sequence[FoundModel]) -> Html:
    """Return a line for each model of the hub, with buttons that fill it in."""
    lines = []
    for model in models:
        parts = [f"{model.parameters / 1e9:.2g} billion parameters"] if model.parameters else []
        parts += [f"{count(model.downloads, 'download')} a month"] + ["gated"] * model.gated
        lines.append(_model_line(model.id, ", ".join(parts), *_FOUND_ROLES))
    summary = count(len(models), "model") if models else "No text model with safetensors has such a name"
    return render(_FILE, "found", f"{summary} at the hub.", lines)


def drafts_html(target: str, offers: DraftOffers) -> Html:
    """Return a line for each draft, with a button that fills it in."""
    lines = [
        _model_line(draft.model, f"{size(draft.bytes_)}, {'here' if draft.is_here else 'to fetch'}", "draft")
        for draft in offers.drafts
    ]
    found = f"{count(len(lines), 'smaller model') if lines else 'No smaller model'} with the tokenizer of {target}"
    return render(_FILE, "found", f"{found}; {count(offers.compared, 'model')} compared. {offers.note}".strip(), lines)


def _model_line(model: str, about: str, *roles: str) -> Html:
    buttons = [button("use model", role, model, f"Use as {role}") for role in roles]
    return render(_FILE, "model", model, about, joined(buttons))
