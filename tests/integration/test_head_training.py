"""Training EAGLE heads, for a few steps: what is learnt, kept, gone on with, and refused."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
import torch

from fsd_core.config import DecodingConfig, DynamicTreeTopology, EagleDrafter, Speculative
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import Contradiction, ModelUnavailable, NotEnough, UnknownChoice, UnknownName
from fsd_core.models.eagle_files import load_head
from fsd_core.models.loading import load_pair
from fsd_core.models.model_pairs import MODEL_PAIRS
from fsd_core.training import cards, loop, target_texts
from fsd_core.training.eagle_head import main, plan_for, slots
from fsd_core.training.plans import HEAD_PLANS, HeadPlan, Schedule
from fsd_core.training.target_texts import read_texts, stack
from tests.tools.sizes import some

STEPS = 30
SMALL = Schedule(steps=STEPS, batch=4, adamw_lr=1e-2, muon_lr=0.05, every=STEPS // 2)


@pytest.fixture(autouse=True)
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


@pytest.mark.parametrize("name", [name for name, spec in MODEL_PAIRS.items() if isinstance(spec.head, Path)])
def test_heads_that_ship_are_small_and_have_their_cards(name: str) -> None:
    folder = MODEL_PAIRS[name].head
    assert isinstance(folder, Path)
    assert (folder / "model.safetensors").stat().st_size <= 12e6
    card, told = (folder / "README.md").read_text(), json.loads((folder / "training.json").read_text())
    assert f"{told['texts']:,} answers" in card
    for row in json.loads((folder / "measured.json").read_text())["rows"]:
        assert f"{row['acceptance_length']:.2f}" in card


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
