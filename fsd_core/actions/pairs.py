"""What is done with model pairs that people name: checked, kept, fetched and offered."""

from __future__ import annotations

from typing import Annotated, Any

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, Told, action
from fsd_core.config.model_names import dtype_of, is_name_of_models, models_of, name_of_models, template_arguments_of
from fsd_core.errors import UnfitModel, UnknownName, WrongState
from fsd_core.models.hub_files import search_models as search_hub
from fsd_core.models.model_pairs import MODEL_PAIRS, check_folders, get_pair, model_of, pair_title
from fsd_core.models.pair_check import PairCheck, badge_of, check_pair, offered_drafts, size
from fsd_core.models.sources import missing_models
from fsd_core.storage.messages import PairFetchJob
from fsd_core.storage.records import UNENDED
from fsd_core.worker.pair_names import add_checked, device_memory, known_models, pair_fetches, recorded_name

_PRIORITY = 5  # before experiments that have not begun

Pair = Annotated[str, "name of a pair, as in list_choices"]
PairName = Annotated[str, "1 to 40 small letters, digits, dots and hyphens, such as support-7b"]
Model = Annotated[str, "OWNER/NAME or OWNER/NAME@REVISION of the Hugging Face hub, or a folder of the worker's machine"]


class FetchAnswer(TypedDict):
    """How far a fetch is, in bytes."""

    status: str
    bytes: int | None
    of: int | None
    error: str | None


class PairAnswer(TypedDict):
    """A pair of models, and whether they are here."""

    pair: str
    title: str
    models: dict[str, Any]
    state: str
    fetch: FetchAnswer | None


class FoundAnswer(TypedDict):
    """What a check of a pair's files found."""

    facts: list[str]
    notes: list[str]
    problems: list[str]


class CheckedPairAnswer(PairAnswer, FoundAnswer):
    """A pair with what a check of its files found."""


class AddedPairAnswer(CheckedPairAnswer):
    """A pair with the name that it was given."""

    name: str


class ModelAnswer(TypedDict):
    """A model of the hub; ``downloads`` are of the last month."""

    id: str
    parameters: int | None
    downloads: int
    gated: bool


class DraftsAnswer(TypedDict):
    """Smaller models for a target."""

    drafts: list[dict[str, Any]]
    compared: int
    note: str


class NamedPairAnswer(TypedDict):
    """A pair in a list: ``name`` is what commands and calls take."""

    name: str
    title: str
    state: str
    tasks: list[str]
    about: str


def recorded(ask: Ask, pair: str) -> str:
    """Return the name under which runs of a pair are recorded. Raises for one that may not be named here."""
    name = pair if pair in MODEL_PAIRS else recorded_name(ask.repository, pair)
    _check_folders(ask, name)
    return name


def _check_folders(ask: Ask, models: str) -> None:
    if not ask.operator:
        check_folders(models, ask.settings)


def _described(ask: Ask, name: str) -> PairAnswer:
    job = pair_fetches(ask.repository).get(name)
    fetch: FetchAnswer | None = (
        {"status": job.status, "bytes": job.bytes_done, "of": job.bytes_total, "error": job.error} if job else None
    )
    made_of: dict[str, Any] = {}
    if is_name_of_models(name):
        made_of = models_of(name) | {"dtype": dtype_of(name), "template_arguments": template_arguments_of(name)}
    return {
        "pair": name, "title": pair_title(name), "models": made_of,
        "state": badge_of(name, device_memory(ask.repository)), "fetch": fetch,
    }  # fmt: skip


def _found(checked: PairCheck) -> FoundAnswer:
    return {"facts": checked.facts, "notes": checked.notes, "problems": checked.problems}


def _tell_added(pair: AddedPairAnswer) -> Told:
    return Told([f"{pair['name']} is {pair['state']}. Measure with --pair {pair['name']}."], _sentences(pair))


def _tell_shown(pair: CheckedPairAnswer) -> Told:
    return Told(
        [pair["pair"], f"{pair['title']} {'' if pair['problems'] else 'is '}{pair['state']}."], _sentences(pair)
    )


def _sentences(checked: CheckedPairAnswer) -> list[str]:
    return [*checked["facts"], *checked["notes"], *checked["problems"]]


def _tell_listed(pairs: list[NamedPairAnswer]) -> Told:
    rows = [(one["name"], one["title"], one["state"], ", ".join(one["tasks"]), one["about"]) for one in pairs]
    return Told(columns=("Name", "Title", "Where", "Tasks", "What it is"), rows=rows)


def _tell_models(models: list[ModelAnswer]) -> Told:
    rows = [
        (
            found["id"],
            f"{found['parameters'] / 1e9:.2g} B" if found["parameters"] else "",
            f"{found['downloads']:,}",
            "gated" * found["gated"],
        )
        for found in models
    ]
    none = () if models else ("The hub has no such text model with safetensors.",)
    return Told((), none, ("Model", "Parameters", "Downloads", ""), rows)


def _tell_drafts(offers: DraftsAnswer) -> Told:
    rows = [(it["model"], size(it["bytes"]), "here" if it["is_here"] else "to fetch") for it in offers["drafts"]]
    note = offers["note"] or f"{offers['compared']} models were compared with the target."
    return Told((), [note], ("Draft", "Weights", "Where"), rows)


