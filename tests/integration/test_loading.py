"""Pairs load from safetensors; what is missing, broken or unlike is refused, and the badge says the same."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, normalizers
from tokenizers.processors import TemplateProcessing
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma2ForCausalLM,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

from fsd_core.config import Autoregressive, DecodingConfig, Speculative, TemplateConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import IncompatibleModels, ModelUnavailable, UnknownChoice, UnknownName
from fsd_core.evaluation.harness import written
from fsd_core.models.conversation import split_thoughts
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.load_failures import weight_bytes
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.pair_check import HERE, UNUSABLE, DeviceMemory, check_pair, fingerprint
from fsd_core.models.prompt import encode_prompt
from fsd_core.models.sources import weights_among, with_marks
from fsd_core.storage.records import same_model
from fsd_core.tasks.base import Example
from fsd_core.tasks.custom.scorers import get_scorer
from fsd_core.testing import END, save_toy_pair, toy_model, toy_pair, toy_tokenizer
from tests.tools.sizes import some
from tests.tools.toy_families import toy_family


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_toy_pair(tmp_path)
    return tmp_path


def test_a_local_pair_loads(folder):
    pair = load_pair(f"path:{folder}", device="cpu")
    assert pair.target.vocabulary == pair.draft.vocabulary == len(pair.tokenizer)
    assert (pair.device, pair.dtype) == ("cpu", "float32")
    assert set(pair.weights) == {"target", "draft", "configuration"}
    assert len(set(pair.weights.values())) == 3


@pytest.mark.parametrize("role", ["target", "draft"])
def test_the_files_beside_the_weights_have_a_fingerprint_of_their_own(folder, role):
    """A template or an end token decides what is measured as much as the weights do; who wrote a file does not."""

    def changed(name: str, **fields: object) -> set[str]:
        before, file = load_pair(f"path:{folder}").weights, folder / role / name
        values = json.loads(file.read_text()) if file.is_file() else {}
        file.write_text(json.dumps(values | fields, indent=4))
        after = load_pair(f"path:{folder}").weights
        return {key for key in before if before[key] != after[key]}

    assert changed("config.json", transformers_version="5.0.0") == set()
    assert changed("generation_config.json", eos_token_id=[256, 3]) == {"configuration"}
    assert changed("tokenizer_config.json", chat_template="{{ messages[0]['content'] }}") == {"configuration"}
    assert changed("trainer_state.json", step=1) == set()


def test_an_end_token_that_only_the_tokenizer_names_is_told(folder, caplog):
    load_pair(f"path:{folder}")
    assert not caplog.messages
    for name in ("config.json", "generation_config.json"):
        file = folder / "target" / name
        file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 7}))
    load_pair(f"path:{folder}")
    (told,) = caplog.messages
    assert "ends texts with '<|end|>', and the target's configuration does not" in told


@pytest.mark.parametrize(
    ("said", "read"),
    [([[256], [7]], {256, 7}), ("<|end|>", set()), (["<|end|>", 7], {7}), (True, set()), (3.0, set()), ([], set())],
)
def test_ends_that_are_no_ids_are_left_out_and_told(folder, caplog, said, read):
    file = folder / "target" / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": said}))
    assert load_pair(f"path:{folder}").target.eos_tokens == read
    assert ("ends texts with '<|end|>'" in " ".join(caplog.messages)) == (256 not in read)


def test_an_end_that_a_configuration_cannot_hold_is_named(folder):
    file = folder / "target" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": "</s>"}))
    with pytest.raises(ModelUnavailable, match="eos_token_id"):
        load_pair(f"path:{folder}")


def test_a_tokenizer_that_is_rebuilt_otherwise_than_its_file_is_told(folder, caplog):
    files = [folder / role / "tokenizer.json" for role in ("target", "draft")]
    for file in files:
        tokenizer = Tokenizer.from_file(str(file))
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.save(str(file))
    load_pair(f"path:{folder}")
    assert "transformers builds" not in caplog.text
    ends = dict.fromkeys(("unk_token", "bos_token", "eos_token", "pad_token"), "<|end|>")
    for file in files:
        file.with_name("tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer", **ends}))
    pair = load_pair(f"path:{folder}")
    assert pair.tokenizer("A")["input_ids"] != Tokenizer.from_file(str(files[0])).encode("A").ids
    assert "builds the tokenizer" in caplog.text
    assert "It is used as transformers builds it" in caplog.text


def test_a_template_that_only_processors_read_is_told(folder, caplog):
    (folder / "target" / "chat_template.json").write_text(json.dumps({"chat_template": "{{ messages }}"}))
    load_pair(f"path:{folder}")
    assert "chat_template.json, which tokenizers do not read" in caplog.text


def test_a_prompt_that_begins_with_the_first_token_is_not_given_a_second():
    tokenizer = toy_tokenizer()
    backend = tokenizer.backend_tokenizer
    backend.add_special_tokens(["<s>"])
    first = backend.token_to_id("<s>")
    backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", first)])
    tokenizer.bos_token = "<s>"
    assert encode_prompt(tokenizer, "ab") == encode_prompt(tokenizer, "<s>ab")
    assert encode_prompt(tokenizer, "ab")[0] == first != encode_prompt(tokenizer, "ab")[1]


def test_other_weights_have_another_fingerprint(folder):
    before = load_pair(f"path:{folder}").weights
    toy_model(257, seed=99).save_pretrained(folder / "draft")
    after = load_pair(f"path:{folder}").weights
    assert after["target"] == before["target"]
    assert after["draft"] != before["draft"]


def test_a_second_copy_of_the_weights_counts_for_nothing(folder):
    target = folder / "target"
    before = fingerprint(target), weight_bytes(target)
    shutil.copy(target / "model.safetensors", target / "consolidated.safetensors")
    assert (fingerprint(target), weight_bytes(target)) == before
    shutil.copy(target / "model.safetensors", target / "adapter_model.safetensors")  # which would be loaded too
    assert fingerprint(target) != before[0]


@pytest.mark.wide  # reads 3 GiB; what is compared is in test_identity.py
def test_the_end_of_a_large_file_counts_and_what_was_recorded_before_it_did_is_still_known(tmp_path):
    """Until now the size and the first MiB were read of a file beyond 1 GiB: that part of a fingerprint stays."""
    weights, size = tmp_path / "model.safetensors", 2**30 + 2**20
    with weights.open("wb") as stream:
        stream.write(b"{")
        stream.truncate(size)  # sparse
    before, recorded = fingerprint(tmp_path), hashlib.sha256(f"{weights.name} {size}".encode())
    recorded.update(b"{".ljust(2**20, b"\0"))
    with weights.open("r+b") as stream:
        stream.seek(-1, os.SEEK_END)
        stream.write(b"}")
    after = fingerprint(tmp_path)
    assert before != after
    assert not same_model(before, after)
    assert same_model(recorded.hexdigest()[:16], before)
    assert same_model(after, recorded.hexdigest()[:16])


@pytest.mark.parametrize(
    ("names", "weights"),
    [
        (["model.safetensors", "consolidated.safetensors", "README.md"], ["model.safetensors"]),
        (["model.safetensors", "model-00001-of-00002.safetensors"], ["model.safetensors"]),
        (["model-1-of-2.safetensors", "model-2-of-2.safetensors", "consolidated-1-of-1.safetensors"],
         ["model-1-of-2.safetensors", "model-2-of-2.safetensors"]),
        (["consolidated.safetensors"], ["consolidated.safetensors"]),
        (["adapter_model.safetensors"], ["adapter_model.safetensors"]),
        (["config.json"], []),
    ],
)  # fmt: skip
def test_weights_are_what_is_loaded(names, weights):
    assert weights_among(names) == weights


def test_another_dtype_is_honoured(folder):
    assert load_pair(f"path:{folder}", dtype="bfloat16").dtype == "bfloat16"


@pytest.mark.parametrize("able", [True, False])
def test_a_cpu_computes_in_what_it_has(folder, monkeypatch, able):
    monkeypatch.setattr("fsd_core.models.loading.cpu_has_bfloat16", lambda: able)
    for role, seed in (("target", 0), ("draft", 1)):
        toy_model(257, seed=seed).to(torch.bfloat16).save_pretrained(folder / role)
    name = f"path:{folder}"
    assert load_pair(name, device="cpu").dtype == ("bfloat16" if able else "float32")
    assert load_pair(name, device="cpu", dtype="bfloat16").dtype == "bfloat16"  # as asked
    assert load_pair(name, device="cpu", dtype="float16").dtype == "float32"
    for role, seed in (("target", 0), ("draft", 1)):
        toy_model(257, seed=seed).to(torch.float16).save_pretrained(folder / role)
    assert load_pair(name, device="cpu").dtype == "float32"


def test_an_unknown_pair_is_refused_with_the_known_ones():
    with pytest.raises(UnknownName, match="nope"):
        load_pair("nope")


def test_a_folder_without_models_is_refused(tmp_path):
    with pytest.raises(ModelUnavailable, match="target"):
        load_pair(f"path:{tmp_path}")


@pytest.mark.parametrize("damage", ["truncated", "garbage", "absent", "config"])
def test_a_corrupt_model_is_refused(folder, damage):
    weights = folder / "draft" / "model.safetensors"
    match damage:
        case "truncated":
            weights.write_bytes(weights.read_bytes()[:-100])
        case "garbage":
            weights.write_bytes(b"not tensors at all")
        case "absent":
            weights.unlink()
        case "config":
            (folder / "draft" / "config.json").write_text("{")
    with pytest.raises(ModelUnavailable, match="cannot be loaded"):
        load_pair(f"path:{folder}")


def test_weights_of_another_shape_are_refused_and_never_filled_in(folder):
    toy_model(257, seed=5, layers=1).save_pretrained(folder / "other")
    shutil.copy(folder / "other" / "model.safetensors", folder / "draft" / "model.safetensors")
    with pytest.raises(ModelUnavailable, match="fit their configuration"):
        load_pair(f"path:{folder}")


def test_pickled_weights_are_not_read(folder):
    state = LlamaForCausalLM(LlamaConfig.from_pretrained(folder / "draft")).state_dict()
    (folder / "draft" / "model.safetensors").unlink()
    torch.save(state, folder / "draft" / "pytorch_model.bin")
    with pytest.raises(ModelUnavailable):
        load_pair(f"path:{folder}")


def test_tokenizers_that_differ_are_refused(folder):
    tokenizer = folder / "draft" / "tokenizer.json"
    tokenizer.write_text(
        tokenizer.read_text().replace('"A":', '"tmp":').replace('"B":', '"A":').replace('"tmp":', '"B":')
    )
    with pytest.raises(IncompatibleModels, match="257"):
        load_pair(f"path:{folder}")


@pytest.mark.parametrize("longer", ["target", "draft"])
def test_a_tokenizer_with_more_tokens_at_its_end_is_an_extension(folder, longer):
    tokenizer = toy_tokenizer()
    tokenizer.add_tokens(["<tool>", "</tool>"])
    tokenizer.save_pretrained(folder / longer)
    toy_model(259, seed=3).save_pretrained(folder / longer)
    pair = load_pair(f"path:{folder}")
    assert pair.target.vocabulary == pair.draft.vocabulary == (259 if longer == "target" else 257)


def test_an_extension_in_another_order_is_refused(folder):
    for role, tokens in (("target", ["<tool>", "</tool>"]), ("draft", ["</tool>", "<tool>", "<more>"])):
        tokenizer = toy_tokenizer()
        tokenizer.add_tokens(tokens)
        tokenizer.save_pretrained(folder / role)
    with pytest.raises(IncompatibleModels, match="259"):
        load_pair(f"path:{folder}")


def test_a_tokenizer_whose_ids_have_a_gap_needs_logits_up_to_the_last(folder):
    for role in ("target", "draft"):
        file = folder / role / "tokenizer.json"
        stored = json.loads(file.read_text())
        stored["model"]["vocab"]["A"] = 300
        file.write_text(json.dumps(stored))
    with pytest.raises(IncompatibleModels, match="300"):
        load_pair(f"path:{folder}")


@pytest.mark.parametrize(("device", "words"), [("cuda:7", "CUDA devices"), ("abacus", "is not a device")])
def test_a_device_that_is_not_there_is_refused(folder, device, words):
    with pytest.raises(UnknownChoice, match=words):
        load_pair(f"path:{folder}", device=device)


def test_a_model_whose_layers_attend_otherwise_is_refused():
    model = toy_model(32, seed=0)
    model.config.layer_types = ["full_attention", "chunked_attention"]
    with pytest.raises(IncompatibleModels, match="whole prefix"):
        LanguageModel(model)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b'{"a":' * 5000 + b"1" + b"}" * 5000,
        b'{"a": 5}',
        b'{"a": {"dtype": 7, "shape": [16], "data_offsets": [0, 64]}}',
        b'{"a": {"dtype": "F32", "shape": "x", "data_offsets": [0, 64]}}',
        b'{"a": {"dtype": "F32", "shape": [1e30], "data_offsets": [0, 64]}}',
        b"\xff" * 100,
    ],
    ids=["deep list", "deep object", "number", "dtype", "shape", "huge", "bytes"],
)
def test_a_forged_header_of_weights_is_a_sentence(header: bytes, toy: str, tmp_path: Path) -> None:
    shutil.copytree(toy.removeprefix("path:"), tmp_path / "pair")
    weights = tmp_path / "pair" / "target" / "model.safetensors"
    weights.write_bytes(struct.pack("<Q", len(header)) + header + bytes(64))
    with pytest.raises(ModelUnavailable, match="is no whole safetensors file"):
        load_pair(f"path:{tmp_path / 'pair'}")


@pytest.mark.parametrize("content", [b'{"a":' * 50_000, b"[1, 2]", b"\xff\xfe", b""])
def test_a_forged_configuration_is_a_sentence(content: bytes, toy: str, tmp_path: Path) -> None:
    shutil.copytree(toy.removeprefix("path:"), tmp_path / "pair")
    (tmp_path / "pair" / "draft" / "config.json").write_bytes(content)
    with pytest.raises(ModelUnavailable, match=r"cannot be loaded"):
        load_pair(f"path:{tmp_path / 'pair'}")


def configured(folder: Path, **values: object) -> None:
    file = folder / "target" / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.mark.parametrize(
    ("values", "reason", "advice"),
    [
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "quantised (awq)", "without quantisation"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "quantised (gptq)", "without quantisation"),
        ({"quantization_config": {"load_in_4bit": True}}, "requires bitsandbytes", "Install the package"),
        ({"model_type": "not-yet-made"}, "does not know models of the type 'not-yet-made'", "Update transformers"),
        (
            {"model_type": "mine", "auto_map": {"AutoConfig": "configuration_mine.Mine"}},
            "code of its own, which is never run here",
            "Choose a model that transformers knows",
        ),
        ({"model_type": "llava"}, "no language model of the type 'llava'", "its text model"),
        ({"model_type": "t5"}, "no language model of the type 't5'", "Choose a causal language model"),
    ],
)
def test_what_cannot_be_loaded_says_which_it_is_and_what_to_do(folder, values, reason, advice):
    configured(folder, **values)
    with pytest.raises(ModelUnavailable) as refused:
        load_pair(f"path:{folder}", device="cpu")
    sentence = str(refused.value)
    assert reason in sentence
    assert advice in sentence
    assert "Restore" not in sentence


def test_a_shard_that_is_missing_is_named(folder):
    target = folder / "target"
    weights = load_file(target / "model.safetensors")
    (target / "model.safetensors").unlink()
    shards = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    index = {name: shards[i % 2] for i, name in enumerate(sorted(weights))}
    (target / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": index}))
    first = {name: tensor for name, tensor in weights.items() if index[name] == shards[0]}
    save_file(first, target / shards[0], {"format": "pt"})
    with pytest.raises(ModelUnavailable, match=f"lacks 1 file of its weights, such as {shards[1]}: fetch it"):
        load_pair(f"path:{folder}", device="cpu")


PROMPT = "Hello, this is longer than the window."
SMALL = {
    "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "sliding_window": 8, "eos_token_id": 256,
    "bos_token_id": None, "pad_token_id": 256,
}  # fmt: skip


@pytest.fixture
def fault_folder() -> Iterator[Path]:
    """A toy pair in a folder of a short name."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        save_toy_pair(Path(name))
        yield Path(name)


