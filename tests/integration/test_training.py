"""The command that made the shipped weights, at toy size: it learns, resumes exactly, and writes its card."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice

import pytest
import torch
from transformers import AutoModelForCausalLM

from fsd_core.models.forwards import LinearLlama
from fsd_core.tasks import generators
from fsd_core.tasks.generators import DRAFT_STYLE, PLAIN_STYLE, TARGET_STYLE
from fsd_core.testing import toy_model
from fsd_core.training import bundled_pair, loop
from fsd_core.training.cards import write_card
from fsd_core.training.loop import make_optimizers, train, weighted_loss
from fsd_core.training.plans import BUNDLED_PLANS, BundledPlan, LinearPlan, Schedule

TINY = BundledPlan(Schedule(steps=51, batch=2, every=50), 16, 1, 32, 2, 2, TARGET_STYLE)


@pytest.fixture(scope="module")
def tokenizer():
    return bundled_pair.train_tokenizer(samples=2000)


def test_every_problem_is_solved_by_its_own_steps():
    for problem, text in islice(generators.stream_long(3), 2000):
        results = []
        for step in problem.steps:
            left, right = step.split(" = ")
            assert eval(left, {}) == int(right)
            results.append(int(right))
        assert results[-1] == problem.answer >= 0
        assert text.endswith(f"\n#### {problem.answer}")


@pytest.mark.parametrize("style", [TARGET_STYLE, DRAFT_STYLE], ids=["target", "draft"])
def test_words_to_choose_from_have_first_tokens_of_their_own(tokenizer, style):
    """So that a token of another's choice leads on to that choice, and costs nothing."""
    for name, choice in style.choices().items():
        space = "" if name == "marks" else " "
        firsts = {tokenizer(space + word.format(1))["input_ids"][0] for word, _ in choice}
        assert len(firsts) == len(choice), name


def test_the_plans_have_a_style_each():
    assert {role: plan.style for role, plan in BUNDLED_PLANS.items()} == {
        "target": TARGET_STYLE,
        "draft": DRAFT_STYLE,
    }


def test_batches_are_worded_in_the_style_that_is_asked_for(tokenizer):
    tokens, _ = next(bundled_pair.batches(tokenizer, 4, 0, frozenset(), TARGET_STYLE.favourites()))
    for text in tokenizer.batch_decode(tokens):
        assert "Answer: First, " in text
        assert "The result is" in text


def test_training_leaves_the_held_out_problems_out():
    held_out = frozenset(p.question for p in generators.held_out_long(600))
    assert len(held_out) == 600
    unfiltered = {p.question for p, _ in islice(generators.stream_long(20_250_228), 500)}
    assert unfiltered & held_out  # the same seed would show them
    assert not {p.question for p, _ in islice(generators.stream_long(20_250_228, held_out), 500)} & held_out


def test_an_evaluation_leaves_the_batches_as_they_are(tokenizer):
    """The tokenizer remembers the padding that an evaluation asks for; training text must not get any."""
    model = bundled_pair.build_model(TINY, tokenizer, seed=0)
    tokens, weights = next(bundled_pair.batches(tokenizer, 4, 9, frozenset(), PLAIN_STYLE))
    bundled_pair.solved(model, tokenizer, generators.held_out_long(3))
    again, weights_again = next(bundled_pair.batches(tokenizer, 4, 9, frozenset(), PLAIN_STYLE))
    assert torch.equal(tokens, again)
    assert torch.equal(weights, weights_again)
    assert (tokens == tokenizer.pad_token_id).sum() == (weights == 0).sum()


