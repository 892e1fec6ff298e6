"""An adapter is trained as PEFT trains it, and computes what PEFT computes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from itertools import islice, repeat
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import AutoPeftModelForCausalLM, LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM

from fsd_core.config import DecodingConfig
from fsd_core.config.model_names import name_of_models
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models import loading
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import adapted, load_pair
from fsd_core.models.model_pairs import get_pair
from fsd_core.tasks import get_task
from fsd_core.tasks.readings import final_number
from fsd_core.tasks.word_problems import zero_shot_prompt
from fsd_core.testing import END, save_toy_pair, toy_model, toy_tokenizer
from fsd_plugins.training import draft, generators, target_texts
from fsd_plugins.training.draft import adapter_problems, encode_texts
from fsd_plugins.training.loop import alike, pad_rows, weighted_loss
from fsd_plugins.training.plans import ADAPTER_PLAN, DRAFT_PLAN, TARGETS, Schedule
from fsd_plugins.training.target_texts import read_texts, write_all
from tests.tools.toy_families import toy_family

MIX = {"short": 0.25, "arithmetic": 0.25, "gsm8k": 0.5}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    (tmp_path / "gsm8k").mkdir()
    rows = [{"question": f"Half of {2 * i}?", "answer": f"{2 * i}/2=<<{2 * i}/2={i}>>{i}\n#### {i}"} for i in range(99)]
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_problems_are_of_the_training_split_or_made_up(data: Path) -> None:
    seen = list(islice(adapter_problems(data, MIX, seed=0), 200))
    of_file = [text for text in seen if text[0].startswith("Half of")]
    assert 70 < len(of_file) < 130
    assert len(set(of_file)) == min(len(of_file), 99)  # each once before any comes again
    for question, solution in seen:
        assert question.endswith("End with a line '#### ' and the number.")
        assert "<<" not in solution
        assert final_number(solution) is not None
    assert list(islice(adapter_problems(data, MIX, seed=0), 200)) == seen
    assert all(text[0].startswith("Half of") for text in islice(adapter_problems(data, {"gsm8k": 1.0}, seed=0), 50))


def test_the_problems_of_the_task_are_never_taught(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def taught() -> list[str]:
        return [question for question, _ in islice(adapter_problems(data, {"short": 1.0}, seed=0), 50)]

    before = taught()
    assert not {example.prompt for example in get_task("short-problems").all_examples()} & set(before)
    first = next(generators.stream_short(0))[0].question
    monkeypatch.setattr(draft, "short_questions", lambda: frozenset([first]))
    assert before[0] == zero_shot_prompt(first) not in taught()


def test_problems_that_are_missing_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="set FSD_DATA_DIR"):
        next(adapter_problems(tmp_path, MIX, 0))


def test_the_loss_is_that_of_the_solutions_alone(data: Path) -> None:
    tokenizer, model = toy_tokenizer(), toy_model(len(toy_tokenizer()), seed=0, context=400)
    rows = list(islice(encode_texts(tokenizer, adapter_problems(data, MIX, seed=0)), 5))
    assert all(answer[-1] == tokenizer.eos_token_id for _, answer in rows)
    total, count = 0.0, 0
    with torch.no_grad():
        for prompt, answer in rows:
            log_q = model(torch.tensor([prompt + answer])).logits[0, len(prompt) - 1 : -1].log_softmax(-1)
            total -= float(log_q.gather(1, torch.tensor(answer)[:, None]).sum())
            count += len(answer)
        found = float(weighted_loss(model, pad_rows(rows)))
    assert found == pytest.approx(total / count, rel=0.02)


def test_batches_hold_problems_of_like_length(data: Path) -> None:
    rows = encode_texts(toy_tokenizer(), adapter_problems(data, MIX, seed=0))
    tokens, answers = pad_rows(next(alike(rows, 8, 16, seed=0)))
    lengths = [int(row.nonzero().max()) + 1 for row in answers]
    assert tokens.shape[0] == 8
    assert max(lengths) - min(lengths) < 60


@pytest.mark.wide
def test_the_adapter_that_is_trained_changes_what_the_pair_writes(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = save_toy_pair(tmp_path / "pair")
    monkeypatch.setitem(TARGETS, "toy", tmp_path / "pair" / "target")
    monkeypatch.setattr(draft, "HELD_OUT_PROBLEMS", 6)
    plan = replace(ADAPTER_PLAN, rank=4, schedule=Schedule(steps=8, batch=4, adamw_lr=1e-2, muon_lr=None, every=4))
    out, rows = tmp_path / "out", []

    class Killed(Exception):
        pass

    def dying(row: dict) -> None:
        if (out / "adapter.checkpoint").exists():
            raise Killed
        rows.append(row)

    monkeypatch.setattr("fsd_plugins.training.loop.REPORT_EVERY", 1)
    with pytest.raises(Killed):
        draft.train_adapter("toy", out, data, plan, report=dying)
    figures = draft.train_adapter("toy", out, data, plan, report=rows.append)
    assert [row["step"] for row in rows if "step" in row] == [1, 2, 3, 4, 5, 6, 7, 8]
    log = json.loads((out / "adapter" / "training.json").read_text())["log"]
    assert log[-1]["held_out_loss"] == figures["held_out_loss"]
    assert str(tmp_path) not in (out / "adapter" / "adapter_config.json").read_text()
    assert figures["held_out_loss"] < log[3]["held_out_loss"] < 8

    spec = replace(get_pair(name), adapter=out / "adapter")
    plain = loading.load_pair(name)
    monkeypatch.setattr(loading, "get_pair", lambda name: spec)
    taught = loading.load_pair(name)
    assert set(taught.weights or {}) == {"target", "draft", "adapter", "configuration"}
    tokens = torch.arange(30)[None]
    assert not torch.allclose(taught.target.module(tokens).logits, plain.target.module(tokens).logits, atol=1e-3)
    torch.testing.assert_close(taught.draft.module(tokens).logits, plain.draft.module(tokens).logits)
    assert isinstance(taught.target.module, type(AutoModelForCausalLM.from_pretrained(tmp_path / "pair" / "target")))
    assert taught.target.lean  # merged: nothing of the adapter is left to run

    # A draft for this target learns from what the adapter makes it write, too.
    monkeypatch.setattr(draft, "MODEL_PAIRS", {name: replace(spec, target=TARGETS["toy"])})
    monkeypatch.setattr(target_texts, "training_prompts", lambda data, seed: repeat("Once upon"))
    few = replace(DRAFT_PLAN, texts=2, problems=3, longest_answer=4)
    asked = draft.writings(TARGETS["toy"], data, few, 0)
    sources = write_all(tmp_path / "pair" / "target", out, asked, few, 0, torch.device("cpu"), rows.append)
    texts = [text for _, written in sources for text in written]
    assert len(texts) == 5
    assert [len(read_texts(out / folder)) for folder in ("texts", f"texts-{name}")] == [2, 3]
    logits = taught.target.module(texts[-1].tokens[None].long()).logits[0, texts[-1].prompt - 1]
    assert int(texts[-1].top[0, 0]) == int(logits.argmax())

    (out / "adapter" / "adapter_model.safetensors").unlink()
    with pytest.raises(ModelUnavailable, match=r"The adapter in .* cannot be loaded"):
        loading.load_pair(name)


def test_a_target_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="smollm2-135m"):
        draft.train_adapter("nobody", tmp_path, tmp_path)


@pytest.mark.parametrize("role", ["target", "draft"])
def test_an_adapter_beside_the_weights_is_part_of_the_model(tmp_path: Path, role: str) -> None:
    """transformers loads an adapter that it finds in a model's folder."""
    name = save_toy_pair(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path / role)
    wrapped = get_peft_model(plain, LoraConfig(r=2, target_modules=["q_proj"], init_lora_weights=False))
    wrapped.save_pretrained(tmp_path / role)
    tokens = torch.arange(12)[None]
    with torch.no_grad():
        expected = wrapped(input_ids=tokens, use_cache=False).logits
        without = toy_pair_model(tmp_path, role)(input_ids=tokens, use_cache=False).logits
    model = getattr(loading.load_pair(name, device="cpu"), role)
    found = model.forward(tokens, model.new_cache(12), 12)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(found, without, rtol=1e-2, atol=1e-2)


