"""A setting in the words of those who run models: Python for transformers, JSON, YAML, arguments of serving engines.

Engines verify without loss, so only exact rules have an equivalent there, and in SGLang its two thresholds; where there
is none, a sentence says so. The arguments are those of vLLM 0.12 (``--speculative-config``) and SGLang 0.5
(``--speculative-…``).

``weights`` are what was measured, by role: then every form names exactly them, or says why it cannot.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.flat import options_read
from fsd_core.errors import UnknownName
from fsd_core.models.specs import MAIN, HubModel
from fsd_core.review.measured_weights import hub_model_of, pinned, pinned_name
from fsd_core.rules import ThresholdAccept
from fsd_core.tracking.records import fingerprint_of

Weights = Mapping[str, str]

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "max_new_tokens")


def deliver(setting: SettingConfig, form: str, weights: Weights | None = None) -> str:
    """The setting in one of :data:`FORMS`. Raises ``UnknownName`` for another form."""
    if form not in FORMS:
        raise UnknownName(f"There is no form '{form[:40]}': expected one of {', '.join(FORMS)}.")
    return FORMS[form](setting, weights or {})


def described(setting: SettingConfig, weights: Weights | None = None) -> dict[str, Any]:
    """The setting as plain data: its id, its pair with where the models are, its options by name, and the weights."""
    weights = weights or {}
    spec = pinned(setting.pair, weights)
    models: dict[str, Any] = {}
    if spec is not None:
        parts = {"target": spec.target, "draft": spec.draft, "head": spec.head, "adapter": spec.adapter}
        models = {role: _where(model) for role, model in parts.items() if model is not None}
    told = {"setting": setting.id, "pair": setting.pair, "models": models, "options": _options(setting)}
    return told | ({"weights": dict(weights)} if weights else {})


def _json(setting: SettingConfig, weights: Weights) -> str:
    return json.dumps(described(setting, weights), indent=2, ensure_ascii=False) + "\n"


def _yaml(setting: SettingConfig, weights: Weights) -> str:
    return yaml.safe_dump(described(setting, weights), sort_keys=False, allow_unicode=True)


def _python(setting: SettingConfig, weights: Weights) -> str:
    options = _options(setting)
    sampling = {name: options.pop(name) for name in _SAMPLING if name in options}
    if options["acceptance"] == "autoregressive":
        options = {}
    arguments = {"max_new_tokens": sampling["max_new_tokens"], "do_sample": sampling["temperature"] > 0}
    if arguments["do_sample"]:
        arguments |= {name: sampling[name] for name in _SAMPLING if name in sampling}
    lines = [f"    {name}={value!r}," for name, value in arguments.items()]
    if options:
        head = " head=pair.head," if options.get("drafter") == "eagle" else ""
        lines.append(f"    custom_generate=fsd_core.generate, draft_model=pair.draft.module,{head}")
        lines += [f"    {name}={value!r}," for name, value in options.items()]
    pair = repr(pinned_name(setting.pair, weights))
    if weights:
        pair += f", weights={ {role: fingerprint_of(told) for role, told in weights.items()} }"
    return (
        f"# setting {setting.id}\nimport fsd_core\n\npair = fsd_core.load_pair({pair})\n"
        'inputs = pair.tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)\n'
        "output = pair.target.module.generate(\n    **inputs,\n" + "\n".join(lines) + "\n)\n"
    )


def _vllm(setting: SettingConfig, weights: Weights) -> str:
    if said := _no_engine(setting, weights, "vLLM"):
        return said
    decoding, options = setting.decoding, _options(setting)
    target, drafts = _models(setting, weights)
    flags = f"vllm serve {target.repo}{_flag('--revision', target)}"
    if decoding.drafter is None:
        return flags + "\n"
    speculative: dict[str, Any] = {"num_speculative_tokens": options["draft_length"]}
    match options["drafter"]:
        case "prompt-lookup":
            speculative |= {"method": "ngram", "prompt_lookup_max": options["max_ngram"]}
        case "eagle":
            speculative |= {"method": "eagle", "model": drafts.repo}
        case _:
            speculative |= {"method": "draft_model", "model": drafts.repo}
    if "model" in speculative and drafts.revision != MAIN:
        speculative["revision"] = drafts.revision
    if options["topology"] != "chain":
        return "vLLM verifies chains only, and this setting drafts a tree: there is no equivalent.\n"
    return f"{flags} --speculative-config '{json.dumps(speculative)}'\n"


def _sglang(setting: SettingConfig, weights: Weights) -> str:
    if said := _no_engine(setting, weights, "SGLang", "threshold-accept"):
        return said
    decoding, options = setting.decoding, _options(setting)
    target, drafts = _models(setting, weights)
    flags = [f"python -m sglang.launch_server --model-path {target.repo}{_flag('--revision', target)}"]
    if decoding.drafter is None:
        return flags[0] + "\n"
    length, tree = options["draft_length"], options["topology"] != "chain"
    drafter = options["drafter"]
    if drafter == "prompt-lookup":
        flags.append(f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {length}")
    elif tree and drafter != "eagle":
        return "SGLang drafts trees with EAGLE heads only, and this setting drafts one with a model: no equivalent.\n"
    else:
        algorithm = "EAGLE" if drafter == "eagle" else "STANDALONE"
        width, tokens = (options["tree_top_k"], options["tree_tokens"]) if tree else (1, length + 1)
        flags += [
            f"--speculative-algorithm {algorithm} --speculative-draft-model-path {drafts.repo}"
            f"{_flag('--speculative-draft-model-revision', drafts)}",
            f"--speculative-num-steps {length} --speculative-eagle-topk {width}",
            f"--speculative-num-draft-tokens {tokens}",
        ]
    if isinstance(rule := decoding.acceptance, ThresholdAccept):
        flags.append(
            f"--speculative-accept-threshold-acc {rule.threshold_acc:g} "
            f"--speculative-accept-threshold-single {rule.threshold_single:g}"
        )
    return " \\\n  ".join(flags) + "\n"


def _no_engine(setting: SettingConfig, weights: Weights, engine: str, *lossy: str) -> str | None:
    """Why an engine cannot do what the setting asks for; ``None`` where it can. ``lossy``: kinds of its own rules."""
    rule, spec = setting.decoding.acceptance, pinned(setting.pair, weights)
    if rule.kind not in ("autoregressive", "speculative", *lossy):
        return f"{engine} has no equivalent of {rule.title}: it verifies exactly, or by rules of its own.\n"
    if setting.decoding.strict_first:
        return f"{engine} cannot judge the first tokens of an answer strictly and the others by {rule.title}.\n"
    if spec is None or not isinstance(spec.target, HubModel) or spec.adapter is not None:
        return f"{engine} loads models of the Hugging Face hub, and the models of '{setting.pair}' are not there.\n"
    role = _drafts_with(setting)
    if role is not None and not isinstance(getattr(spec, role), HubModel):
        return f"{engine} loads models of the Hugging Face hub, and what drafts for '{setting.pair}' is not there.\n"
    for used in filter(None, ("target", role)):
        if used in weights and hub_model_of(weights[used]) is None:
            return f"{engine} loads models of the Hugging Face hub, and the {used} that was measured is not of there.\n"
    return None


def _drafts_with(setting: SettingConfig) -> Literal["draft", "head"] | None:
    """The model of the pair that drafts; ``None`` where none does."""
    drafter = setting.decoding.drafter
    if drafter is None:
        return None
    return "head" if drafter.kind == "eagle" else "draft" if drafter.kind == "draft-model" else None


def _models(setting: SettingConfig, weights: Weights) -> tuple[HubModel, HubModel]:
    """The target, and what drafts for it, at the hub; the target again where no model does."""
    spec = pinned(setting.pair, weights)
    assert spec is not None
    drafts = getattr(spec, _drafts_with(setting) or "target")
    assert isinstance(spec.target, HubModel)
    assert isinstance(drafts, HubModel)
    return spec.target, drafts


def _flag(name: str, model: HubModel) -> str:
    return "" if model.revision == MAIN else f" {name} {model.revision}"


def _options(setting: SettingConfig) -> dict[str, Any]:
    return options_read(RunConfig(setting=setting))


def _where(model: Path | HubModel) -> dict[str, str]:
    if isinstance(model, HubModel):
        return {"hub": model.repo, "revision": model.revision}
    return {"ships as": "/".join(model.parts[-2:])}


FORMS: dict[str, Callable[[SettingConfig, Weights], str]] = {
    "python": _python, "json": _json, "yaml": _yaml, "vllm": _vllm, "sglang": _sglang,
}  # fmt: skip
"""by the name that addresses give them"""