@pytest.mark.wide
def test_an_interrupted_training_resumes_to_the_same_weights(tokenizer, tmp_path):
    def run(report=lambda row: None):
        model = bundled_pair.build_model(TINY, tokenizer, seed=0)
        source = bundled_pair.batches(tokenizer, 2, 0, frozenset(), PLAIN_STYLE)
        return model, train(
            model, TINY.schedule, source, weighted_loss, tmp_path / "c.checkpoint", lambda: {"accuracy": 0.5}, report
        )

    whole, log = run()
    assert not (tmp_path / "c.checkpoint").exists()

    class Killed(Exception):
        pass

    def dying(row: dict) -> None:
        if row["step"] == 51:
            raise Killed

    with pytest.raises(Killed):
        run(dying)
    resumed, resumed_log = run()
    assert [row["step"] for row in resumed_log] == [row["step"] for row in log]
    for ours, theirs in zip(resumed.parameters(), whole.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.wide
def test_the_card_tells_what_the_logs_hold(tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "REPORT_EVERY", 5)
    plan = replace(TINY, schedule=Schedule(steps=10, batch=4))
    for role in ("target", "draft"):
        bundled_pair.train_role(role, plan, tokenizer, tmp_path, seed=0, report=lambda role, row: None)
    log = json.loads((tmp_path / "target" / "training.json").read_text())["log"]
    assert log[-1]["loss"] < log[0]["loss"]
    write_card(tmp_path)
    card = (tmp_path / "README.md").read_text()
    assert "10 x 4" in card
    assert "Held-out accuracy, greedy" in card
    assert "Two house styles" in card
    assert "First, 14 plus 6 is 20." in card
    assert "Step one: 14 + 6 = 20." in card
    assert "no claim about other pairs" in card


@pytest.mark.wide
def test_a_model_that_is_made_is_left_alone_until_its_plan_changes(tokenizer, tmp_path):
    plan, rows = replace(TINY, schedule=Schedule(steps=5, batch=2)), []

    def make(plan: BundledPlan) -> dict:
        return bundled_pair.train_role("draft", plan, tokenizer, tmp_path, 0, lambda role, row: rows.append(row))

    made = make(plan)
    weights = (tmp_path / "draft" / "model.safetensors").read_bytes()
    assert make(plan)["seconds"] == made["seconds"]
    assert len(rows) == 1
    make(replace(plan, style=DRAFT_STYLE))
    assert len(rows) == 2
    assert (tmp_path / "draft" / "model.safetensors").read_bytes() != weights


def test_a_checkpoint_knows_matrices_by_their_order_in_the_model(tokenizer):
    """Which must not depend on how this process happens to hash names: another one resumes."""
    model = toy_model(len(tokenizer), seed=0)
    (muon, _), (adamw, _) = make_optimizers(model, Schedule(steps=1))
    matrices = [p for name, p in model.named_parameters() if p.ndim == 2 and "embed" not in name]
    taken = [p for group in muon.param_groups for p in group["params"]]
    assert len(taken) == len(matrices) > 7
    assert all(a is b for a, b in zip(taken, matrices, strict=True))
    assert len([p for group in adamw.param_groups for p in group["params"]]) == len([*model.parameters()]) - len(taken)


@pytest.mark.parametrize("parts", ["local", "global", "all"])
def test_a_linear_target_learns_the_parts_that_it_is_asked_for(tokenizer, tmp_path, monkeypatch, parts):
    monkeypatch.setattr(bundled_pair, "solved", lambda *asked: 0.0)
    plan = LinearPlan(**vars(replace(TINY, schedule=Schedule(steps=5, batch=2))), parts=parts)
    bundled_pair.train_role("target", plan, tokenizer, tmp_path, 0, lambda role, row: None)
    attention = LinearLlama.from_pretrained(tmp_path / "target").model.layers[0].self_attn
    assert (attention.config.attention_group, attention.config.attention_taps) == (16, 16)
    assert bool(attention.past_scale) == (parts != "local")
    assert bool(attention.kernel.any()) == (parts == "all")


@pytest.mark.parametrize("parts", ["softmax", "all"])
def test_a_linear_target_and_the_one_it_is_compared_with_are_stored_in_half_the_bytes(tmp_path, monkeypatch, parts):
    plan = LinearPlan(**vars(replace(TINY, schedule=Schedule(steps=1, batch=2))), parts=parts)
    monkeypatch.setattr(bundled_pair, "LINEAR_PLAN", plan)
    monkeypatch.setattr(bundled_pair, "solved", lambda *asked: 0.25)
    figures = bundled_pair.train_linear_target(tmp_path, parts)
    stored = AutoModelForCausalLM.from_pretrained(tmp_path / "target")
    assert (stored.dtype, isinstance(stored, LinearLlama)) == (torch.bfloat16, parts == "all")
    assert (figures["plan"]["parts"], figures["held_out_accuracy"], "log" in figures) == (parts, 0.25, False)


@pytest.mark.wide
def test_what_a_linear_target_solves_is_counted_by_its_own_texts(tokenizer, monkeypatch):
    problems = [replace(problem, answer=7) for problem in generators.held_out_long(3)]
    plan = LinearPlan(**vars(TINY))
    model = bundled_pair.build_model(plan, tokenizer, seed=0)
    assert bundled_pair.solved(model, tokenizer, problems) == 0
    monkeypatch.setattr(tokenizer.__class__, "decode", lambda *args, **options: "so 3 + 4 = 7\n#### 7")
    assert bundled_pair.solved(model, tokenizer, problems) == 1


def test_the_taps_of_a_convolution_are_no_matrix_for_muon(tokenizer):
    model = bundled_pair.build_model(LinearPlan(**vars(TINY)), tokenizer, seed=0)
    (muon, _), _ = make_optimizers(model, Schedule(steps=1))
    kernels = {id(layer.self_attn.kernel) for layer in model.model.layers}
    assert not kernels & {id(p) for group in muon.param_groups for p in group["params"]}
