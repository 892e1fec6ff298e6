"""Drafts that a target could have: smaller models of its family, whose tokenizers are its own.

Names only say where to look. Whether the tokenizers are the same is told by their files. No torch: the pages read this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from fsd_core.errors import ModelUnavailable
from fsd_core.models.hub_download import fetch_file
from fsd_core.models.hub_offers import HubUnreachable, hub_errors, offered
from fsd_core.models.hub_search import search_models
from fsd_core.models.json_files import read_object
from fsd_core.models.local_models import models_folder, obtained
from fsd_core.models.specs import HubModel
from fsd_core.models.tokenizer_files import TOKENIZER, differing_tokens
from fsd_core.models.weight_files import weight_files

_SIZE = re.compile(r"[-_.]?\d+(\.\d+)?(x\d+(\.\d+)?)?[bm](?=[-_.]|$)", re.IGNORECASE)
_MOST_ASKED = 8
_LARGEST_SHARE = 0.5
"""of the target's bytes that a draft may have; a larger one saves no time"""


class OfferedDraft(NamedTuple):
    """A draft that a target could have."""

    model: str
    """OWNER/NAME, or a folder"""
    bytes_: int
    """of its weights"""
    is_here: bool


class DraftOffers(NamedTuple):
    """The drafts, the smallest first, and how many models of the family were compared."""

    drafts: list[OfferedDraft]
    compared: int
    note: str
    """why the hub was not searched, if it was not"""


class _Facts(NamedTuple):
    """A model's bytes and the file of its tokenizer."""

    bytes_: int
    tokenizer: Path


def offered_drafts(target: Path | HubModel, known: Iterable[Path | HubModel] = ()) -> DraftOffers:
    """Return drafts for a target, of the ``known`` models that are here and of the hub.

    Raises ``ModelUnavailable`` if nothing can be said of the target.
    """
    own = _facts(target)
    here = [model for model in dict.fromkeys(known) if model != target and obtained(model) is not None]
    note = ""
    try:
        searched = [model for model in _of_the_family(target) if model != target and model not in here]
    except HubUnreachable as error:
        searched, note = [], str(error)
    drafts, compared = [], 0
    for model in [*here, *searched[:_MOST_ASKED]]:
        try:
            facts = _facts(model)
        except ModelUnavailable:  # gated, pickled, or with another kind of tokenizer
            continue
        compared += 1
        if facts.bytes_ <= _LARGEST_SHARE * own.bytes_ and differing_tokens(own.tokenizer, facts.tokenizer) == 0:
            drafts.append(OfferedDraft(_name(model), facts.bytes_, obtained(model) is not None))
    return DraftOffers(sorted(drafts, key=lambda draft: draft.bytes_), compared, note)


def _of_the_family(target: Path | HubModel) -> list[HubModel]:
    """Return the hub's models whose names differ from the target's in their sizes. Raises ``HubUnreachable``."""
    name = _name(target)
    if isinstance(target, Path):
        origin = read_object(target / "config.json").get("_name_or_path")
        name = origin if isinstance(origin, str) and _SIZE.search(origin) else target.name
    repo = name.strip("/").rpartition("/")[2]
    family = repo[: match.start()] if (match := _SIZE.search(repo)) else repo
    if not family:
        return []
    author = target.repo.partition("/")[0] if isinstance(target, HubModel) else ""
    return [HubModel(found.id) for found in search_models(family, author)]


def _facts(model: Path | HubModel) -> _Facts:
    """Return a model's size and tokenizer, which is fetched if need be. Raises ``ModelUnavailable``."""
    folder = obtained(model)
    if folder is not None:
        bytes_, tokenizer = sum(file.stat().st_size for file in weight_files(folder)), folder / TOKENIZER
    else:
        assert isinstance(model, HubModel)  # a folder is always here
        offer = offered(model)
        with hub_errors(model):
            tokenizer = fetch_file(model, offer, TOKENIZER, models_folder() / "tokenizers")
        bytes_ = sum(file.size for file in offer.files if file.name.endswith(".safetensors"))
    if tokenizer is None or not tokenizer.is_file():
        raise ModelUnavailable(f"{_name(model)} has no {TOKENIZER}, so no draft can be compared with it.")
    return _Facts(bytes_, tokenizer)


def _name(model: Path | HubModel) -> str:
    if isinstance(model, Path):
        return str(model)
    return model.repo if model.revision == "main" else f"{model.repo}@{model.revision}"
