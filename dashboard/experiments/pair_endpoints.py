"""API endpoints for model pairs, with the actions and roles of the page: named, checked, fetched, searched for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import gradio as gr

from dashboard.experiments.experiment_answers import (
    AddedPairAnswer,
    CheckedPairAnswer,
    DraftsAnswer,
    FetchAnswer,
    FoundAnswer,
    ModelAnswer,
    PairAnswer,
)
from dashboard.ui.endpoint import Endpoint, does
from dashboard.ui.signed_in import person_of
from fsd_core.config.model_names import (
    dtype_of,
    is_name_of_models,
    models_of,
    name_of_models,
    template_arguments_of,
)
from fsd_core.errors import UnfitModel
from fsd_core.models.draft_offers import offered_drafts
from fsd_core.models.hub_search import search_models as search
from fsd_core.models.model_pairs import get_pair, pair_title
from fsd_core.models.model_roots import check_folders
from fsd_core.models.named_models import model_of
from fsd_core.models.pair_check import badge_of, check_pair
from fsd_core.roles import require
from fsd_core.worker.device_memory import device_memory
from fsd_core.worker.pair_fetches import cancel_pair_fetch, pair_fetches, request_pair_fetch
from fsd_core.worker.pair_names import add_checked, known_models, recorded_name

if TYPE_CHECKING:
    from fsd_core.models.pair_check import PairCheck
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository


def pair_endpoints(repository: Repository, settings: Settings) -> list[Endpoint]:
    def recorded(pair: str) -> str:
        name = recorded_name(repository, pair)
        check_folders(name, settings)
        return name

    def described(name: str) -> PairAnswer:
        job = pair_fetches(repository).get(name)
        fetch: FetchAnswer | None = (
            {"status": job.status, "bytes": job.bytes_done, "of": job.bytes_total, "error": job.error} if job else None
        )
        made_of = (
            models_of(name) | {"dtype": dtype_of(name), "template_arguments": template_arguments_of(name)}
            if is_name_of_models(name)
            else {}
        )
        badge = badge_of(name, device_memory(repository))
        return {"pair": name, "title": pair_title(name), "models": made_of, "state": badge, "fetch": fetch}

    @does(repeatable=True)
    def add_pair(
        name: str,
        target: str,
        request: gr.Request,
        draft: str = "",
        head: str = "",
        adapter: str = "",
        draft_adapter: str = "",
        dtype: str = "auto",
        template_arguments: str = "",
    ) -> AddedPairAnswer:
        """Name a pair of models, which are checked first. Nothing is loaded. Needs the role author.

        Experiments take the name as their pair from then on. A name that exists refers to the new models, and what was
        measured with the earlier ones stays. If those are not here, and the new ones are the same, the name keeps them.

        Args:
            name: 1 to 40 small letters, digits, dots and hyphens, such as support-7b
            target: OWNER/NAME or OWNER/NAME@REVISION of the Hugging Face hub, or a folder of the worker's machine
            draft: as the target. Empty: copies of the text or a head draft
            head: EAGLE head of the target, as the target. Empty: none
            adapter: folder of a LoRA of the target. Empty: none
            draft_adapter: folder of a LoRA of the draft. Empty: none
            dtype: of runs that name none: float32, bfloat16 or float16, or auto for the checkpoint's
            template_arguments: of the chat template where a setting gives none of their name, as a JSON object
        """
        person = person_of(request)
        require(person, "author", "Adding models")
        models = name_of_models(
            {
                "target": target, "draft": draft, "head": head, "adapter": adapter, "draft-adapter": draft_adapter,
                "dtype": dtype, "template": template_arguments,
            }
        )  # fmt: skip
        check_folders(models, settings)
        checked = add_checked(repository, name, models, person.name)
        if checked.problems:
            raise UnfitModel(f"'{name}' cannot be used. {checked.problems[0]}")
        return {**described(recorded_name(repository, name)), **_found(checked), "name": name}

    def read_pair(pair: str) -> CheckedPairAnswer:
        """Return what a pair is made of, whether its models are here, and how far a fetch of them is.

        Its state is here, to fetch (with the size, once the hub has told it), too large for this machine, or cannot be
        used.

        Args:
            pair: name of a pair, as in list_choices
        """
        name = recorded(pair)
        checked = check_pair(get_pair(name), device_memory(repository), lambda model: 0)
        return {**described(name), **_found(checked)}

    @does(repeatable=True, elsewhere=True)
    def fetch_pair(pair: str, request: gr.Request) -> PairAnswer:
        """Fetch what is missing of a pair from the Hugging Face hub. Needs the role author.

        The worker does it. read_pair reports the bytes. A fetch that was cancelled or failed goes on where it was.

        Args:
            pair: name of a pair, as in list_choices
        """
        require(person_of(request), "author", "Fetching models")
        name = recorded(pair)
        request_pair_fetch(repository, name)
        return described(name)

    @does(repeatable=True)
    def cancel_fetch(pair: str, request: gr.Request) -> PairAnswer:
        """Stop the fetch of a pair and keep what has arrived. Needs the role author.

        Args:
            pair: name of a pair, as in list_choices
        """
        require(person_of(request), "author", "Cancelling a fetch")
        name = recorded(pair)
        cancel_pair_fetch(repository, name)
        return described(name)

    @does(destroys=True)
    def remove_pair(name: str, request: gr.Request) -> str:
        """Forget the name of a pair. What was measured with it stays. Needs the role author.

        Args:
            name: name that somebody gave to models of their own
        """
        require(person_of(request), "author", "Forgetting a pair")
        repository.remove_pair(name)
        return f"{name} is no longer offered. What was measured stays."

    @does(writes=False, repeatable=True, elsewhere=True)
    def search_models(text: str, request: gr.Request) -> list[ModelAnswer]:
        """Return text models of the Hugging Face hub whose names contain a text, by downloads. Needs the role author.

        Args:
            text: a part of a model's name, such as Qwen2.5
        """
        require(person_of(request), "author", "Searching the hub")
        return [
            {"id": found.id, "parameters": found.parameters, "downloads": found.downloads, "gated": found.gated}
            for found in search(text)
        ]

    @does(writes=False, repeatable=True, elsewhere=True)
    def suggest_drafts(target: str, request: gr.Request) -> DraftsAnswer:
        """Return drafts for a target: smaller models with its tokenizer. Needs the role author.

        The files of the tokenizers are compared.

        Args:
            target: OWNER/NAME of the Hugging Face hub, or a folder of the worker's machine
        """
        require(person_of(request), "author", "Suggesting drafts")
        check_folders(name_of_models({"target": target}), settings)
        offers = offered_drafts(model_of("target", target), known_models(repository))
        drafts = [{"model": draft.model, "bytes": draft.bytes_, "is_here": draft.is_here} for draft in offers.drafts]
        return {"drafts": drafts, "compared": offers.compared, "note": offers.note}

    return [
        add_pair, read_pair, fetch_pair, cancel_fetch, remove_pair, search_models, suggest_drafts,
    ]  # fmt: skip


def _found(checked: PairCheck) -> FoundAnswer:
    return {"facts": checked.facts, "notes": checked.notes, "problems": checked.problems}