def toy_pair_model(folder: Path, role: str) -> torch.nn.Module:
    """A model of a folder without the adapter that lies in it."""
    bare = folder / f"bare {role}"
    shutil.copytree(folder / role, bare, ignore=shutil.ignore_patterns("adapter*"))
    return AutoModelForCausalLM.from_pretrained(bare)


TOKENS = torch.arange(3, 60, 4)[None]
TEMPLATE = "<A>{{ messages[0]['content'] }}"
KINDS: list[dict[str, Any]] = [
    {"target_modules": ["lm_head"]},
    {"target_modules": ["embed_tokens"]},
    {"target_modules": ["embed_tokens", "lm_head"]},
    {"target_modules": ["embed_tokens", "lm_head"], "ensure_weight_tying": True},
    {"target_modules": ["q_proj", "lm_head"], "use_dora": True},
    {"target_modules": ["q_proj"], "modules_to_save": ["lm_head"]},
    {"target_modules": ["q_proj"], "modules_to_save": ["embed_tokens"]},
    {"target_modules": ["q_proj"], "trainable_token_indices": [5, 9, 11]},
    {"target_modules": ["q_proj", "down_proj"], "use_rslora": True},
]


def trained(model: Any) -> Any:
    """The model with all weights of its adapter away from where PEFT begins."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.requires_grad:
                weight += 0.2 * torch.randn(weight.shape, generator=generator)
    return model.eval()


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=TOKENS, use_cache=False).logits


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("family", ["llama", pytest.param("gemma2", marks=pytest.mark.wide)])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: "+".join([*kind["target_modules"], *list(kind)[1:]]))
def test_a_tied_model_gives_the_logits_of_the_adapter_beside_it(
    tmp_path: Path, family: str, kind: dict[str, Any]
) -> None:
    base, lora = tmp_path / "base", tmp_path / "lora"
    toy_family(family, tie_word_embeddings=True).save_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    before = logits(model)
    trained(get_peft_model(model, LoraConfig(r=4, **kind))).save_pretrained(lora)
    expected = logits(PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), str(lora)))
    assert not torch.allclose(expected, before, rtol=1e-2, atol=1e-2)
    merged = LanguageModel(adapted(AutoModelForCausalLM.from_pretrained(base), lora))
    found = merged.forward(TOKENS, merged.new_cache(TOKENS.shape[1]))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-3)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_adapter_whose_merge_is_another_model_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = toy_family("llama", tie_word_embeddings=True)
    trained(get_peft_model(model, LoraConfig(r=4, target_modules=["lm_head"]))).save_pretrained(tmp_path)
    monkeypatch.setattr(loading, "_untie", lambda model: None)  # as it would be of a kind that nobody thought of
    with pytest.raises(ModelUnavailable, match=r"cannot be merged.*logits differ by"):
        adapted(toy_family("llama", tie_word_embeddings=True), tmp_path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pair, and an adapter with two more tokens, a template and another end token."""
    save_toy_pair(tmp_path)
    tokenizer = toy_tokenizer()
    tokenizer.add_tokens(["<turn>", "</turn>"])
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "lora")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    model.resize_token_embeddings(len(tokenizer))
    config = LoraConfig(r=4, target_modules=["q_proj"], modules_to_save=["embed_tokens", "lm_head"])
    trained(get_peft_model(model, config)).save_pretrained(tmp_path / "lora")
    return tmp_path


