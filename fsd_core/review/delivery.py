"""Exports of a setting for those who run models: Python for transformers, JSON, YAML, arguments of serving engines.

``weights`` are the measured weights by role. With them, every form names exactly these weights, or is refused.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.flat import options_read
from fsd_core.config.model_names import HUB_ID, is_name_of_models, parts_of
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import NoEquivalent, UnknownName
from fsd_core.models.model_pairs import ASSETS
from fsd_core.models.specs import HubModel
from fsd_core.review.engines import Weights, sglang, vllm
from fsd_core.review.measured_weights import hub_model_of, pinned, pinned_name
from fsd_core.rules import Served
from fsd_core.storage.records import fingerprint_of

_ELSEWHERE = "on the machine where it was measured; write where the same weights are on yours"
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "max_new_tokens")


def deliver(setting: SettingConfig, form: str, weights: Weights | None = None) -> str:
    """Return the setting in one of :data:`FORMS`. Raises ``UnknownName`` for another form, and
    ``NoEquivalent`` where an engine cannot run the setting."""
    if form not in FORMS:
        raise UnknownName(f"There is no form '{form[:40]}': expected one of {', '.join(FORMS)}.")
    if setting.decoding.acceptance.logged:
        raise NoEquivalent("It was measured elsewhere, by a program of its own: there is nothing here to run.")
    return FORMS[form](setting, weights or {})


def described(setting: SettingConfig, weights: Weights | None = None) -> dict[str, Any]:
    """Return the setting as plain data: id, pair, locations of the models, options by name, and weights."""
    weights = weights or {}
    spec = pinned(setting.pair, weights)
    models: dict[str, Any] = {}
    if spec is not None:
        parts = {
            "target": spec.target,
            "draft": spec.draft,
            "head": spec.head,
            "adapter": spec.adapter,
            "draft adapter": spec.draft_adapter,
        }
        models = {role: _location(model) for role, model in parts.items() if model is not None}
    if isinstance(served := setting.decoding.acceptance, Served):
        models = {"endpoint": served.as_json()}
    description = {"setting": setting.id, "pair": setting.pair, "models": models, "options": _options(setting)}
    return description | ({"weights": dict(weights)} if weights else {})


def _json(setting: SettingConfig, weights: Weights) -> str:
    return json.dumps(described(setting, weights), indent=2, ensure_ascii=False) + "\n"


def _yaml(setting: SettingConfig, weights: Weights) -> str:
    return yaml.safe_dump(described(setting, weights), sort_keys=False, allow_unicode=True)


def _python(setting: SettingConfig, weights: Weights) -> str:
    if setting.decoding.acceptance.by_endpoint:
        raise NoEquivalent("A running engine was measured, which is served and not called from Python.")
    options = _options(setting)
    given = [
        f", {METHOD_OPTIONS[name].field}={options.pop(name)!r}"
        for name in tuple(options)
        if METHOD_OPTIONS[name].part == "template"
    ]
    sampling = {name: options.pop(name) for name in _SAMPLING if name in options}
    if options["acceptance"] == "autoregressive":
        options = {}
    arguments = {"max_new_tokens": sampling["max_new_tokens"], "do_sample": sampling["temperature"] > 0}
    if arguments["do_sample"]:
        arguments |= {name: sampling[name] for name in _SAMPLING if name in sampling}
    lines = [f"    {name}={value!r}," for name, value in arguments.items()]
    if options:
        head = " head=pair.head," if options.get("drafter") == "eagle" else ""
        head += " tokenizer=pair.tokenizer," if "lenient_in" in options else ""
        draft = " draft_model=pair.draft.module," if options.get("drafter") == "draft-model" else ""
        lines.append(f"    custom_generate=fsd_core.generate,{draft}{head}")
        lines += [f"    {name}={value!r}," for name, value in options.items()]
    where, pair = _to_load(setting.pair, weights)
    if weights:
        pair += f", weights={ {role: fingerprint_of(origin) for role, origin in weights.items()} }"
    return (
        f"# setting {setting.id}\nimport fsd_core\n\n{where}pair = fsd_core.load_pair({pair})\n"
        f"inputs = pair.inputs(prompt{''.join(given)})\n"
        "output = pair.target.module.generate(\n    **inputs,\n" + "\n".join(lines) + "\n)\n"
    )


def _to_load(pair: str, weights: Weights) -> tuple[str, str]:
    """Return a line that says which folders to load, if any, and the argument of ``load_pair``."""
    if pair.startswith("path:"):
        return f"folder = {pair.removeprefix('path:')!r}  # {_ELSEWHERE}\n", 'f"path:{folder}"'
    if not is_name_of_models(pair):
        return "", repr(pinned_name(pair, weights))
    models = parts_of(pair)
    for role, model in models.items():
        if HUB_ID.fullmatch(model) and (measured := hub_model_of(weights.get(role, ""))):
            models[role] = f"{measured.repo}@{measured.revision}"
    return f"models = {models}  # {_ELSEWHERE}\n", "models"


def _options(setting: SettingConfig) -> dict[str, Any]:
    return options_read(RunConfig(setting=setting))


def _location(model: Path | HubModel) -> dict[str, str]:
    if isinstance(model, HubModel):
        return {"hub": model.repo, "revision": model.revision}
    return {"ships as": "/".join(model.parts[-2:])} if model.is_relative_to(ASSETS) else {"folder": str(model)}


FORMS: dict[str, Callable[[SettingConfig, Weights], str]] = {
    "python": _python, "json": _json, "yaml": _yaml, "vllm": vllm, "sglang": sglang,
}  # fmt: skip
"""by their name in URLs"""