def change(file: Path, **fields: object) -> None:
    before = json.loads(file.read_text()) if file.is_file() else {}
    file.write_text(json.dumps(before | fields))


def change_weights(file: Path, **tensors: torch.Tensor | None) -> None:
    weights = load_file(file) | tensors
    save_file({name: x for name, x in weights.items() if x is not None}, file, metadata={"format": "pt"})


def loaded(folder: Path) -> LoadedPair:
    return load_pair(f"path:{folder}", device="cpu")


def asked(pair: LoadedPair, **template: str) -> str:
    ids = PairDecoder(pair, DecodingConfig(template=TemplateConfig(**template))).prompt_ids("Hello")
    return str(pair.tokenizer.decode(ids))


@pytest.mark.wide
def test_of_several_templates_the_default_is_taken_and_no_other(fault_folder: Path) -> None:
    file = fault_folder / "target" / "tokenizer_config.json"
    named = {"default": "[D]{{ messages[0]['content'] }}{{ x }}", "rag": "[R]{{ messages[0]['content'] }}"}
    change(file, chat_template=[{"name": name, "template": text} for name, text in named.items()])
    assert asked(loaded(fault_folder)) == "[D]Hello"
    change(file, chat_template=[{"name": name, "template": named["rag"]} for name in ("rag", "tool_use")])
    for arguments in ("", '{"x": 1}'):
        with pytest.raises(ModelUnavailable, match="rag, tool_use"):
            asked(loaded(fault_folder), arguments=arguments)


