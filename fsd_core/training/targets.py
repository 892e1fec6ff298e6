"""The models that drafts and heads are trained for: that of a pair that ships, or a Llama of one's own."""

from __future__ import annotations

from pathlib import Path

from fsd_core.config.model_names import MODELS
from fsd_core.errors import IncompatibleModels, UnknownName
from fsd_core.models.hub import obtain
from fsd_core.models.json_files import read_object
from fsd_core.models.model_pairs import TARGETS, get_pair
from fsd_core.models.specs import HubModel

Model = Path | HubModel
"""a folder, or a model of the hub"""


def is_own(target: str) -> bool:
    """Return whether a name, ``models:target=…``, says which model is meant."""
    return target.startswith(MODELS)


def target_of(target: str) -> Model:
    """Return the target of a name. Raises ``UnknownName`` for one that nothing is trained for, and as ``get_pair``
    does."""
    if is_own(target):
        return get_pair(target).target
    if target not in TARGETS:
        raise UnknownName(
            f"No draft can be trained for '{target}': expected one of {', '.join(TARGETS)}, or {MODELS}target= and the "
            "folder or id of a Llama."
        )
    return TARGETS[target]


def llama_of(model: Model) -> Path:
    """Return the folder of a model, fetched if it is missing. Raises ``IncompatibleModels`` for what is no Llama, whose
    layers a draft cannot be made of, and as ``obtain`` does."""
    folder = obtain(model)
    kind = read_object(folder / "config.json").get("model_type")
    if kind != "llama":
        raise IncompatibleModels(
            f"{folder.name} is of the architecture {kind}: drafts and heads are trained for Llamas (model_type llama) "
            "alone. Choose one, or draft by copying (ngram, suffix), which needs no training."
        )
    return folder