@action("pairs", tells=_tell_listed)
def list_pairs(ask: Ask) -> list[NamedPairAnswer]:
    """List the model pairs, your own first."""
    repository = ask.existing
    memory, own = device_memory(repository), repository.own_pairs() if repository else []
    return [
        *(
            NamedPairAnswer(
                name=pair.name, title="", state=badge_of(pair.models, memory), tasks=["everyday"],
                about=f"{pair.models}, by {pair.added_by}",
            )
            for pair in own
        ),
        *(
            NamedPairAnswer(
                name=name, title=pair.title, state=badge_of(name, memory), tasks=list(pair.tasks),
                about=pair.description,
            )
            for name, pair in MODEL_PAIRS.items()
        ),
    ]  # fmt: skip


@action("pairs add", role="author", doing="Adding models", writes=True, repeatable=True, tells=_tell_added)
def add_pair(
    ask: Ask,
    name: PairName,
    target: Model,
    draft: Annotated[str, "as the target. Empty: copies of the text or a head draft"] = "",
    head: Annotated[str, "EAGLE head of the target, as the target. Empty: none"] = "",
    adapter: Annotated[str, "folder of a LoRA of the target. Empty: none"] = "",
    draft_adapter: Annotated[str, "folder of a LoRA of the draft. Empty: none"] = "",
    dtype: Annotated[
        str, "of runs that name none: float32, bfloat16 or float16, or auto for the checkpoint's"
    ] = "auto",
    template_arguments: Annotated[
        str, "of the chat template where a setting gives none of their name, as a JSON object"
    ] = "",
) -> AddedPairAnswer:
    """Name a pair of models, which are checked first. Nothing is loaded.

    Experiments take the name as their pair from then on. A name that exists refers to the new models, and what was
    measured with the earlier ones stays. If those are not here, and the new ones are the same, the name keeps them.
    """
    models = name_of_models(
        {
            "target": target, "draft": draft, "head": head, "adapter": adapter, "draft-adapter": draft_adapter,
            "dtype": dtype, "template": template_arguments,
        }
    )  # fmt: skip
    _check_folders(ask, models)
    checked = add_checked(ask.repository, name, models, ask.person.name)
    if checked.problems:
        raise UnfitModel(f"'{name}' cannot be used. {checked.problems[0]}")
    return {**_described(ask, recorded_name(ask.repository, name)), **_found(checked), "name": name}


@action("pairs show", tells=_tell_shown)
def read_pair(ask: Ask, pair: Pair) -> CheckedPairAnswer:
    """Return what a pair is made of, whether its models are here, and how far a fetch of them is.

    Its state is here, to fetch (with the size, once the hub has told it), too large for this machine, or cannot be
    used.
    """
    name = recorded(ask, pair)
    return {**_described(ask, name), **_found(check_pair(get_pair(name), device_memory(ask.repository), lambda _: 0))}


@action(role="author", doing="Fetching models", writes=True, repeatable=True, elsewhere=True)
def fetch_pair(ask: Ask, pair: Pair) -> PairAnswer:
    """Fetch what is missing of a pair from the Hugging Face hub.

    The worker does it. read_pair reports the bytes. A fetch that was cancelled or failed goes on where it was.
    """
    name = recorded(ask, pair)
    if not missing_models(get_pair(name)):
        raise WrongState(f"Nothing of {pair_title(name)} is missing: all of its models are here.")
    job = pair_fetches(ask.repository).get(name)
    if job is None or job.status not in UNENDED:
        ask.repository.enqueue(PairFetchJob(name), _PRIORITY)
    return _described(ask, name)


@action(role="author", doing="Cancelling a fetch", writes=True, repeatable=True)
def cancel_fetch(ask: Ask, pair: Pair) -> PairAnswer:
    """Stop the fetch of a pair and keep what has arrived."""
    name = recorded(ask, pair)
    job = pair_fetches(ask.repository).get(name)
    if job is None or job.status not in UNENDED:
        raise UnknownName(f"Nothing of {pair_title(name)} is being fetched now.")
    ask.repository.request_cancel(job.id)
    return _described(ask, name)


@action("pairs remove", role="author", doing="Forgetting a pair", destroys=True)
def remove_pair(ask: Ask, name: Annotated[str, "name that somebody gave to models of their own"]) -> str:
    """Forget the name of a pair. What was measured with it stays."""
    ask.repository.remove_pair(name)
    return f"{name} is no longer offered. What was measured stays."


@action("pairs search", role="author", doing="Searching the hub", elsewhere=True, tells=_tell_models)
def search_models(ask: Ask, text: Annotated[str, "a part of a model's name, such as Qwen2.5"]) -> list[ModelAnswer]:
    """Return text models of the Hugging Face hub whose names contain a text, by downloads."""
    return [ModelAnswer(**found._asdict()) for found in search_hub(text)]


@action("pairs drafts", role="author", doing="Suggesting drafts", elsewhere=True, tells=_tell_drafts)
def suggest_drafts(
    ask: Ask, target: Annotated[str, "OWNER/NAME of the Hugging Face hub, or a folder of the worker's machine"]
) -> DraftsAnswer:
    """Return drafts for a target: smaller models with its tokenizer.

    The files of the tokenizers are compared.
    """
    _check_folders(ask, name_of_models({"target": target}))
    offers = offered_drafts(model_of("target", target), known_models(ask.existing))
    drafts = [{"model": draft.model, "bytes": draft.bytes_, "is_here": draft.is_here} for draft in offers.drafts]
    return {"drafts": drafts, "compared": offers.compared, "note": offers.note}