def test_a_template_of_its_own_file_goes_before_another_one(fault_folder: Path) -> None:
    change(fault_folder / "target" / "tokenizer_config.json", chat_template="[C]{{ messages[0]['content'] }}")
    before = loaded(fault_folder)
    (fault_folder / "target" / "chat_template.jinja").write_text("[J]{{ messages[0]['content'] }}")
    after = loaded(fault_folder)
    assert (asked(before), asked(after)) == ("[C]Hello", "[J]Hello")
    assert (before.weights or {})["configuration"] != (after.weights or {})["configuration"]


def test_a_prompt_has_not_ended_before_it_is_continued(fault_folder: Path) -> None:
    tokenizer = toy_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(f"$A {END}", special_tokens=[(END, 256)])
    assert tokenizer("Hello")["input_ids"][-1] == 256
    tokenizer.save_pretrained(fault_folder / "target")
    pair = loaded(fault_folder)
    assert pair.tokenizer("Hello")["input_ids"][-1] == 256
    assert asked(pair) == "Hello"
    assert PairDecoder(pair, DecodingConfig()).prompt_ids(f"Hello{END}")[-1] == 256  # as somebody wrote it


def test_each_of_several_end_tokens_ends_a_text(fault_folder: Path) -> None:
    first = PairDecoder(pair := loaded(fault_folder), DecodingConfig(acceptance=Autoregressive(), max_new_tokens=3))
    tokens = first.generate(first.prompt_ids(PROMPT), 0).tokens
    assert len(tokens) == 3
    change(fault_folder / "target" / "generation_config.json", eos_token_id=[256, tokens[0]], pad_token_id=tokens[0])
    decoder = PairDecoder(pair := loaded(fault_folder), DecodingConfig(acceptance=Speculative(), max_new_tokens=3))
    assert pair.target.eos_tokens == {256, tokens[0]}
    assert decoder.generate(decoder.prompt_ids(PROMPT), 0).stop_reason == "eos"


