"""The command that trains a draft for a large target, at toy size."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from fsd_core.errors import ModelUnavailable, UnknownName
from fsd_core.models.language_model import LanguageModel
from fsd_core.testing.toy import save_toy_pair, toy_model, toy_tokenizer
from fsd_core.training import distillation, draft
from fsd_core.training.distillation import KEPT, answer, read_texts, small_embedding, stack
from fsd_core.training.loop import Schedule
from fsd_core.training.prompts import training_prompts

PLAN = draft.Plan(
    Schedule(steps=12, batch=4, every=6), hidden=16, layers=1, intermediate=32, heads=2, kv_heads=1, prompts=80,
    longest_answer=12,
)  # fmt: skip


@pytest.fixture(scope="module")
def target() -> LanguageModel:
    return LanguageModel(toy_model(len(toy_tokenizer()), seed=0))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Questions in the files' own shapes; the toy target's tokens are bytes, so some are of equal length."""
    for name in ("gsm8k", "dolly", "csqa", "mbpp"):
        (tmp_path / name).mkdir()
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(f'{{"question": "Sum {i}?"}}\n' for i in range(10, 40)))
    (tmp_path / "dolly" / "dolly_train.json").write_text(
        json.dumps([{"instruction": "Say A.", "input": " It is so. "}])
    )
    choice = {"question": {"stem": "Why?", "choices": [{"label": "A", "text": "So"}]}}
    (tmp_path / "csqa" / "train_rand_split.jsonl").write_text(json.dumps(choice) + "\n")
    rows = [{"task_id": i, "text": f"Write {i}"} for i in (600, 601, 974, 975)]
    (tmp_path / "mbpp" / "mbpp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_questions_are_of_the_training_splits_alone(data: Path) -> None:
    seen = set(islice(training_prompts(data), 400))
    assert {text for text in seen if text.startswith("Write")} == {"Write 601", "Write 974"}
    assert "Say A.\n\nIt is so." in seen
    assert "Why?\nA) So\nWhich one is right, and why?" in seen
    assert list(islice(training_prompts(data, seed=3), 50)) == list(islice(training_prompts(data, seed=3), 50))


def test_questions_that_are_missing_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="set FSD_DATA_DIR"):
        next(training_prompts(tmp_path))


@torch.inference_mode()
def test_an_answer_is_the_targets_own_with_its_distribution(target: LanguageModel) -> None:
    prompts = torch.randint(200, (6, 9), generator=torch.Generator().manual_seed(0))
    greedy = torch.tensor([True, False] * 3)
    texts = answer(target, prompts, greedy, 30, torch.Generator().manual_seed(1))
    (end,) = target.eos_tokens
    assert any(int(text.tokens[-1]) == end for text in texts) or all(len(text.top) == 30 for text in texts)
    for row, text in enumerate(texts):
        assert text.tokens[:9].tolist() == prompts[row].tolist()
        assert end not in text.tokens[9:-1]
        logits = target.module(text.tokens[None].long()).logits[0, 8:-1]  # what predicted each token of the answer
        log_p = logits.log_softmax(-1)
        torch.testing.assert_close(text.log_p.float(), log_p.topk(KEPT).values, atol=0.02, rtol=0.02)
        if greedy[row]:
            assert text.tokens[9:].tolist() == logits.argmax(-1).tolist()
            assert text.top[:, 0].tolist() == logits.argmax(-1).tolist()
    # Rows that have ended leave the batch, which must not change the others.
    alone = answer(target, prompts[2:3], greedy[2:3], 30, torch.Generator())
    assert alone[0].tokens.tolist() == texts[2].tokens.tolist()


@torch.no_grad()
def test_the_loss_is_that_of_the_kept_distributions(target: LanguageModel) -> None:
    prompts = torch.randint(200, (3, 5), generator=torch.Generator().manual_seed(0))
    texts = answer(target, prompts, torch.tensor([True, False, False]), 7, torch.Generator().manual_seed(1))
    model = toy_model(len(toy_tokenizer()), seed=8)
    total, count = 0.0, 0
    for text in texts:
        log_q = model(text.tokens[None].long()).logits[0, text.prompt - 1 : -1].log_softmax(-1)
        p = text.log_p.float().exp()
        p = p / p.sum(-1, keepdim=True)
        total -= float((p * log_q.gather(1, text.top.long())).sum())
        count += len(text.top)
    assert float(distillation.cross_entropy(model, stack(texts))) == pytest.approx(total / count, rel=0.02)


def test_the_target_agrees_with_itself(target: LanguageModel) -> None:
    prompts = torch.randint(200, (4, 5), generator=torch.Generator().manual_seed(0))
    texts = answer(target, prompts, torch.ones(4, dtype=torch.bool), 9, torch.Generator())
    found = distillation.agreement(target.module, texts)
    assert found["same_choice"] > 0.9  # bfloat16 may turn a close race
    kept = float(torch.cat([text.log_p for text in texts]).float().exp().sum(-1).mean())
    assert 0.95 * kept < found["overlap"] < 1.05 * kept
    other = distillation.agreement(toy_model(len(toy_tokenizer()), seed=8), texts)
    assert other["overlap"] < 0.8 * kept


def test_a_small_embedding_keeps_the_inner_products() -> None:
    values = torch.randn(50, 4) @ torch.randn(4, 20)  # of rank 4
    small = small_embedding(values, 4)
    torch.testing.assert_close(small @ small.T, values @ values.T, atol=1e-3, rtol=1e-3)


def test_the_whole_command_goes_on_where_it_was_interrupted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_toy_pair(tmp_path / "pair")
    monkeypatch.setitem(draft.TARGETS, "toy", tmp_path / "pair" / "target")
    out, rows = tmp_path / "out", []
    monkeypatch.setattr("fsd_core.training.draft.HELD_OUT", 8)

    class Killed(Exception):
        pass

    def dying(row: dict) -> None:
        rows.append(row)
        if "loss" in row:
            raise Killed

    with pytest.raises(Killed):
        draft.main("toy", out, data, PLAN, report=dying)
    written = sorted((out / "texts").iterdir())
    before = [file.stat().st_mtime_ns for file in written]
    figures = draft.main("toy", out, data, PLAN, report=rows.append)
    assert [file.stat().st_mtime_ns for file in written] == before
    assert figures["texts"] == len(read_texts(out / "texts")) - 8 > 0
    assert figures["answer_tokens"] <= 12 * figures["texts"]

    saved = AutoModelForCausalLM.from_pretrained(out / "draft")
    assert saved.config.num_hidden_layers == 1
    assert saved.dtype == torch.bfloat16
    assert AutoTokenizer.from_pretrained(out / "draft").get_vocab() == toy_tokenizer().get_vocab()
    log = json.loads((out / "draft" / "training.json").read_text())["log"]
    assert log[-1]["step"] == 12
    assert set(log[-1]) >= {"loss", "overlap", "same_choice"}


def test_a_target_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="expected one of smollm2-135m"):
        draft.main("nobody", tmp_path, tmp_path, replace(PLAN))
