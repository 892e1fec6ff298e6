"""The commands that train a draft and an EAGLE head for a large target, at toy size."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM

from fsd_core.config import DecodingConfig, DynamicTreeTopology, EagleDrafter, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import (
    Contradiction,
    IncompatibleModels,
    ModelUnavailable,
    NotEnough,
    UnfitModel,
    UnknownChoice,
    UnknownName,
)
from fsd_core.models import draft_weights
from fsd_core.models.eagle_files import load_head
from fsd_core.models.language_model import LanguageModel
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.testing import save_toy_pair, toy_model, toy_tokenizer
from fsd_plugins.training import cards, draft, loop, target_texts
from fsd_plugins.training.eagle_head import main, plan_for, slots
from fsd_plugins.training.plans import HEAD_PLANS, TARGETS, DraftPlan, HeadPlan, Schedule
from fsd_plugins.training.target_texts import (
    TOP_TOKENS,
    answer,
    common_tokens,
    existing_texts,
    own_prompts,
    read,
    read_anew,
    read_existing,
    read_texts,
    share_of_others,
    stack,
    training_prompts,
)
from tests.tools.sizes import some

V = len(toy_tokenizer())
TEMPLATE = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"
PLAN = DraftPlan(
    Schedule(steps=12, batch=4, every=6),
    layers=(1,),
    head_tokens=90,
    texts=150,
    existing=6_000,
    longest_answer=12,
    longest_read=12,
)
LONG = "The castle stood on a hill , and it was @-@ said a few @.@ of them . " + "Then came the rain . " * 9


@pytest.fixture(scope="module")
def target() -> LanguageModel:
    return LanguageModel(toy_model(len(toy_tokenizer()), seed=0))


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Questions in the files' own shapes; the toy target's tokens are bytes, so some are of equal length."""
    for name in ("gsm8k", "dolly", "csqa", "mbpp", "tinystories_sample"):
        (tmp_path / name).mkdir()
    sums = [{"question": f"Sum {i}?", "answer": f"<<1+1=2>>It is {i}. #### {i}"} for i in range(10, 40)]
    (tmp_path / "gsm8k" / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in sums))
    for name in ("tinystories", "wikitext"):
        (tmp_path / "tinystories_sample" / f"{name}_1000.json").write_text(json.dumps([f"Text of {name}.", LONG]))
    (tmp_path / "dolly" / "dolly_train.json").write_text(
        json.dumps([{"instruction": "Say A.", "input": " It is so. ", "output": "A. "}])
    )
    choice = {"question": {"stem": "Why?", "choices": [{"label": "A", "text": "So"}]}}
    (tmp_path / "csqa" / "train_rand_split.jsonl").write_text(json.dumps(choice) + "\n")
    rows = [{"task_id": i, "text": f"Write {i}", "code": f"x = {i}"} for i in (600, 601, 974, 975)]
    (tmp_path / "mbpp" / "mbpp.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


def test_questions_are_of_the_training_splits_alone(data: Path) -> None:
    seen = set(islice(training_prompts(data), 400))
    assert {text for text in seen if text.startswith("Write")} == {"Write 601", "Write 974"}
    assert "Say A.\n\nIt is so." in seen
    assert "Why?\nA) So\nWhich one is right, and why?" in seen
    assert {"Summarize: Text of tinystories.", "Summarize: Text of wikitext."} < seen
    asked = [text.removesuffix("\n\nSay A.").split("\n\n") for text in seen if text.endswith("\n\nSay A.")]
    assert all(sorted(passages)[0] == "It is so." and len(passages) == 2 for passages in asked)
    assert asked
    behind = [text for text in seen if text.endswith("\nAnswer:") and text.count("Question:") > 1]
    assert {text.count("Question:") - 1 for text in behind} == {1, 2, 3, 4}
    assert "It is 10. #### 10" in "".join(behind)
    assert "<<" not in "".join(behind)
    assert list(islice(training_prompts(data, seed=3), 50)) == list(islice(training_prompts(data, seed=3), 50))


def test_questions_that_are_missing_are_told(tmp_path: Path) -> None:
    with pytest.raises(ModelUnavailable, match="set FSD_DATA_DIR"):
        next(training_prompts(tmp_path))


def test_texts_that_exist_are_of_the_training_splits_alone(data: Path) -> None:
    found = dict(existing_texts(data, seed=1))
    sums = [question for question in found if question.startswith("Sum")]
    assert sorted(sums) == [f"Sum {i}?" for i in range(10, 40, 3)]
    assert found["Sum 10?"] == "It is 10. #### 10"
    assert found["Say A.\n\nIt is so."] == "A."
    assert {question: text for question, text in found.items() if question.startswith("Write")} == {
        "Write 601": "```python\nx = 601\n```",
        "Write 974": "```python\nx = 974\n```",
    }
    beginning = "Continue this text: The castle stood on a hill, and it was-said a few.of them."
    assert found[beginning].startswith("Then came the rain. Then")
    assert len(found) == len(sums) + 4  # what is too short to go on is left out
    assert list(existing_texts(data, 1)) == list(existing_texts(data, 1)) != list(existing_texts(data, 2))
    (data / "dolly" / "dolly_train.json").unlink()
    with pytest.raises(ModelUnavailable, match="training questions is missing"):
        existing_texts(data)


@torch.inference_mode()
def test_what_is_read_has_the_targets_distribution_at_every_token(target: LanguageModel) -> None:
    generator = torch.Generator().manual_seed(0)
    pairs = [
        (torch.randint(200, (asked,), generator=generator).tolist(), torch.randint(200, (long,)).tolist())
        for asked, long in ((3, 9), (7, 1), (4, 4))
    ]
    whole = [(torch.tensor([*prompt, *answered]), len(prompt)) for prompt, answered in pairs]
    for (prompt, answered), text in zip(pairs, read(target, whole), strict=True):
        assert text.tokens.tolist() == [*prompt, *answered]
        assert text.prompt == len(prompt)
        logits = target.module(text.tokens[None].long()).logits[0, len(prompt) - 1 : -1]
        log_p, top = logits.log_softmax(-1).topk(TOP_TOKENS)
        torch.testing.assert_close(text.log_p.float(), log_p, atol=0.02, rtol=0.02)
        assert text.top[:, 0].tolist() == top[:, 0].tolist()
    (alone,) = read(target, whole[:1], layers=(1, 2))
    assert alone.states is not None
    states = target.module(alone.tokens[None, :-1].long(), output_hidden_states=True).hidden_states
    torch.testing.assert_close(alone.states.float(), torch.cat(states[1:3], -1)[0], atol=0.05, rtol=0.05)


def test_a_long_list_of_texts_is_read_in_files_that_are_not_read_again(target: LanguageModel, tmp_path: Path) -> None:
    told: list[dict] = []
    texts = [(f"Question {i}", "word " * (i % 7) + "end") for i in range(25)]
    arguments: dict[str, Any] = {"folder": tmp_path, "count": 23, "limit": 12, "batch": 10, "report": told.append}
    read_existing(target, toy_tokenizer(), iter(texts), **arguments)
    assert [row["rows"] for row in told] == [10, 10, 3]
    found = read_texts(tmp_path)
    assert len(found) == 23
    assert max(len(text.top) for text in found) == 12
    (tmp_path / "00001.safetensors").unlink()
    read_existing(target, toy_tokenizer(), iter(texts), **arguments)
    assert [row["file"] for row in told] == [1, 2, 3, 2]
    again = read_texts(tmp_path)
    assert [text.tokens.tolist() for text in again] == [text.tokens.tolist() for text in found]


@torch.inference_mode()
def test_an_answer_is_the_targets_own_with_its_distribution(target: LanguageModel) -> None:
    whole = torch.randint(200, (6, 9), generator=torch.Generator().manual_seed(0)).tolist()
    prompts = [prompt[: 9 - row] for row, prompt in enumerate(whole)]  # 4 to 9 tokens
    greedy = torch.tensor([True, False] * 3)
    texts = answer(target, prompts, greedy, 30, torch.Generator().manual_seed(1))
    (end,) = target.eos_tokens
    assert all(int(text.tokens[-1]) == end or len(text.top) == 30 for text in texts)
    for row, text in enumerate(texts):
        asked = len(prompts[row])
        assert text.prompt == asked
        assert text.tokens[:asked].tolist() == prompts[row]
        assert end not in text.tokens[asked:-1]
        logits = target.module(text.tokens[None].long()).logits[
            0, asked - 1 : -1
        ]  # what predicted each token of the answer
        log_p = logits.log_softmax(-1)
        torch.testing.assert_close(text.log_p.float(), log_p.topk(TOP_TOKENS).values, atol=0.02, rtol=0.02)
        if greedy[row]:
            assert text.tokens[asked:].tolist() == logits.argmax(-1).tolist()
            assert text.top[:, 0].tolist() == logits.argmax(-1).tolist()
    # Rows that have ended leave the batch, which must not change the others.
    alone = answer(target, prompts[2:3], greedy[2:3], 30, torch.Generator())
    assert alone[0].tokens.tolist() == texts[2].tokens.tolist()


def draft_of(model: LlamaForCausalLM, tokens: torch.Tensor, rest: float = 0.01) -> LlamaForCausalLM:
    """All of a model's layers below a head over ``tokens``."""
    found = draft_weights.assemble(draft_weights.draft_config(model, "toy", 2, len(tokens), rest), model, tokens)
    found.model.load_state_dict(model.model.state_dict())
    return found


@torch.no_grad()
def test_the_loss_is_that_of_the_kept_distributions_among_the_heads_tokens(target: LanguageModel) -> None:
    prompts = torch.randint(200, (3, 5), generator=torch.Generator().manual_seed(0)).tolist()
    texts = answer(target, prompts, torch.tensor([True, False, False]), 7, torch.Generator().manual_seed(1))
    model, tokens = toy_model(V, seed=8), torch.arange(1, V, 2)
    total, count = 0.0, 0
    for text in texts:
        logits = model(text.tokens[None].long()).logits[0, text.prompt - 1 : -1]
        p = torch.zeros_like(logits).scatter(1, text.top.long(), text.log_p.float().exp())[:, tokens]
        p = p / p.sum(-1, keepdim=True).clamp_min(1e-6)
        total -= float((p * logits[:, tokens].log_softmax(-1)).sum())
        count += len(text.top)
    found = draft.loss(draft_of(model, tokens), stack(texts))
    assert float(found) == pytest.approx(total / count, rel=0.02)


def test_the_target_agrees_with_itself(target: LanguageModel) -> None:
    prompts = torch.randint(200, (4, 5), generator=torch.Generator().manual_seed(0)).tolist()
    texts = answer(target, prompts, torch.ones(4, dtype=torch.bool), 9, torch.Generator())
    module: Any = target.module
    found = draft.agreement(draft_of(module, torch.arange(V)), texts)
    assert found["same_choice"] > 0.9  # bfloat16 may turn a close race
    kept = float(torch.cat([text.log_p for text in texts]).float().exp().sum(-1).mean())
    assert 0.95 * kept < found["overlap"] < 1.05 * kept
    other = draft.agreement(draft_of(toy_model(V, seed=8), torch.arange(V)), texts)
    assert other["overlap"] < 0.8 * kept
    # A head that lacks the likeliest token can neither choose it nor overlap there.
    (first,) = texts[0].top[:1, 0].tolist()
    lacking = draft.agreement(draft_of(module, torch.tensor([i for i in range(V) if i != first])), texts)
    assert lacking["same_choice"] < found["same_choice"]
    assert lacking["overlap"] < found["overlap"]


def test_the_common_tokens_are_those_with_most_probability(target: LanguageModel) -> None:
    prompts = torch.randint(200, (6, 5), generator=torch.Generator().manual_seed(0)).tolist()
    texts = answer(target, prompts, torch.zeros(6, dtype=torch.bool), 9, torch.Generator().manual_seed(2))
    mass = torch.zeros(V)
    for text in texts:
        for tokens, log_p in zip(text.top.tolist(), text.log_p.float().tolist(), strict=True):
            for token, value in zip(tokens, log_p, strict=True):
                mass[token] += math.exp(value)
    rare = int(mass.argmin())
    tokens = common_tokens(texts, 100, V, [rare])
    assert tokens.tolist() == sorted([rare, *mass.index_fill(0, torch.tensor(rare), -1).topk(99).indices.tolist()])
    rest = share_of_others(texts, tokens, V)
    assert rest == pytest.approx(float(1 - mass[tokens].sum() / mass.sum()), abs=1e-3)


@pytest.mark.wide
def test_the_whole_command_goes_on_where_it_was_interrupted(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_toy_pair(tmp_path / "pair")
    monkeypatch.setitem(TARGETS, "toy", tmp_path / "pair" / "target")
    out, rows = tmp_path / "out", []
    monkeypatch.setattr("fsd_plugins.training.target_texts.HELD_OUT_TEXTS", 8)

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
    found = len(read_texts(out / "read"))
    assert figures["texts_read"] == found == 10 + 5  # sums, and the others that there are
    assert figures["texts"] == len(read_texts(out / "texts")) + found - 8 > found
    assert figures["answer_tokens"] <= 12 * figures["texts"]
    assert figures["answer_tokens_read"] > figures["texts_read"]

    whole = LlamaForCausalLM.from_pretrained(tmp_path / "pair" / "target")
    saved = draft_weights.load(out / "draft", whole)
    assert len(saved.model.layers) == 1
    assert 0 < figures["share_of_target"] < 1
    before_training = whole.model.layers[1].mlp.down_proj.weight
    assert not torch.allclose(saved.model.layers[0].mlp.down_proj.weight, before_training, atol=1e-3)
    log = json.loads((out / "draft" / "training.json").read_text())["log"]
    assert log[-1]["step"] == 12
    assert set(log[-1]) >= {"loss", "overlap", "same_choice"}

    # From there on: the same texts, the earlier layers.
    measured = [{"task": "gsm8k", "acceptance_length": 2.5}]
    (out / "draft" / "measured.json").write_text(json.dumps({"rows": measured}))
    plan = replace(PLAN, schedule=replace(PLAN.schedule, steps=1, adamw_lr=0.0, muon_lr=0.0, every=1))
    again = draft.main("toy", out, data, plan, report=rows.append, start=out / "draft")
    assert again["start"] == {"texts": figures["texts"], "answer_tokens": figures["answer_tokens"],
                              "seconds": figures["seconds"], "steps": 12, "measured": measured}  # fmt: skip
    assert again["overlap"] == pytest.approx(figures["overlap"], abs=0.01)


@pytest.mark.wide
def test_texts_may_be_read_anew_for_each_batch(
    data: Path, tmp_path: Path, target: LanguageModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is stored of a text is its tokens; loss and agreement are those of texts stored with distributions."""
    save_toy_pair(tmp_path / "pair")
    monkeypatch.setitem(TARGETS, "toy", tmp_path / "pair" / "target")
    monkeypatch.setattr("fsd_plugins.training.target_texts.HELD_OUT_TEXTS", 8)
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(tmp_path / "pair" / "target")
    plan = replace(PLAN, texts=60, existing=0, own_prompts=20, side_by_side=32)
    stored, anew = (
        draft.main("toy", tmp_path / str(anew), data, replace(plan, anew=anew), report=lambda row: None)
        for anew in (False, True)
    )
    written, bare = (read_texts(tmp_path / str(anew) / "texts") for anew in (False, True))
    assert [text.tokens.tolist() for text in bare] == [text.tokens.tolist() for text in written]
    assert {text.top.shape[1] for text in bare} == {0}
    assert anew["answer_tokens"] == stored["answer_tokens"]
    assert anew["overlap"] == pytest.approx(stored["overlap"], abs=0.01)
    assert anew["head_covers"] == pytest.approx(stored["head_covers"], abs=0.02)
    model = LanguageModel(toy_model(V, seed=0))
    (group,) = islice(read_anew([(model, bare)], len(bare), 0), 1)
    for text in group:
        kept = next(other for other in written if other.tokens.tolist() == text.tokens.tolist())
        torch.testing.assert_close(text.log_p, kept.log_p, atol=0.02, rtol=0.02)


@pytest.mark.wide
def test_a_target_writes_prompts_of_its_own(target: LanguageModel, tmp_path: Path) -> None:
    tokenizer, file = toy_tokenizer(), tmp_path / "own.json"
    tokenizer.chat_template = TEMPLATE
    prompts = own_prompts(target, tokenizer, 20, file, 32)
    assert len(set(prompts)) == 20
    assert all(prompts)
    assert own_prompts(target, tokenizer, 12, file, 32, seed=7) == prompts[:12]  # those that are there
    assert own_prompts(target, tokenizer, 20, tmp_path / "again.json", 32) == prompts
    assert own_prompts(target, tokenizer, 20, tmp_path / "other.json", 32, seed=7) != prompts
    tokenizer.chat_template = None
    with pytest.raises(UnfitModel, match="chat template"):
        own_prompts(target, tokenizer, 3, tmp_path / "none.json", 32)


@pytest.mark.wide
def test_a_llama_of_ones_own_gets_a_draft_from_itself_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No question is read from a file, and the draft serves the pair that names both."""
    folder = tmp_path / "pair" / "target"
    save_toy_pair(tmp_path / "pair")
    tokenizer = toy_tokenizer()
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    monkeypatch.setattr("fsd_plugins.training.target_texts.HELD_OUT_TEXTS", 8)
    plan = replace(PLAN, layers=(0, -1), head_tokens=16_384, texts=60, existing=0, own_prompts=60, side_by_side=32)
    target = f"models:target={folder}"
    figures = draft.main(target, tmp_path / "out", tmp_path / "nothing", plan, report=lambda row: None)
    assert figures["plan"]["layers"] == (0, len(LlamaForCausalLM.from_pretrained(folder).model.layers) - 1)
    pair = load_pair(f"{target};draft={tmp_path / 'out' / 'draft'}")
    written = []
    for rule in ("autoregressive", "speculative"):
        decoder = PairDecoder(pair, DecodingConfig.checked(acceptance={"kind": rule}, max_new_tokens=20))
        written.append(decoder.generate(decoder.prompt_ids("Why?"), 0).tokens)
    assert written[0] == written[1]
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "gpt2"}))
    with pytest.raises(IncompatibleModels, match="gpt2"):
        draft.main(target, tmp_path / "other", tmp_path, plan)