@pytest.mark.parametrize("role", ["target", "draft"])
def test_tensors_that_are_not_used_are_told(fault_folder: Path, role: str) -> None:
    assert loaded(fault_folder).note == ""
    change_weights(
        fault_folder / role / "model.safetensors", **{"model.layers.0.self_attn.q_proj.bias": torch.ones(32)}
    )
    assert (
        f"1 tensors in {fault_folder}/{role} are not used, such as model.layers.0.self_attn.q_proj"
        in loaded(fault_folder).note
    )


def test_what_a_generation_config_does_to_logits_is_told(fault_folder: Path) -> None:
    change(fault_folder / "target" / "generation_config.json", do_sample=True, temperature=0.6, top_p=0.9)
    assert loaded(fault_folder).note == ""  # a setting has its own
    change(fault_folder / "target" / "generation_config.json", repetition_penalty=1.3, suppress_tokens=[7])
    assert (
        "asks for repetition_penalty 1.3, suppress_tokens [7], which no method here applies"
        in loaded(fault_folder).note
    )


@pytest.mark.parametrize(
    ("begin", "end"),
    some(
        [("[THINK]", "[/THINK]"), ("<|channel>", "<channel|>"), ("<think:6124c78e>", "</think:6124c78e>")],
        ("<think:6124c78e>", "</think:6124c78e>"),
    ),
)
def test_marks_that_are_special_tokens_stand_in_texts(fault_folder: Path, begin: str, end: str) -> None:
    """A thought could not be told from the answer behind it."""
    tokenizer = toy_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [begin, end]})
    ids = tokenizer.encode(f"{begin}No: A?{end}B<|end|>", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "No: A?B"
    for role in ("target", "draft"):
        pair = toy_pair()
        pair.target.module.resize_token_embeddings(259)
        pair.target.module.save_pretrained(fault_folder / role)
        tokenizer.save_pretrained(fault_folder / role)
    pair = loaded(fault_folder)
    assert (pair.note, pair.tokenizer.encode(f"{begin}No: A?{end}B<|end|>", add_special_tokens=False)) == ("", ids)
    text = written(pair, ids)
    assert text == f"{begin}No: A?{end}B"
    assert split_thoughts(text).answer == "B"
    score = get_scorer("choice").judge(split_thoughts(text).answer, Example("one", "?", "B"), "eos")
    assert score.outcome == "correct"
    shown = with_marks(Tokenizer.from_file(str(fault_folder / "target" / "tokenizer.json")))  # as the pages read it
    assert shown.decode(ids, skip_special_tokens=True) == text


def test_an_adapter_of_another_model_is_refused(fault_folder: Path) -> None:
    lora = get_peft_model(toy_pair().target.module, LoraConfig(r=2, target_modules=["q_proj"]))
    lora.save_pretrained(str(fault_folder / "lora"))
    name = name_of_models({"target": f"{fault_folder}/target", "adapter": f"{fault_folder}/lora"})
    assert load_pair(name, device="cpu").note == ""
    file = fault_folder / "lora" / "adapter_model.safetensors"
    renamed = {key.replace("model.layers", "model.text.layers"): x for key, x in load_file(file).items()}
    save_file(renamed, file, metadata={"format": "pt"})
    with pytest.raises(ModelUnavailable, match=r"The adapter in .*/lora cannot be loaded"):
        load_pair(name, device="cpu")


def test_weights_that_do_not_fit_the_vocabulary_or_lack_a_head_are_refused(fault_folder: Path) -> None:
    config = fault_folder / "target" / "config.json"
    change(config, vocab_size=200)
    with pytest.raises(ModelUnavailable, match=r"cannot be loaded|do not fit their configuration"):
        loaded(fault_folder)
    change(config, vocab_size=257)
    change_weights(fault_folder / "target" / "model.safetensors", **{"lm_head.weight": None})
    with pytest.raises(ModelUnavailable, match="1 tensors are missing"):
        loaded(fault_folder)


def test_a_tied_head_that_is_stored_and_differs_is_its_own(fault_folder: Path) -> None:
    before = loaded(fault_folder).target.module.lm_head.weight.clone()
    change(fault_folder / "target" / "config.json", tie_word_embeddings=True)
    assert torch.equal(loaded(fault_folder).target.module.lm_head.weight, before)


def test_a_window_shorter_than_the_text_slides(fault_folder: Path) -> None:
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SMALL, initializer_range=0.15)).eval()
    model.save_pretrained(fault_folder / "target")
    decoder = PairDecoder(loaded(fault_folder), DecodingConfig(acceptance=Speculative(), max_new_tokens=8))
    text = decoder.prompt_ids(PROMPT)
    written = decoder.generate(text, 0).tokens
    for token in written:
        assert token == int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax())
        text = [*text, token]


