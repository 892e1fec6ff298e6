"""Arguments of serving engines for a setting, where they have its equivalent; a sentence where they have none.

Read from the programs of vLLM 0.33.0 (``--speculative-config``) and SGLang 0.5.23 (``--speculative-…``), whose parsers
take what is written here (``python -m tests.tools.load.engine_arguments``). Both verify without loss by default and
have block verification; SGLang has its two thresholds as well. A comment says what each request has to carry, and what
the engine does otherwise than the run that was measured.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal

from fsd_core.config import RunConfig, SamplingConfig, SettingConfig
from fsd_core.config.flat import options_read
from fsd_core.models.specs import MAIN, HubModel
from fsd_core.review.measured_weights import hub_model_of, pinned
from fsd_core.rules import ThresholdAccept

Weights = Mapping[str, str]
"""what was measured, by role"""


def vllm(setting: SettingConfig, weights: Weights) -> str:
    """``vllm serve`` with a ``--speculative-config``."""
    if said := _none(setting, weights, "vLLM"):
        return said
    if _shape(setting) not in (None, "chain"):
        return "vLLM verifies one chain, and this setting drafts more than that: there is no equivalent.\n"
    target, drafts = _models(setting, weights)
    flags = [
        f"vllm serve {target.repo}{_flag('--revision', target)}",
        f"--generation-config vllm --override-generation-config {_json(_sampling(setting, 'max_new_tokens'))}",
    ]
    if setting.decoding.drafter is not None:
        flags.append(f"--speculative-config {_json(_of_vllm(setting, drafts))}")
    return f"# vLLM 0.33, setting {setting.id}\n{_command(flags)}"


def _of_vllm(setting: SettingConfig, drafts: HubModel) -> dict[str, Any]:
    decoding, options = setting.decoding, options_read(RunConfig(setting=setting))
    assert decoding.drafter is not None
    told: dict[str, Any] = {"num_speculative_tokens": options["draft_length"]}
    if decoding.drafter.kind == "prompt-lookup":
        # Left out, the shortest n-gram would be as long as the longest.
        told |= {"method": "ngram", "prompt_lookup_max": options["max_ngram"], "prompt_lookup_min": 1}
    else:
        method = _head(drafts).lower() if decoding.drafter.kind == "eagle" else "draft_model"
        told |= {"method": method, "model": drafts.repo}
        if drafts.revision != MAIN:
            told["revision"] = drafts.revision
        if _drawn(setting):
            told["draft_sample_method"] = "probabilistic"
    if _block(setting):
        told["rejection_sample_method"] = "block"
    return told


def sglang(setting: SettingConfig, weights: Weights) -> str:
    """``sglang.launch_server`` with ``--speculative-…``."""
    if said := _none(setting, weights, "SGLang", "threshold-accept"):
        return said
    target, drafts = _models(setting, weights)
    flags = [
        f"python -m sglang.launch_server --model-path {target.repo}{_flag('--revision', target)}",
        "--sampling-defaults openai",
    ]
    notes = [
        f"# SGLang 0.5.23, setting {setting.id}\n",
        f"# With each request: {json.dumps(_sampling(setting, 'max_tokens'))}\n",
    ]
    if (drafter := setting.decoding.drafter) is not None:
        shape = _shape(setting)
        if shape != "chain" and (shape, drafter.kind) != ("dynamic-tree", "eagle"):
            return "SGLang drafts one chain, or a tree with an EAGLE head: there is no equivalent of this setting.\n"
        if _block(setting) and drafter.kind != "eagle":
            return "SGLang verifies as a block with EAGLE heads only: there is no equivalent of this setting.\n"
        if drafter.kind == "prompt-lookup":
            notes.append("# SGLang copies from the texts of other requests, too: the acceptance differs.\n")
        elif _drawn(setting) and drafter.kind != "eagle":
            notes.append("# SGLang drafts likeliest tokens: the texts follow the same law, the acceptance differs.\n")
        flags += _of_sglang(setting, drafts)
    return "".join(notes) + _command(flags)


def _of_sglang(setting: SettingConfig, drafts: HubModel) -> list[str]:
    options, rule = options_read(RunConfig(setting=setting)), setting.decoding.acceptance
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
            f"--speculative-algorithm {_head(drafts) if eagle else 'STANDALONE'}"
            f" --speculative-draft-model-path {drafts.repo}{_flag('--speculative-draft-model-revision', drafts)}",
            f"--speculative-num-steps {length} --speculative-eagle-topk {width}",
            f"--speculative-num-draft-tokens {tokens}",
        ]
        if eagle and _drawn(setting):
            flags.append("--speculative-use-rejection-sampling")
        if _block(setting):
            flags.append("--speculative-use-block-verification")
    if isinstance(rule, ThresholdAccept):
        flags.append(
            f"--speculative-accept-threshold-acc {rule.threshold_acc:g} "
            f"--speculative-accept-threshold-single {rule.threshold_single:g}"
        )
    return flags


def _none(setting: SettingConfig, weights: Weights, engine: str, *lossy: str) -> str | None:
    """Why an engine cannot do what the setting asks for; ``None`` where it can. ``lossy``: kinds of its own rules."""
    rule, spec = setting.decoding.acceptance, pinned(setting.pair, weights)
    if rule.kind not in ("autoregressive", "speculative", "block", *lossy):
        return (
            f"{engine} has no equivalent of {rule.title}: it verifies exactly, or by rules of its own. The form for "
            "Python runs it, with transformers.\n"
        )
    if setting.decoding.strict_first:
        return f"{engine} cannot judge the first tokens of an answer strictly and the others by {rule.title}.\n"
    sampling, role = setting.decoding.sampling, _drafts_with(setting)
    if setting.decoding.drafter is not None and sampling.min_p and not sampling.greedy:
        return f"{engine} does not apply min-p where it decodes speculatively: there is no equivalent.\n"
    hub = f"{engine} is given models of the Hugging Face hub, and"
    if spec is None or not isinstance(spec.target, HubModel) or spec.adapter is not None:
        return f"{hub} those of '{setting.pair}' are not there.\n"
    if role is not None and not isinstance(getattr(spec, role), HubModel):
        return f"{hub} what drafts for '{setting.pair}' is not there.\n"
    for used in filter(None, ("target", role)):
        if used in weights and hub_model_of(weights[used]) is None:
            return f"{hub} the {used} that was measured did not come from there.\n"
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


def _shape(setting: SettingConfig) -> str | None:
    return setting.decoding.topology.kind if setting.decoding.topology else None


def _drawn(setting: SettingConfig) -> bool:
    """Whether a draft is drawn from the drafter's distribution."""
    decoding = setting.decoding
    return _shape(setting) == "chain" and not decoding.sampling.greedy and not decoding.acceptance.greedy_draft


def _block(setting: SettingConfig) -> bool:
    """Whether tokens are verified as a block; greedily that is exact SD."""
    return setting.decoding.acceptance.kind == "block" and _drawn(setting)


def _head(model: HubModel) -> str:
    """The generation of a head, which its repository's name tells, as vLLM reads it."""
    return "EAGLE3" if "eagle3" in model.repo.lower() else "EAGLE"


def _flag(name: str, model: HubModel) -> str:
    return "" if model.revision == MAIN else f" {name} {model.revision}"


def _sampling(setting: SettingConfig, length: str) -> dict[str, Any]:
    """How the setting samples, and under the name ``length`` its longest answer; not the defaults of a model's own
    ``generation_config.json``, which engines would take."""
    sampling = setting.decoding.sampling
    told: dict[str, Any] = {"temperature": sampling.temperature}
    if not sampling.greedy:
        cuts = {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
        told |= {name: value for name, value in cuts.items() if value != getattr(SamplingConfig(), name)}
    return told | {length: setting.decoding.max_new_tokens}


def _json(told: dict[str, Any]) -> str:
    return f"'{json.dumps(told)}'"


def _command(flags: list[str]) -> str:
    return " \\\n  ".join(flags) + "\n"
