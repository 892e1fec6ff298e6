"""Names that say which models a pair is made of, by their ids at the hub or their folders.

Such a name is ``models:target=/models/mine;draft=Qwen/Qwen2.5-0.5B-Instruct;adapter=/models/lora``. ``target`` is
required. ``draft``, ``head``, ``adapter`` (of the target) and ``draft-adapter`` may be left out. A folder is given
whole, from the root. A model of the hub may have ``@REVISION``; adapters are folders. ``;dtype=bfloat16`` is the dtype
of runs whose setting names none, and ``;template={"name": "value"}`` are arguments of the chat template where a setting
gives none of their name.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import get_args
from weakref import WeakMethod

from fsd_core.config.decoding_config import TemplateConfig
from fsd_core.config.run_config import Dtype
from fsd_core.errors import InvalidSetting, Malformed, NotGiven, OutOfRange, UnknownChoice, UnknownName

MODELS = "models:"
MODEL_ROLES = ("target", "draft", "head", "adapter", "draft-adapter")
"""in the order in which a name has them"""
ADAPTERS = ("adapter", "draft-adapter")
HUB_ID = re.compile(r"(?P<repo>\w[\w.-]*/\w[\w.-]*)(@(?P<revision>\w[\w.-]*))?")
PAIR_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,39}")
"""the names that people may give to pairs"""
LONGEST_NAME = 2000
"""bytes, for databases hold no longer ones"""
_TEMPLATE = "template"
_DTYPE, _AUTO = "dtype", "auto"
_DTYPES = get_args(Dtype)


def name_of_models(models: Mapping[str, str]) -> str:
    """Return the name of a pair made of these models, by role, its ``dtype``, and its ``template``'s arguments. Empty
    texts are left out.

    Raises ``InvalidSetting`` for a model that is neither an id of the hub nor a whole folder, for another role or
    dtype, without a target, and for arguments that are no JSON object.
    """
    if unknown := sorted({*models} - {*MODEL_ROLES, _DTYPE, _TEMPLATE}):
        raise UnknownChoice(f"The role {unknown[0][:40]!r} is unknown: expected {', '.join(MODEL_ROLES)}.")
    given = {role: text for role in MODEL_ROLES if (text := str(models.get(role, "")).strip())}
    if "target" not in given:
        raise NotGiven("The target is empty: expected OWNER/NAME of the hub, or a folder such as /models/mine.")
    for role, value in given.items():
        check_model(role, value)
    parts = {role: _written(value) for role, value in given.items()}
    if arguments := TemplateConfig.checked(arguments=models.get(_TEMPLATE, "")).arguments:
        if ";" in arguments:
            raise Malformed("The template arguments of a pair cannot have a semicolon: give them with each setting.")
        parts[_TEMPLATE] = arguments
    dtype = models.get(_DTYPE) or _AUTO
    if dtype not in _DTYPES:
        raise UnknownChoice(f"The dtype {dtype[:40]!r} is unknown: expected {', '.join(_DTYPES)}.")
    if dtype != _AUTO:
        parts[_DTYPE] = dtype
    return checked_length(MODELS + ";".join(f"{part}={value}" for part, value in parts.items()))


def checked_length(name: str) -> str:
    """Return a pair's name. Raises ``InvalidSetting`` for one that no database holds."""
    if (length := len(name.encode("utf-8", "replace"))) > LONGEST_NAME:
        raise OutOfRange(
            f"The names of the pair's models have {length:,} bytes together: expected at most {LONGEST_NAME:,}. Move "
            "the folders, or link to them from a shorter path."
        )
    return name


def models_of(name: str) -> dict[str, str]:
    """Return the models by role that a name says. Raises ``UnknownName`` for a name of another form."""
    return {role: value for role, value in parts_of(name).items() if role not in (_DTYPE, _TEMPLATE)}


def dtype_of(name: str) -> str:
    """Return the dtype that a name says, or ``auto``. Raises as :func:`models_of` does."""
    return parts_of(name).get(_DTYPE, _AUTO)


def template_arguments_of(name: str) -> str:
    """Return the template arguments that a pair's name says, as JSON; empty if none.

    Raises as :func:`models_of` does.
    """
    return parts_of(name).get(_TEMPLATE, "") if name.startswith(MODELS) else ""


def parts_of(name: str) -> dict[str, str]:
    """Return what a name says, as :func:`name_of_models` takes it. Raises ``UnknownName`` for one of another form."""
    parts = [part.partition("=") for part in name.removeprefix(MODELS).split(";")]
    given = {part: value for part, _, value in parts}
    if (
        "target" not in given
        or len(given) < len(parts)
        or not set(given) <= {*MODEL_ROLES, _DTYPE, _TEMPLATE}
        or given.get(_DTYPE, _AUTO) not in _DTYPES
        or not all(given.values())
    ):
        raise UnknownName(
            f"'{name[:80]}' names no models: expected {MODELS}target=MODEL, and of {', '.join(MODEL_ROLES[1:])} those "
            "that there are, such as ;draft=MODEL."
        )
    return given


def is_name_of_models(name: str) -> bool:
    """Return whether a name says models in the form of this module."""
    try:
        return name.startswith(MODELS) and name_of_models(parts_of(name)) == name
    except (UnknownName, InvalidSetting):
        return False


_given: list[WeakMethod[Callable[[], Mapping[str, str]]]] = []


def take_names(given: WeakMethod[Callable[[], Mapping[str, str]]] | None) -> None:
    """Call pairs as people did, while ``given`` lives: it returns the names that they gave, by the names that say the
    models. ``None``: call them by their models."""
    _given[:] = [*(earlier for earlier in _given if earlier()), given] if given else []


def title_of_models(name: str) -> str:
    """Return what the pair whose models a name says is called: the name that somebody gave it, or else its models, such
    as ``mine with Qwen2.5-0.5B, bfloat16``.

    It is empty for other names.
    """
    if not is_name_of_models(name):
        return ""
    names = next(filter(None, (given() for given in reversed(_given))), dict)
    if name in (given := names()):
        return given[name]
    models = {role: value.rpartition("/")[2] for role, value in models_of(name).items()}
    title = models["target"] + (f" with {models['draft']}" if "draft" in models else "")
    dtype = [dtype_of(name)] if dtype_of(name) != _AUTO else []
    return ", ".join([title, *dtype, *TemplateConfig.checked(arguments=template_arguments_of(name)).label_parts()])


def called(pair: str) -> str:
    """Return what models of one's own are called, and of any other pair its name."""
    return title_of_models(pair) or pair


def folder_of(value: str) -> Path:
    """Return the folder that somebody has named. A ``~`` of a person who is not known here stays as it is."""
    try:
        return Path(value).expanduser()
    except RuntimeError:
        return Path(value)


def check_model(role: str, value: str) -> None:
    """Raise ``InvalidSetting`` for a model that is neither an id of the hub nor a whole folder."""
    is_adapter = role in ADAPTERS
    if not is_adapter and HUB_ID.fullmatch(value):
        return
    if not folder_of(value).is_absolute() or ";" in value or not value.isprintable():
        expected = "a folder" if is_adapter else "OWNER/NAME of the hub, or a folder"
        raise Malformed(
            f"The {role} {value[:80]!r} cannot be used: expected {expected} such as /models/mine, without a semicolon."
        )


def _written(value: str) -> str:
    return value if HUB_ID.fullmatch(value) else str(folder_of(value))
