"""A setting in the words of those who run models: Python for transformers, JSON, YAML, arguments of serving engines.

Engines verify without loss, so only exact rules have an equivalent there, and in SGLang its two thresholds; where there
is none, a sentence says so. The arguments are those of vLLM 0.12 (``--speculative-config``) and SGLang 0.5
(``--speculative-…``).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.flat import options_read
from fsd_core.errors import FsdError, UnknownName
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.specs import HubModel, PairSpec
from fsd_core.rules import ThresholdAccept

_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "max_new_tokens")


def deliver(setting: SettingConfig, form: str) -> str:
    """The setting in one of :data:`FORMS`. Raises ``UnknownName`` for another form."""
    if form not in FORMS:
        raise UnknownName(f"There is no form '{form[:40]}': expected one of {', '.join(FORMS)}.")
    return FORMS[form](setting)


def described(setting: SettingConfig) -> dict[str, Any]:
    """The setting as plain data: its id, its pair with where the models are, and its options by name."""
    spec = _spec(setting)
    models: dict[str, Any] = {}
    if spec is not None:
        parts = {"target": spec.target, "draft": spec.draft, "head": spec.head, "adapter": spec.adapter}
        models = {role: _where(model) for role, model in parts.items() if model is not None}
    return {"setting": setting.id, "pair": setting.pair, "models": models, "options": _options(setting)}


def _json(setting: SettingConfig) -> str:
    return json.dumps(described(setting), indent=2, ensure_ascii=False) + "\n"


def _yaml(setting: SettingConfig) -> str:
    return yaml.safe_dump(described(setting), sort_keys=False, allow_unicode=True)


def _python(setting: SettingConfig) -> str:
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
    return (
        f"# setting {setting.id}\nimport fsd_core\n\npair = fsd_core.load_pair({setting.pair!r})\n"
        'inputs = pair.tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)\n'
        "output = pair.target.module.generate(\n    **inputs,\n" + "\n".join(lines) + "\n)\n"
    )


def _vllm(setting: SettingConfig) -> str:
    if said := _no_engine(setting, "vLLM"):
        return said
    decoding, options = setting.decoding, _options(setting)
    target, draft, head = _models(setting)
    flags = f"vllm serve {target}"
    if decoding.drafter is None:
        return flags + "\n"
    speculative: dict[str, Any] = {"num_speculative_tokens": options["draft_length"]}
    match options["drafter"]:
        case "prompt-lookup":
            speculative |= {"method": "ngram", "prompt_lookup_max": options["max_ngram"]}
        case "eagle":
            speculative |= {"method": "eagle", "model": head}
        case _:
            speculative |= {"method": "draft_model", "model": draft}
    if options["topology"] != "chain":
        return "vLLM verifies chains only, and this setting drafts a tree: there is no equivalent.\n"
    return f"{flags} --speculative-config '{json.dumps(speculative)}'\n"


def _sglang(setting: SettingConfig) -> str:
    if said := _no_engine(setting, "SGLang", "threshold-accept"):
        return said
    decoding, options = setting.decoding, _options(setting)
    target, draft, head = _models(setting)
    flags = [f"python -m sglang.launch_server --model-path {target}"]
    if decoding.drafter is None:
        return flags[0] + "\n"
    length, tree = options["draft_length"], options["topology"] != "chain"
    drafter = options["drafter"]
    if drafter == "prompt-lookup":
        flags.append(f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {length}")
    elif tree and drafter != "eagle":
        return "SGLang drafts trees with EAGLE heads only, and this setting drafts one with a model: no equivalent.\n"
    else:
        algorithm, model = ("EAGLE", head) if drafter == "eagle" else ("STANDALONE", draft)
        width, tokens = (options["tree_top_k"], options["tree_tokens"]) if tree else (1, length + 1)
        flags += [
            f"--speculative-algorithm {algorithm} --speculative-draft-model-path {model}",
            f"--speculative-num-steps {length} --speculative-eagle-topk {width}",
            f"--speculative-num-draft-tokens {tokens}",
        ]
    if isinstance(rule := decoding.acceptance, ThresholdAccept):
        flags.append(
            f"--speculative-accept-threshold-acc {rule.threshold_acc:g} "
            f"--speculative-accept-threshold-single {rule.threshold_single:g}"
        )
    return " \\\n  ".join(flags) + "\n"


def _no_engine(setting: SettingConfig, engine: str, *lossy: str) -> str | None:
    """Why an engine cannot do what the setting asks for; ``None`` where it can. ``lossy``: kinds of its own rules."""
    rule, spec = setting.decoding.acceptance, _spec(setting)
    if rule.kind not in ("autoregressive", "speculative", *lossy):
        return f"{engine} has no equivalent of {rule.title}: it verifies exactly, or by rules of its own.\n"
    if setting.decoding.strict_first:
        return f"{engine} cannot judge the first tokens of an answer strictly and the others by {rule.title}.\n"
    if spec is None or not isinstance(spec.target, HubModel) or spec.adapter is not None:
        return f"{engine} loads models of the Hugging Face hub, and the models of '{setting.pair}' are not there.\n"
    parts = {"draft-model": spec.draft, "eagle": spec.head}
    drafter = setting.decoding.drafter
    if drafter is not None and drafter.kind in parts and not isinstance(parts[drafter.kind], HubModel):
        return f"{engine} loads models of the Hugging Face hub, and what drafts for '{setting.pair}' is not there.\n"
    return None


def _models(setting: SettingConfig) -> tuple[str, str, str]:
    """The names at the hub of target, draft and head; empty for those that are not there."""
    spec = _spec(setting)
    assert spec is not None
    target, draft, head = (
        model.repo if isinstance(model, HubModel) else "" for model in (spec.target, spec.draft, spec.head)
    )
    return target, draft, head


def _options(setting: SettingConfig) -> dict[str, Any]:
    return options_read(RunConfig(setting=setting))


def _spec(setting: SettingConfig) -> PairSpec | None:
    """The pair; ``None`` for one that this machine does not know."""
    try:
        return get_pair(setting.pair)
    except FsdError:
        return None


def _where(model: Path | HubModel) -> dict[str, str]:
    if isinstance(model, HubModel):
        return {"hub": model.repo, "revision": model.revision}
    return {"ships as": "/".join(model.parts[-2:])}


FORMS: dict[str, Callable[[SettingConfig], str]] = {
    "python": _python, "json": _json, "yaml": _yaml, "vllm": _vllm, "sglang": _sglang,
}  # fmt: skip
"""by the name that addresses give them"""