def test_too_few_texts_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_toy_pair(tmp_path / "pair")
    monkeypatch.setitem(TARGETS, "toy", tmp_path / "pair" / "target")
    with pytest.raises(NotEnough):
        draft.main("toy", tmp_path / "out", data, replace(PLAN, texts=3, existing=0))


def test_a_target_without_a_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="smollm2-135m"):
        draft.main("nobody", tmp_path, tmp_path, replace(PLAN))


STEPS = 30
SMALL = Schedule(steps=STEPS, batch=4, adamw_lr=1e-2, muon_lr=0.05, every=STEPS // 2)


@pytest.fixture
def _little_is_held_out_and_much_reported(monkeypatch):
    monkeypatch.setattr(target_texts, "HELD_OUT_TEXTS", 8)
    monkeypatch.setattr(loop, "REPORT_EVERY", STEPS // 2)


def _plan(generation, steps: int) -> HeadPlan:
    return HeadPlan(
        SMALL, generation=generation, texts=24, longest_answer=24, steps=steps, head_tokens=200, side_by_side=12
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int, int], tuple[Path, dict]]:
    """Trains a head of a generation in so many steps, the first time it is asked for; its folder and its figures."""

    @cache
    def train(generation: int, steps: int) -> tuple[Path, dict]:
        folder = tmp_path_factory.mktemp("trained")
        return folder, main("bundled", folder, folder, _plan(generation, steps), report=lambda row: None)

    return train


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
@pytest.mark.parametrize(("generation", "steps"), [(3, 3), *some([(1, 1)]), pytest.param(1, 2, marks=pytest.mark.long)])
def test_a_head_learns_and_drafts(trained, generation, steps) -> None:
    folder, figures = trained(generation, steps)
    log = json.loads((folder / "head" / "training.json").read_text())["log"]
    assert log[-1]["step"] == STEPS
    first, last = (row["overlap"] for row in log if "overlap" in row)
    assert last > first
    assert ("same_choice_last" in log[-1]) == (steps > 1)
    assert figures["texts"] == 16
    assert not (folder / "head.checkpoint").exists()
    pair = load_pair("bundled")
    head = load_head(folder / "head", pair.target.module)
    assert (head.generation, head.covers_all) == (generation, True)
    config = DecodingConfig(
        acceptance=Speculative(),
        drafter=EagleDrafter(),
        topology=DynamicTreeTopology(length=3, top_k=3, total_tokens=12),
        max_new_tokens=24,
    )
    decoder = PairDecoder(replace(pair, head=head), config)
    prompt = decoder.prompt_ids("Question: Eva has 21 apples. Eva eats 6. How many are left?\nAnswer:")
    alone = PairDecoder(pair, DecodingConfig.checked(acceptance={"kind": "autoregressive"}, max_new_tokens=24))
    generation_ = decoder.generate(prompt, 0)
    assert generation_.tokens == alone.generate(prompt, 0).tokens
    assert len(generation_.records) < len(generation_.tokens)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
@pytest.mark.wide
def test_a_head_may_have_each_batch_read_anew(tmp_path: Path, trained) -> None:
    """Only tokens are stored; what is learnt is what stored states and distributions teach."""
    folder, first = trained(3, 3)
    figures = main("bundled", tmp_path, tmp_path, replace(_plan(3, 3), anew=True), report=lambda row: None)
    stored_texts, bare = read_texts(folder / "texts"), read_texts(tmp_path / "texts")
    assert [text.tokens.tolist() for text in bare] == [text.tokens.tolist() for text in stored_texts]
    assert {text.top.shape[1] for text in bare} == {0}
    assert figures["answer_tokens"] == first["answer_tokens"]
    assert figures["overlap"] == pytest.approx(first["overlap"], abs=0.05)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
@pytest.mark.wide
def test_it_goes_on_where_it_was_cut_off(tmp_path: Path, trained) -> None:
    """Killed behind a checkpoint, the same head comes out; texts that are there are not written again."""
    whole, cut = trained(1, 1)[0], tmp_path / "cut"
    plan = _plan(1, 1)
    shutil.copytree(whole / "texts", cut / "texts")

    def until_the_end(row: dict) -> None:
        if row.get("step") == STEPS:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        main("bundled", cut, tmp_path, plan, report=until_the_end)
    written = {file: file.stat().st_mtime_ns for file in (cut / "texts").iterdir()}
    assert (cut / "head.checkpoint").exists()
    rows: list[dict] = []
    main("bundled", cut, tmp_path, plan, report=rows.append)
    assert [row["step"] for row in rows] == [STEPS]
    assert {file: file.stat().st_mtime_ns for file in (cut / "texts").iterdir()} == written
    one, other = ((folder / "head" / "model.safetensors").read_bytes() for folder in (whole, cut))
    assert one == other


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
@pytest.mark.wide
def test_an_earlier_head_learns_from_the_layers_that_it_reads(tmp_path: Path, trained) -> None:
    start, layers = tmp_path / "start" / "head", [1, 5, 9]
    shutil.copytree(trained(3, 3)[0] / "head", start)
    config = json.loads((start / "config.json").read_text())
    (start / "config.json").write_text(json.dumps(config | {"aux_hidden_state_layers": layers}))
    main("bundled", tmp_path / "out", tmp_path, _plan(3, 3), report=lambda row: None, start=start)
    (text, *_) = read_texts(tmp_path / "out" / "texts")
    module = load_pair("bundled").target.module
    output = module(text.tokens[None].long(), output_hidden_states=True)
    expected = torch.cat([output.hidden_states[i][0, :-1] for i in layers], -1)
    torch.testing.assert_close(text.states.float(), expected, atol=0.05, rtol=0.05)
    assert load_head(tmp_path / "out" / "head", module).aux_layers(12) == tuple(layers)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
@pytest.mark.wide
def test_an_earlier_head_is_trained_on(tmp_path: Path, trained) -> None:
    plan = _plan(3, 3)
    folder, first = trained(3, 3)
    (tmp_path / "second").mkdir()
    shutil.copytree(folder / "texts", tmp_path / "second" / "texts")
    start = folder / "head"
    figures = main("bundled", tmp_path / "second", tmp_path, plan, report=lambda row: None, start=start)
    assert figures["start"] == {
        "texts": 16,
        "answer_tokens": first["answer_tokens"],
        "seconds": first["seconds"],
        "steps": STEPS,
    }
    assert figures["overlap"] > first["overlap"]  # the same texts, and twice the steps
    target = load_pair("bundled").target.module
    before, after = (load_head(str(where / "head"), target).lm_head for where in (folder, tmp_path / "second"))
    assert torch.equal(before.tokens, after.tokens)
    assert before.tail_mass == after.tail_mass
    with pytest.raises(ModelUnavailable, match="no model to train on"):
        main("bundled", tmp_path / "second", tmp_path, plan, start=tmp_path / "nowhere")
    with pytest.raises(Contradiction):
        main("bundled", tmp_path / "second", tmp_path, _plan(1, 1), report=lambda row: None, start=start)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
def test_a_slot_is_asked_for_the_distribution_behind_its_token(tmp_path: Path, monkeypatch) -> None:
    """States and distributions that were written beside the texts are those that the target says of them."""
    plan = replace(_plan(1, 1), texts=10, side_by_side=10)
    monkeypatch.setattr(target_texts, "HELD_OUT_TEXTS", 2)
    main("bundled", tmp_path, tmp_path, replace(plan, schedule=replace(SMALL, steps=1)), report=lambda row: None)
    found = read_texts(tmp_path / "texts")
    batch, target = slots(stack(found[:3])), load_pair("bundled").target
    row = 0
    for lesson, tokens, states, judged in zip(found, batch.tokens, batch.states, batch.judged, strict=False):
        text = lesson.tokens.long()
        count = len(text) - 2
        assert tokens[:count].tolist() == text[1:-1].tolist()
        with torch.inference_mode():
            hidden = target.module.model(text[None]).last_hidden_state[0]
            distribution = target.module(text[None]).logits[0].softmax(-1)
        torch.testing.assert_close(states[:count].float(), hidden[:count], atol=0.05, rtol=0.02)
        assert judged.nonzero()[:, 0].tolist() == list(range(lesson.prompt - 2, count))
        for slot in range(lesson.prompt - 2, count):
            assert batch.top[row, 0] == distribution[slot + 1].argmax()
            torch.testing.assert_close(batch.p[row], distribution[slot + 1][batch.top[row]], atol=5e-3, rtol=5e-2)
            row += 1
    assert row == len(batch.p)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
def test_a_head_also_learns_from_texts_that_its_target_reads(tmp_path: Path, monkeypatch) -> None:
    existing = [("Question: What is 1 + 1?\nAnswer:", " It is 2."), ("Question: Why?\nAnswer:", " Because it is so.")]
    monkeypatch.setattr(target_texts, "existing_texts", lambda data, seed: iter(existing))
    monkeypatch.setattr(target_texts, "HELD_OUT_TEXTS", 2)
    plan = replace(_plan(1, 1), texts=8, side_by_side=8, existing=2, schedule=replace(SMALL, steps=1))
    figures = main("bundled", tmp_path, tmp_path, plan, report=lambda row: None)
    assert (figures["texts_read"], figures["texts"]) == (2, 8)
    target = load_pair("bundled").target
    for lesson in read_texts(tmp_path / "read"):
        text = lesson.tokens.long()
        with torch.inference_mode():
            hidden = target.module.model(text[None]).last_hidden_state[0]
        torch.testing.assert_close(lesson.states.float(), hidden[:-1], atol=0.05, rtol=0.02)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
def test_what_cannot_be_trained_is_refused(tmp_path: Path, monkeypatch) -> None:
    with pytest.raises(UnknownName, match="smollm2-135m, bundled"):
        plan_for("gemma2-9b")
    with pytest.raises(UnknownChoice):
        plan_for("bundled", generation=2)
    assert plan_for("bundled", generation=3, test_steps=4, texts=7, steps=9) == replace(
        HEAD_PLANS["bundled"], generation=3, steps=4, texts=7,
        schedule=replace(HEAD_PLANS["bundled"].schedule, steps=9),
    )  # fmt: skip
    monkeypatch.setattr(target_texts, "HELD_OUT_TEXTS", 64)
    with pytest.raises(NotEnough):
        main("bundled", tmp_path, tmp_path, replace(_plan(1, 1), texts=4), report=lambda row: None)


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
@pytest.mark.parametrize("name", [name for name, spec in MODEL_PAIRS.items() if isinstance(spec.head, Path)])
def test_heads_that_ship_are_small_and_have_their_cards(name: str) -> None:
    folder = MODEL_PAIRS[name].head
    assert isinstance(folder, Path)
    assert (folder / "model.safetensors").stat().st_size <= 12e6
    card, told = (folder / "README.md").read_text(), json.loads((folder / "training.json").read_text())
    assert f"{told['texts']:,} answers" in card
    for row in json.loads((folder / "measured.json").read_text())["rows"]:
        assert f"{row['acceptance_length']:.2f}" in card


@pytest.mark.usefixtures("_little_is_held_out_and_much_reported")
def test_the_bundled_head_drafts_better_in_a_tree_than_in_a_chain() -> None:
    pair = load_pair("bundled")
    lengths = {
        name: cards.acceptance(
            pair, "arithmetic",
            DecodingConfig(acceptance=Speculative(), drafter=drafter, topology=shape, max_new_tokens=48), 3, rows=1,
        )["acceptance_length"]
        for name, (drafter, shape) in cards.CONTENDERS.items()
        if name.startswith("head")
    }  # fmt: skip
    assert lengths["head, tree"] >= lengths["head, chain"] > 3.5
