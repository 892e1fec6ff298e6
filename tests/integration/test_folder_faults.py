"""Files in a model's folder that would change figures without a word. Each case is written into a toy pair's folder."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from tokenizers.processors import TemplateProcessing
from transformers import AutoModelForCausalLM, Gemma2Config, Gemma2ForCausalLM, MistralConfig, MistralForCausalLM

from fsd_core.config import Autoregressive, DecodingConfig, Speculative, TemplateConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import ModelUnavailable
from fsd_core.evaluation.harness import written
from fsd_core.models.conversation import split_thoughts
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.models.sources import with_marks
from fsd_core.tasks.base import Example
from fsd_core.tasks.custom.scorers import get_scorer
from fsd_core.testing import END, save_toy_pair, toy_pair, toy_tokenizer
from tests.tools.sizes import some
from tests.tools.toy_families import toy_family

PROMPT = "Hello, this is longer than the window."
SMALL = {
    "vocab_size": 257, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 256, "sliding_window": 8, "eos_token_id": 256,
    "bos_token_id": None, "pad_token_id": 256,
}  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
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
def test_of_several_templates_the_default_is_taken_and_no_other(folder: Path) -> None:
    file = folder / "target" / "tokenizer_config.json"
    named = {"default": "[D]{{ messages[0]['content'] }}{{ x }}", "rag": "[R]{{ messages[0]['content'] }}"}
    change(file, chat_template=[{"name": name, "template": text} for name, text in named.items()])
    assert asked(loaded(folder)) == "[D]Hello"
    change(file, chat_template=[{"name": name, "template": named["rag"]} for name in ("rag", "tool_use")])
    for arguments in ("", '{"x": 1}'):
        with pytest.raises(ModelUnavailable, match="rag, tool_use"):
            asked(loaded(folder), arguments=arguments)


def test_a_template_of_its_own_file_goes_before_another_one(folder: Path) -> None:
    change(folder / "target" / "tokenizer_config.json", chat_template="[C]{{ messages[0]['content'] }}")
    before = loaded(folder)
    (folder / "target" / "chat_template.jinja").write_text("[J]{{ messages[0]['content'] }}")
    after = loaded(folder)
    assert (asked(before), asked(after)) == ("[C]Hello", "[J]Hello")
    assert (before.weights or {})["configuration"] != (after.weights or {})["configuration"]


def test_a_prompt_has_not_ended_before_it_is_continued(folder: Path) -> None:
    tokenizer = toy_tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(f"$A {END}", special_tokens=[(END, 256)])
    assert tokenizer("Hello")["input_ids"][-1] == 256
    tokenizer.save_pretrained(folder / "target")
    pair = loaded(folder)
    assert pair.tokenizer("Hello")["input_ids"][-1] == 256
    assert asked(pair) == "Hello"
    assert PairDecoder(pair, DecodingConfig()).prompt_ids(f"Hello{END}")[-1] == 256  # as somebody wrote it


def test_each_of_several_end_tokens_ends_a_text(folder: Path) -> None:
    first = PairDecoder(pair := loaded(folder), DecodingConfig(acceptance=Autoregressive(), max_new_tokens=3))
    tokens = first.generate(first.prompt_ids(PROMPT), 0).tokens
    assert len(tokens) == 3
    change(folder / "target" / "generation_config.json", eos_token_id=[256, tokens[0]], pad_token_id=tokens[0])
    decoder = PairDecoder(pair := loaded(folder), DecodingConfig(acceptance=Speculative(), max_new_tokens=3))
    assert pair.target.eos_tokens == {256, tokens[0]}
    assert decoder.generate(decoder.prompt_ids(PROMPT), 0).stop_reason == "eos"


@pytest.mark.parametrize("role", ["target", "draft"])
def test_tensors_that_are_not_used_are_told(folder: Path, role: str) -> None:
    assert loaded(folder).note == ""
    change_weights(folder / role / "model.safetensors", **{"model.layers.0.self_attn.q_proj.bias": torch.ones(32)})
    assert f"1 tensors in {folder}/{role} are not used, such as model.layers.0.self_attn.q_proj" in loaded(folder).note


def test_what_a_generation_config_does_to_logits_is_told(folder: Path) -> None:
    change(folder / "target" / "generation_config.json", do_sample=True, temperature=0.6, top_p=0.9)
    assert loaded(folder).note == ""  # a setting has its own
    change(folder / "target" / "generation_config.json", repetition_penalty=1.3, suppress_tokens=[7])
    assert "asks for repetition_penalty 1.3, suppress_tokens [7], which no method here applies" in loaded(folder).note


@pytest.mark.parametrize(
    ("begin", "end"),
    some(
        [("[THINK]", "[/THINK]"), ("<|channel>", "<channel|>"), ("<think:6124c78e>", "</think:6124c78e>")],
        ("<think:6124c78e>", "</think:6124c78e>"),
    ),
)
def test_marks_that_are_special_tokens_stand_in_texts(folder: Path, begin: str, end: str) -> None:
    """A thought could not be told from the answer behind it."""
    tokenizer = toy_tokenizer()
    tokenizer.add_special_tokens({"additional_special_tokens": [begin, end]})
    ids = tokenizer.encode(f"{begin}No: A?{end}B<|end|>", add_special_tokens=False)
    assert tokenizer.decode(ids, skip_special_tokens=True) == "No: A?B"
    for role in ("target", "draft"):
        pair = toy_pair()
        pair.target.module.resize_token_embeddings(259)
        pair.target.module.save_pretrained(folder / role)
        tokenizer.save_pretrained(folder / role)
    pair = loaded(folder)
    assert (pair.note, pair.tokenizer.encode(f"{begin}No: A?{end}B<|end|>", add_special_tokens=False)) == ("", ids)
    text = written(pair, ids)
    assert text == f"{begin}No: A?{end}B"
    assert split_thoughts(text).answer == "B"
    score = get_scorer("choice").judge(split_thoughts(text).answer, Example("one", "?", "B"), "eos")
    assert score.outcome == "correct"
    shown = with_marks(Tokenizer.from_file(str(folder / "target" / "tokenizer.json")))  # as the pages read it
    assert shown.decode(ids, skip_special_tokens=True) == text


def test_an_adapter_of_another_model_is_refused(folder: Path) -> None:
    lora = get_peft_model(toy_pair().target.module, LoraConfig(r=2, target_modules=["q_proj"]))
    lora.save_pretrained(str(folder / "lora"))
    name = name_of_models({"target": f"{folder}/target", "adapter": f"{folder}/lora"})
    assert load_pair(name, device="cpu").note == ""
    file = folder / "lora" / "adapter_model.safetensors"
    renamed = {key.replace("model.layers", "model.text.layers"): x for key, x in load_file(file).items()}
    save_file(renamed, file, metadata={"format": "pt"})
    with pytest.raises(ModelUnavailable, match=r"The adapter in .*/lora cannot be loaded"):
        load_pair(name, device="cpu")


def test_weights_that_do_not_fit_the_vocabulary_or_lack_a_head_are_refused(folder: Path) -> None:
    config = folder / "target" / "config.json"
    change(config, vocab_size=200)
    with pytest.raises(ModelUnavailable, match=r"cannot be loaded|do not fit their configuration"):
        loaded(folder)
    change(config, vocab_size=257)
    change_weights(folder / "target" / "model.safetensors", **{"lm_head.weight": None})
    with pytest.raises(ModelUnavailable, match="1 tensors are missing"):
        loaded(folder)


def test_a_tied_head_that_is_stored_and_differs_is_its_own(folder: Path) -> None:
    before = loaded(folder).target.module.lm_head.weight.clone()
    change(folder / "target" / "config.json", tie_word_embeddings=True)
    assert torch.equal(loaded(folder).target.module.lm_head.weight, before)


def test_a_window_shorter_than_the_text_slides(folder: Path) -> None:
    torch.manual_seed(0)
    model = MistralForCausalLM(MistralConfig(**SMALL, initializer_range=0.15)).eval()
    model.save_pretrained(folder / "target")
    decoder = PairDecoder(loaded(folder), DecodingConfig(acceptance=Speculative(), max_new_tokens=8))
    text = decoder.prompt_ids(PROMPT)
    written = decoder.generate(text, 0).tokens
    for token in written:
        assert token == int(model(torch.tensor([text]), use_cache=False).logits[0, -1].argmax())
        text = [*text, token]


def test_capped_scores_are_capped(folder: Path) -> None:
    torch.manual_seed(0)
    config = Gemma2Config(
        **SMALL, head_dim=8, initializer_range=2.0, attn_logit_softcapping=1.0, final_logit_softcapping=3.0
    )
    Gemma2ForCausalLM(config).save_pretrained(folder / "target")
    pair = loaded(folder)
    tokens = torch.tensor([PairDecoder(pair, DecodingConfig()).prompt_ids(PROMPT)])
    eager = AutoModelForCausalLM.from_pretrained(folder / "target", attn_implementation="eager").eval()
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
