"""Models and engines of one's own on the Experiments page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import gradio as gr

from dashboard.ui import components
from dashboard.ui.components import button, notice, show
from dashboard.ui.templates import Html, joined, moment, render
from dashboard.ui.view import SECRET_FIELD, Act, Asked, Part, Updates, Values, View
from fsd_core.actions import endpoints, pairs
from fsd_core.actions.action import Ask
from fsd_core.actions.endpoints import KEY_PREFIX, MOST_HARDWARE
from fsd_core.config.model_names import HUB_ID, dtype_of, folder_of, models_of, name_of_models, template_arguments_of
from fsd_core.config.run_config import Dtype
from fsd_core.models.hub_files import FoundModel, search_models
from fsd_core.models.model_pairs import MODEL_PAIRS, check_folders, get_pair, model_of
from fsd_core.models.pair_check import (
    HERE,
    TO_FETCH,
    UNUSABLE,
    DeviceMemory,
    DraftOffers,
    PairCheck,
    check_name,
    check_pair,
    offered_drafts,
    size,
)
from fsd_core.models.sources import moved
from fsd_core.rules import ENGINE_TITLES
from fsd_core.settings import get_settings
from fsd_core.storage.records import UNENDED
from fsd_core.texts import count
from fsd_core.worker.pair_names import (
    add_checked,
    checked_pair_name,
    device_memory,
    known_models,
    pair_fetches,
    recorded_name,
)

if TYPE_CHECKING:
    from dashboard.experiments.experiment_form import ExperimentForm
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository
    from fsd_core.storage.tables import JobRow, OwnPairRow, ServedEngineRow, WorkerRow


_FILE = "experiments/own_models.html"
_WAITING = "The worker will begin when it has done what it does now."
_NO_WORKER = "Waiting: nothing fetches now. The head of this page says what is missing."


class PairLists(NamedTuple):
    """A line for each pair."""

    own: Html
    presets: Html


def pair_lists(repository: Repository, worker: WorkerRow | None, badges: Mapping[str, str]) -> PairLists:
    """Return the pairs that somebody has named, and those of the program that are not here or are being fetched.

    ``badges``: the states of all pairs by their names (:func:`dashboard.ui.fields.pair_badges`).
    """
    fetches = pair_fetches(repository)
    alive = worker is not None and worker.alive
    memory = device_memory(repository)
    own = [
        _own_line(pair, badges[pair.models], fetches.get(pair.models), alive, memory)
        for pair in repository.own_pairs()
        if pair.models in badges
    ]
    presets = [
        _pair_line(name, spec.title, spec.description, badge, fetches.get(name), alive, Html())
        for name, spec in MODEL_PAIRS.items()
        if (badge := badges[name]) != HERE
    ]
    return PairLists(render(_FILE, "pairs", own), render(_FILE, "pairs", presets))


def _own_line(pair: OwnPairRow, badge: str, job: JobRow | None, alive: bool, memory: DeviceMemory) -> Html:
    parts = [f"{role} {_where(model)}" for role, model in models_of(pair.models).items()]
    parts += [dtype] if (dtype := dtype_of(pair.models)) != "auto" else []
    parts += [f"template arguments {given}"] if (given := template_arguments_of(pair.models)) else []
    about = f"{', '.join(parts)} · {pair.added_by}, {moment(pair.added_at)}"
    question = f"Forget the name {pair.name}? What was measured with it stays."
    forget = button("forget models", "pair", pair.name, "Forget", question)
    fault = notice(check_name(pair.models, memory).problems[0], "warn") if badge == UNUSABLE else Html()
    return _pair_line(pair.models, pair.name, about, badge, job, alive, forget, fault)


def _where(model: str) -> str:
    """Return a model's id at the hub, or the folder that it is loaded from."""
    return model if HUB_ID.fullmatch(model) else str(moved(folder_of(model), get_settings().home))


def _pair_line(
    name: str, title: str, about: str, badge: str, job: JobRow | None, alive: bool, forget: Html, fault: str = ""
) -> Html:
    if job is not None and job.status in UNENDED:
        stopping = job.cancel_requested
        action = button("cancel fetch", "pair", name, "Cancelling" if stopping else "Cancel", disabled=stopping)
    else:
        has_part = job is not None and job.status != "finished" and job.bytes_done
        fetch = button("fetch models", "pair", name, "Go on fetching" if has_part else "Fetch")
        action = fetch if badge.startswith(TO_FETCH) else Html()
    return render(_FILE, "pair", title, badge, about, joined([action, forget]), _state(job, badge, alive) or fault)


def _state(job: JobRow | None, badge: str, alive: bool) -> Html:
    """Return how far a fetch is, or why it ended, until the models are here."""
    if job is None or badge == HERE or job.status == "finished":
        return Html()
    if job.status in UNENDED:
        if job.bytes_total:
            told = f"{size(job.bytes_done or 0)} of {size(job.bytes_total)}"
            return render(_FILE, "progress", told, job.bytes_done or 0, job.bytes_total)
        return notice(_WAITING if alive else _NO_WORKER)
    kept = f"It was stopped at {size(job.bytes_done)}, which are kept." if job.bytes_done else "It was stopped."
    return notice(job.error or kept, "warn")


