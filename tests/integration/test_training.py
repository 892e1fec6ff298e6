"""The commands that made the shipped weights, at toy size: they learn, resume and write their card."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from fsd_core.models.forwards import LinearLlama
from fsd_core.testing import toy_model
from fsd_core.tracking import connect
from fsd_plugins.training import bundled_pair, counting, generators, loop
from fsd_plugins.training.cards import write_card
from fsd_plugins.training.counting import fastest, with_leniency_verdicts
from fsd_plugins.training.generators import DRAFT_STYLE, PLAIN_STYLE, TARGET_STYLE
from fsd_plugins.training.loop import curves, make_optimizers, train, weighted_loss
from fsd_plugins.training.plans import BUNDLED_PLANS, BundledPlan, LinearPlan, Schedule

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


N = 400


def row(rule: str, speed: float, threshold: float | None = None) -> dict:
    return {"acceptance": rule, "tokens_per_second": speed} | ({} if threshold is None else {"threshold": threshold})


def solving(count: int) -> dict[int, bool]:
    return {i: i < count for i in range(N)}


def test_a_setting_is_free_traded_or_ruined_beside_the_fastest_exact_one():
    rows = [
        row("autoregressive", 100), row("speculative", 200), row("speculative", 250), row("fsd-reducible", 300, 0.05),
        row("fsd-reducible", 375, 0.1), row("fsd-reducible", 400, 0.3), row("fsd-reducible", 425, 0.6),
    ]  # fmt: skip
    told = with_leniency_verdicts(rows, [solving(count) for count in (390, 390, 390, 390, 388, 372, 300)])
    assert [r["region"] for r in told] == ["free", "free", "free", "free", "free", "traded", "ruined"]
    assert [r["speedup"] for r in told] == pytest.approx([0.4, 0.8, 1, 1.2, 1.5, 1.6, 1.7])
    assert told[5]["difference"] == pytest.approx(-18 / N)
    assert told[5]["low"] < told[5]["difference"] < told[5]["high"] < 0
    assert fastest(told, "speculative")["tokens_per_second"] == 250
    assert fastest(told, "fsd-reducible", "free")["threshold"] == 0.1
    assert fastest(told, "fsd-official") == {}


def test_too_few_problems_leave_a_small_loss_open():
    """Three problems lost and two won are no loss of four hundred; of forty nobody can tell."""
    for problems, region in ((400, "free"), (40, "open")):
        ours, theirs = {i: i >= 3 for i in range(problems)}, {i: i not in (5, 6) for i in range(problems)}
        told = with_leniency_verdicts([row("speculative", 1), row("fsd-reducible", 2, 0.2)], [theirs, ours])
        assert told[1]["region"] == region


@pytest.mark.wide
def test_a_calibration_holds_every_setting_and_the_best(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(counting, "EXACT_LENGTHS", (2, 4))
    monkeypatch.setattr(counting, "LENIENT_LENGTHS", (4,))
    monkeypatch.setattr(counting, "THRESHOLDS", (0.05, 0.6))
    rows: list[dict] = []
    file = counting.sweep_thresholds(limit=2, timed=1, file=tmp_path / "calibration.json", report=rows.append)
    told = json.loads(file.read_text())
    assert (told["pair"], told["task"], told["prompts"]) == ("bundled", "arithmetic", 2)
    assert [*told["samplings"]] == [*counting.SWEPT_SAMPLINGS]
    assert [r for part in told["samplings"].values() for r in part["rows"]] == rows
    for name, part in told["samplings"].items():
        assert [r["acceptance"] for r in part["rows"]] == ["autoregressive"] + 2 * ["speculative"] + 2 * [
            "fsd-reducible"
        ]
        assert all(counting.SWEPT_SAMPLINGS[name].items() <= r.items() for r in part["rows"])
        assert part["exact"] in part["rows"]
        assert part["exact"]["speedup"] == 1
        assert part["free"] == {} or part["free"] in part["rows"]
        assert all(0 <= r["accuracy"] <= 1 and r["mean_tokens"] > 0 for r in part["rows"])


@pytest.mark.wide
def test_every_number_is_logged_at_its_step(tmp_path: Path) -> None:
    uri, told = f"sqlite:///{tmp_path / 'mlflow.db'}", []
    with curves(uri, "A draft", told.append) as log:
        log({"file": 1, "of": 3, "tokens": 99})  # before the training proper
        log({"step": 25, "loss": 2.5, "seconds": 1.0})
        log({"step": 50, "loss": 1.5, "seconds": 2.0, "overlap": 0.4})
    with pytest.raises(ZeroDivisionError), curves(uri, "Another", told.append) as log:
        log({"step": 1, "loss": 1 / 0})
    client, experiment = connect(uri)
    failed, finished = client.search_runs([experiment])
    assert (finished.info.run_name, finished.info.status) == ("A draft", "FINISHED")
    assert (failed.info.run_name, failed.info.status) == ("Another", "FAILED")
    history = client.get_metric_history(finished.info.run_id, "loss")
    assert [(point.step, point.value) for point in history] == [(25, 2.5), (50, 1.5)]
    assert set(finished.data.metrics) == {"loss", "seconds", "overlap"}
    assert told == []


def test_a_training_goes_on_without_mlflow() -> None:
    told: list[str] = []
    with curves("http://127.0.0.1:9", "A draft", told.append) as log:
        log({"step": 1, "loss": 1.0})
    assert len(told) == 1
    assert "MLflow" in told[0]