def named(folder: Path, **more: str) -> str:
    return name_of_models({"target": f"{folder}/target", "adapter": f"{folder}/lora"} | more)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_tokens_and_the_template_that_an_adapter_brings_are_in_force(folder: Path) -> None:
    pair = load_pair(named(folder, draft=f"{folder}/draft"), device="cpu")
    assert pair.target.vocabulary == len(pair.tokenizer) == 259
    ids = PairDecoder(pair, DecodingConfig()).prompt_ids("<turn>Hello")
    assert pair.tokenizer.decode(ids) == "<A><turn>Hello"
    assert pair.tokenizer.convert_tokens_to_ids("<turn>") in ids
    base = str(folder / "target")
    config = (folder / "lora" / "adapter_config.json").read_text()
    (folder / "lora" / "adapter_config.json").write_text(
        config.replace('"task_type": null', '"task_type": "CAUSAL_LM"')
    )
    peft = AutoPeftModelForCausalLM.from_pretrained(str(folder / "lora"), local_files_only=True)
    assert peft.peft_config["default"].base_model_name_or_path == base
    found = pair.target.forward(TOKENS, pair.target.new_cache(TOKENS.shape[1]))
    torch.testing.assert_close(found, logits(peft), rtol=1e-3, atol=1e-3)
    assert load_pair(named(folder), device="cpu").weights["configuration"] != load_pair(f"path:{folder}").weights
    assert pair.tokenizer.eos_token == END


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tokens_without_weights_are_refused(folder: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(folder / "target")
    (folder / "lora" / "adapter_model.safetensors").unlink()
    get_peft_model(model, LoraConfig(r=4, target_modules=["q_proj"])).save_pretrained(folder / "lora")
    with pytest.raises(ModelUnavailable, match="has 259 tokens, the model 257"):
        load_pair(named(folder), device="cpu")


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_adapter_of_another_size_is_not_called_broken(folder: Path) -> None:
    for file in (folder / "lora").glob("tokenizer*"):
        file.unlink()
    with pytest.raises(ModelUnavailable, match="size mismatch") as refused:
        load_pair(named(folder), device="cpu")
    assert "Restore" not in str(refused.value)
    assert "Choose the model that it was trained on" in str(refused.value)