_LEAD = (
    "A target and what drafts for it: folders on the worker's machine, or models of the Hugging Face hub, as "
    "OWNER/NAME or OWNER/NAME@REVISION. Nothing is loaded until you measure."
)
_FOUND_ROLES = ("target", "draft")
_DTYPES = [("As the checkpoint", "auto"), *((dtype, dtype) for dtype in get_args(Dtype) if dtype != "auto")]


class OwnModelsPanel(Part):
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``forget`` is called after a pair was added or forgotten, or its fetch was begun or stopped."""
        self.repository, self.settings, self.form, self._forget = repository, settings, form, forget
        self._ask = partial(Ask, settings, repository=repository)
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
            self.answer = show(js_on_load=components.CLICKS, elem_id="models-answer")
            self.list = show(js_on_load=components.CLICKS, elem_id="own-pairs")
            with gr.Accordion("Pairs of the program that are not here", open=False):
                self.presets = show(js_on_load=components.CLICKS, elem_id="preset-pairs")
        self.fields = [self.name, *self.models.values()]
        self.filled_in = [self.models[role] for role in _FOUND_ROLES]
        """fields that a click on a found model fills in"""

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.list.click, self.presets.click, self.answer.click)
        view.button(self.check, "check models", self.fields, self.check_models, self.answer)
        view.button(self.add, "add models", self.fields, self.add_models, self.answer)
        view.button(self.suggest, "suggest drafts", [self.models["target"]], self.suggest_drafts, self.answer)
        view.button(self.search, "search models", [self.sought], self.search_hub, self.answer)
        view.act("use model", self.use_model, self.answer)
        view.deed("fetch models", pairs.fetch_pair, self._ask, self.answer, self._forget)
        view.deed("cancel fetch", pairs.cancel_fetch, self._ask, self.answer, self._forget)
        view.deed("forget models", pairs.remove_pair, self._ask, self.answer, self._forget)

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


_ENGINES_FILE = "experiments/engines.html"
_KINDS = [(title, kind) for kind, title in ENGINE_TITLES.items()]


class EnginesPanel:
    """The panel's components as attributes, and what a person does with it."""

    def __init__(
        self, repository: Repository, settings: Settings, form: ExperimentForm, forget: Callable[[], None]
    ) -> None:
        """``forget`` is called after an endpoint was added or forgotten."""
        self.form, self._forget, self._ask = form, forget, partial(Ask, settings, repository=repository)
        with gr.Accordion("Running engines", open=False, elem_id="running-engines"):
            show(render(_ENGINES_FILE, "lead", settings.access_is_on, KEY_PREFIX))
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
            self.list = show(js_on_load=components.CLICKS, elem_id="endpoints")

    @property
    def _parts(self) -> dict[str, Any]:
        return {
            "name": self.name, "kind": self.kind, "hardware": self.hardware, "url": self.url,
            "model": self.model, "key_variable": self.key,
        }  # fmt: skip

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.on(self.list.click)
        view.button(self.add, "add endpoint", [*self._parts.values(), self.asks], self.add_endpoint, self.answer)
        view.deed("check endpoint", endpoints.check_endpoint, self._ask, self.answer, self._forget)
        view.deed("forget endpoint", endpoints.remove_endpoint, self._ask, self.answer, self._forget)

    def redraw(self, asked: Asked, lines: Html) -> Updates:
        """Return the list, if it differs."""
        return {self.list: lines} if asked.differs("engines", lines) else {}

    # --- what a person does --------------------------------------------------------------------------------------

    def add_endpoint(self, values: Values, asked: Asked) -> Updates:
        """Keep an endpoint, unless the engine does not answer, and choose it."""
        given = {name: str(values[part] or "") for name, part in self._parts.items()}
        told = endpoints.add_endpoint(self._ask(asked.person), **given, check=bool(values[self.asks]))
        self._forget()
        chosen = self.form.fields["endpoints"]
        asked.fill(chosen, [*dict.fromkeys([*(asked[chosen] or ()), given["name"].strip()])])
        return {self.answer: notice(f"{told} It is chosen under “Running engines” above.")}


def engines_html(engines: Sequence[ServedEngineRow]) -> Html:
    """Return a line for each endpoint, with what can be done."""
    return render(_ENGINES_FILE, "endpoints", [_engine_line(engine) for engine in engines])


def _engine_line(engine: ServedEngineRow) -> Html:
    served = engine.served
    question = f"Forget the endpoint {engine.name}? Its runs stay, and none of them can be continued."
    buttons = [
        button("check endpoint", "endpoint", engine.name, "Check"),
        button("forget endpoint", "endpoint", engine.name, "Forget", question),
    ]
    by = f"{engine.added_by}, {moment(engine.added_at)}"
    return render(_ENGINES_FILE, "endpoint", engine, ENGINE_TITLES[served.engine], by, joined(buttons))


def _text(label: str, placeholder: str, longest: int, *styles: str) -> gr.Textbox:
    return gr.Textbox(label=label, placeholder=placeholder, max_length=longest, min_width=160, elem_classes=[*styles])
