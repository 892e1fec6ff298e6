"""A setting in the words of those who run models: what it says runs, and what has no equivalent says so."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.building import method
from fsd_core.errors import UnknownName
from fsd_core.review.delivery import FORMS, deliver, described

PROMPT = "Question: Eva has 21 apples. Eva eats 6. How many apples does Eva have?\nAnswer:"


def setting(pair: str = "bundled", **options: Any) -> SettingConfig:
    return SettingConfig(pair=pair, decoding=method(options))


@pytest.mark.parametrize(
    "options",
    [
        {"threshold": 0.1, "draft_length": 7},
        {"acceptance": "speculative", "drafter": "eagle", "topology": "dynamic-tree", "tree_tokens": 12},
        {"acceptance": "speculative", "drafter": "prompt-lookup"},
        {"acceptance": "fsd", "divergence": "tv", "threshold": 0.2, "temperature": 0.7, "top_p": 0.9},
        {"acceptance": "autoregressive", "max_new_tokens": 9},
    ],
)
def test_the_python_runs_and_writes_what_the_setting_writes(options: dict[str, Any]) -> None:
    import torch

    import fsd_core

    chosen = setting(**{"max_new_tokens": 24} | options)
    torch.manual_seed(0)
    names: dict[str, Any] = {"prompt": PROMPT}
    exec(deliver(chosen, "python"), names)
    prompt, output = names["inputs"]["input_ids"].shape[1], names["output"][0]
    written = names["pair"].tokenizer.decode(output[prompt:], skip_special_tokens=True)
    assert written
    if not chosen.decoding.sampling.greedy:
        return
    assert written == fsd_core.Decoder(names["pair"], config=chosen.decoding).generate(PROMPT).text


def test_json_and_yaml_hold_the_same_and_lead_back_to_the_setting() -> None:
    chosen = setting("qwen2.5-7b", threshold=0.3, draft_length=3)
    data = json.loads(deliver(chosen, "json"))
    assert data == yaml.safe_load(deliver(chosen, "yaml")) == described(chosen)
    assert data["setting"] == chosen.id == setting(data["pair"], **data["options"]).id
    assert set(data["models"]) >= {"target", "draft"}
    assert data["models"]["target"]["hub"].startswith("Qwen/")
    assert described(setting())["models"]["target"] == {"ships as": "bundled/target"}


def test_engines_get_what_they_can_do() -> None:
    exact: dict[str, Any] = {"acceptance": "speculative", "draft_length": 4}
    vllm = deliver(setting("qwen2.5-7b", **exact), "vllm")
    command, _, rest = vllm.partition(" --speculative-config ")
    assert command == "vllm serve Qwen/Qwen2.5-7B-Instruct"
    found = json.loads(rest.strip().strip("'"))
    assert (found["method"], found["num_speculative_tokens"]) == ("draft_model", 4)
    assert found["model"].startswith("Qwen/")
    sglang = deliver(setting("qwen2.5-7b", **exact), "sglang")
    assert "--speculative-algorithm STANDALONE" in sglang
    assert "--speculative-num-steps 4 --speculative-eagle-topk 1" in sglang
    assert "--speculative-num-draft-tokens 5" in sglang
    copied = exact | {"drafter": "prompt-lookup"}
    assert '"method": "ngram"' in deliver(setting("qwen2.5-7b", **copied), "vllm")
    assert "--speculative-algorithm NGRAM" in deliver(setting("qwen2.5-7b", **copied), "sglang")
    eagle = "hub:meta-llama/Llama-3.1-8B-Instruct+meta-llama/Llama-3.2-1B-Instruct+yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
    tree = {"acceptance": "speculative", "drafter": "eagle", "topology": "dynamic-tree", "tree_tokens": 30}
    told = deliver(setting(eagle, **tree), "sglang")
    assert "--speculative-algorithm EAGLE --speculative-draft-model-path yuhuili/EAGLE3" in told
    assert "--speculative-num-draft-tokens 30" in told
    assert "vLLM verifies chains only" in deliver(setting(eagle, **tree), "vllm")
    assert deliver(setting("qwen2.5-7b", acceptance="autoregressive"), "sglang").count("--") == 1
    relaxed = {"acceptance": "threshold-accept", "threshold_acc": 0.7, "temperature": 1.0}
    told = deliver(setting("qwen2.5-7b", **relaxed), "sglang")
    assert "--speculative-accept-threshold-acc 0.7 --speculative-accept-threshold-single 1" in told
    assert "vLLM has no equivalent of Threshold accept" in deliver(setting("qwen2.5-7b", **relaxed), "vllm")
    begun = deliver(setting("qwen2.5-7b", strict_first=2, **relaxed), "sglang")
    assert begun.startswith("SGLang cannot judge the first tokens of an answer strictly")


def test_what_has_no_equivalent_says_so() -> None:
    for engine, name in (("vllm", "vLLM"), ("sglang", "SGLang")):
        lenient = deliver(setting("qwen2.5-7b", threshold=0.1), engine)
        assert lenient.startswith(f"{name} has no equivalent of FSD")
        local = deliver(setting(acceptance="speculative"), engine)
        assert local.startswith(f"{name} loads models of the Hugging Face hub, and the models of 'bundled' are not")
    gone = SettingConfig(pair="path:/nowhere", decoding=RunConfig().setting.decoding)
    assert described(gone)["models"] == {}
    assert deliver(gone, "python").startswith(f"# setting {gone.id}")
    with pytest.raises(UnknownName, match="There is no form 'toml': expected one of python, json"):
        deliver(gone, "toml")
    assert list(FORMS) == ["python", "json", "yaml", "vllm", "sglang"]