def test_capped_scores_are_capped(fault_folder: Path) -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        **SMALL, head_dim=8, initializer_range=2.0, attn_logit_softcapping=1.0, final_logit_softcapping=3.0
    )
    Gemma2ForCausalLM(config).save_pretrained(fault_folder / "target")
    pair = loaded(fault_folder)
    tokens = torch.tensor([PairDecoder(pair, DecodingConfig()).prompt_ids(PROMPT)])
    eager = AutoModelForCausalLM.from_pretrained(fault_folder / "target", attn_implementation="eager").eval()
    with torch.inference_mode():
        ours, theirs = pair.target.forward(tokens, pair.target.new_cache(64)), eager(tokens, use_cache=False).logits
        eager.config.attn_logit_softcapping = None
        for layer in eager.model.layers:
            layer.self_attn.attn_logit_softcapping = None
        uncapped = eager(tokens, use_cache=False).logits
    assert torch.allclose(ours, theirs, atol=1e-3)
    assert not torch.allclose(uncapped, theirs, atol=1e-3)


@pytest.mark.parametrize("family", ["llama", "mistral", "granite", "qwen3", "phi3", "gemma"])
def test_a_window_that_the_family_does_not_have_is_not_applied(family: str) -> None:
    """Each forward is the module's own without a cache. Some of these families slide, others have the field alone."""
    model = toy_family(family, sliding_window=8)
    tokens = torch.arange(40)[None] * 5 % 250
    for lean in (True, False):
        ours = LanguageModel(model, lean=lean)
        found = ours.forward(tokens, ours.new_cache(40))
        torch.testing.assert_close(found, model(tokens, use_cache=False).logits, rtol=1e-3, atol=1e-3)


