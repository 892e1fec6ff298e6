"""The models that drafts and heads are trained for: that of a pair that ships, or a Llama of one's own."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from fsd_core.config.model_names import MODELS
from fsd_core.errors import IncompatibleModels, UnknownName
from fsd_core.models.hub import obtain
from fsd_core.models.json_files import read_object
from fsd_core.models.loading import resolve_device
from fsd_core.models.model_pairs import TARGETS, get_pair
from fsd_core.models.specs import HubModel

Model = Path | HubModel
"""a folder, or a model of the hub"""
_SIDE_BY_SIDE = 1024
"""texts that a GPU writes at once"""


def is_own(target: str) -> bool:
    """Return whether a name, ``models:target=…``, says which model is meant."""
    return target.startswith(MODELS)


def check_target(target: str, known: Collection[str], what: str) -> None:
    """Raise ``UnknownName`` for a target that is neither among the ``known`` nor one's own."""
    if target not in known and not is_own(target):
        raise UnknownName(
            f"No {what} can be trained for '{target}': expected one of {', '.join(known)}, or {MODELS}target= and the "
            "folder or id of a Llama."
        )


def target_of(target: str) -> Model:
    """Return the model of a name that a draft is trained for. Raises ``UnknownName``, and as ``get_pair`` does."""
    check_target(target, TARGETS, "draft")
    return get_pair(target).target if is_own(target) else TARGETS[target]


def writing(target: str, texts: int, own_prompts: int | None, device: str) -> dict[str, Any]:
    """Return the fields of a plan that say how texts are written.

    ``own_prompts``: ``None`` for none, or for all of a target of one's own. A GPU writes many side by side, and each
    batch is read anew. Raises ``InvalidSetting`` for a device that is not here.
    """
    own = (texts if is_own(target) else 0) if own_prompts is None else own_prompts
    on_gpu = resolve_device(device).type != "cpu"
    return {"texts": texts, "own_prompts": own} | ({"anew": True, "side_by_side": _SIDE_BY_SIDE} if on_gpu else {})


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
