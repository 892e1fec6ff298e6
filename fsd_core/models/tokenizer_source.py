"""The tokenizer of a model, without its weights."""

from __future__ import annotations

from pathlib import Path

from transformers import PreTrainedTokenizerBase

from fsd_core.models.hub_download import fetch_file
from fsd_core.models.hub_offers import hub_errors, offered
from fsd_core.models.local_models import models_folder, obtained
from fsd_core.models.specs import HubModel
from fsd_core.models.tokenizer_files import TOKENIZER, tokenizer_folder
from fsd_core.models.vocabularies import load_tokenizer

_FILES = ("config.json", TOKENIZER, "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def tokenizer_of(model: Path | HubModel, adapter: Path | None = None) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer, or that of its adapter, from its folder if it is here. Otherwise the
    tokenizer's files alone are fetched.

    Raises ``ModelUnavailable``.
    """
    folder = obtained(model)
    if folder is None:
        assert isinstance(model, HubModel)  # a folder is always here
        folder = _fetched(model)
    return load_tokenizer(tokenizer_folder(folder, adapter))


def _fetched(model: HubModel) -> Path:
    offer, folder = offered(model), models_folder() / "tokenizers" / model.slug
    with hub_errors(model):
        files = {name: fetch_file(model, offer, name, folder.parent) for name in _FILES}
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in files.items():
        if file is not None and not (folder / name).exists():
            (folder / name).symlink_to(file)
    return folder