WHOLE, INDEX, ADAPTER = "model.safetensors", "model.safetensors.index.json", "adapter_model.safetensors"
SHARDS = [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
Harm = Callable[[Path], object]


def in_shards(folder: Path, weight_map: bool = True) -> None:
    weights = load_file(folder / WHOLE)
    (folder / WHOLE).unlink()
    names = {name: SHARDS[i % 2] for i, name in enumerate(sorted(weights))}
    for shard in SHARDS:
        save_file({name: x for name, x in weights.items() if names[name] == shard}, folder / shard, {"format": "pt"})
    if weight_map:
        (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": names}))


def without_one(folder: Path) -> None:
    in_shards(folder)
    (folder / SHARDS[1]).unlink()


def with_broken_index(folder: Path) -> None:
    in_shards(folder)
    (folder / INDEX).write_text("{")


def renamed(to: str, name: str = WHOLE) -> Harm:
    return lambda folder: (folder / name).rename(folder / to)


def badge_configured(**fields: object) -> Harm:
    def change(folder: Path) -> None:
        file = folder / "config.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | fields))

    return change


def truncated(folder: Path) -> None:
    (folder / WHOLE).write_bytes((folder / WHOLE).read_bytes()[:-100])


USABLE: dict[str, Harm] = {
    "shards": in_shards,
    "a stale index beside the whole": lambda folder: (folder / INDEX).write_text(
        json.dumps({"metadata": {}, "weight_map": {"a": SHARDS[0]}})
    ),
    "flash attention": badge_configured(_attn_implementation="flash_attention_2"),
    "flash attention, as it was spelt": badge_configured(attn_implementation="flash_attention_2"),
}
NOT_USABLE: dict[str, tuple[str, Harm]] = {
    "shards without an index": (SHARDS[0], lambda folder: in_shards(folder, weight_map=False)),
    "an index that is no JSON": (INDEX, with_broken_index),
    "a missing shard": (SHARDS[1], without_one),
    "weights": ("weights.safetensors, which no loader reads", renamed("weights.safetensors")),
    "a variant": ("model.fp16.safetensors, which no loader reads", renamed("model.fp16.safetensors")),
    "Mistral's own": ("consolidated.safetensors, which no loader reads", renamed("consolidated.safetensors")),
    "a pickle": ("pytorch_model.bin, a pickle", renamed("pytorch_model.bin")),
    "nothing": ("has no weights", lambda folder: (folder / WHOLE).unlink()),
    "a part": ("is no whole safetensors file", truncated),
    "no configuration": ("config.json that cannot be read", lambda folder: (folder / "config.json").write_text("{")),
}


def badge_and_problems(name: str) -> tuple[str, str]:
    found = check_pair(get_pair(name), DeviceMemory("cpu", 10**12))
    return found.badge, " ".join(found.problems)


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("case", USABLE)
def test_what_loads_is_here(folder: Path, case: str, role: str) -> None:
    USABLE[case](folder / role)
    assert badge_and_problems(f"path:{folder}") == (HERE, "")
    load_pair(f"path:{folder}", device="cpu")


@pytest.mark.parametrize("role", ["target", "draft"])
@pytest.mark.parametrize("case", NOT_USABLE)
def test_what_does_not_load_cannot_be_used_for_the_same_reason(folder: Path, case: str, role: str) -> None:
    reason, harm = NOT_USABLE[case]
    harm(folder / role)
    badge, problems = badge_and_problems(f"path:{folder}")
    with pytest.raises(ModelUnavailable) as refused:
        load_pair(f"path:{folder}", device="cpu")
    assert badge == UNUSABLE
    assert reason in problems
    assert problems.removeprefix(f"The {role} in {folder / role} ") in str(refused.value)


@pytest.mark.parametrize("harm", [renamed("adapter_model.bin", ADAPTER), renamed(WHOLE, ADAPTER)])
def test_so_it_is_with_adapters(folder: Path, harm: Harm) -> None:
    lora = folder / "lora"
    get_peft_model(toy_pair().target.module, LoraConfig(r=2, target_modules=["q_proj"])).save_pretrained(str(lora))
    name = name_of_models({"target": f"{folder}/target", "adapter": str(lora)})
    assert badge_and_problems(name) == (HERE, "")
    load_pair(name, device="cpu")
    harm(lora)
    assert badge_and_problems(name)[0] == UNUSABLE
    with pytest.raises(ModelUnavailable, match=r"The adapter in .* cannot be loaded: it has its weights as"):
        load_pair(name, device="cpu")
