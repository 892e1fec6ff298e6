from __future__ import annotations

import math
from dataclasses import replace

import pytest

from fsd_core.decoding.decoder import PairDecoder
from fsd_core.decoding.trace import RoundRecord
from fsd_core.evaluation.harness import negative_log_likelihood, prompt_seed, run_example, run_examples, thought_tokens
from fsd_core.models.loading import LoadedPair
from fsd_core.tasks import Example, get_task
from fsd_core.tasks.base import Score, Task, judged
from fsd_core.testing import SAMPLED_FSD

TASK = get_task("arithmetic")


class AnyText(Task):
    """Whatever is written is right."""

    name, title = "any", "Any text"

    def all_examples(self) -> tuple[Example, ...]:
        return Example("a", "Say", "right"), Example("b", "Say more", "right")

    def score_answer(self, text: str, example: Example, stop_reason: str) -> Score:
        return judged("right" if text else None, example, stop_reason)


def test_an_output_depends_on_seed_and_position_alone(pair: LoadedPair) -> None:
    decoder, example = PairDecoder(pair, SAMPLED_FSD), TASK.examples(1)[0]
    first = run_example(decoder, TASK, example, 3, seed=1)
    again = run_example(PairDecoder(pair, SAMPLED_FSD), TASK, example, 3, seed=1)
    assert first.text == again.text
    assert run_example(decoder, TASK, example, 4, seed=1).text != first.text
    assert run_example(decoder, TASK, example, 3, seed=2).text != first.text


def test_an_empty_prompt_is_a_failed_one(pair: LoadedPair) -> None:
    record = run_example(PairDecoder(pair, SAMPLED_FSD), TASK, Example("x", "  ", "7"), 0, seed=0)
    assert (record.outcome, record.records) == ("failed", [])
    assert record.error == "The prompt is empty: write at least one word."


def test_prompt_seeds_are_spread_and_fit_31_bits() -> None:
    seeds = {prompt_seed(seed, position) for seed in range(20) for position in range(500)}
    assert len(seeds) == 20 * 500
    assert min(seeds) >= 0
    assert 2**30 < max(seeds) < 2**31


@pytest.mark.parametrize(("probability", "expected"), [(1.0, 0.0), (0.5, math.log(2)), (0.0, 149 * math.log(2))])
def test_negative_log_likelihood_is_finite(probability: float, expected: float) -> None:
    step = RoundRecord((), 0, (5,), ("plain",), (), (), (), (probability,), 0.1)
    assert negative_log_likelihood([step, replace(step, emitted_probability=(1.0,))]) == pytest.approx(expected)


@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize(
    ("template_end", "outcome"), [("<think>\n", "truncated"), ("<think>\n\n</think>\n", "correct")]
)
def test_a_text_that_begins_inside_of_a_thought_and_never_leaves_it_has_no_answer(
    pair: LoadedPair, template_end: str, outcome: str, rows: int
) -> None:
    decoder, task = PairDecoder(pair, SAMPLED_FSD), AnyText()
    pair.tokenizer.chat_template = "{{ messages[0]['content'] }}" + template_end
    try:
        records = list(run_examples(decoder, task, dict(enumerate(task.all_examples())), 0, rows))
    finally:
        pair.tokenizer.chat_template = None
    assert [record.outcome for record in records] == [outcome] * 2
    assert [record.thought_tokens for record in records] == [
        record.tokens if outcome == "truncated" else 0 for record in records
    ]


def test_the_tokens_of_thoughts_are_counted_with_their_marks(pair: LoadedPair) -> None:
    def counted(text: str, *, thinking: bool = False) -> int:
        return thought_tokens(pair, pair.tokenizer(text)["input_ids"], text, TASK, thinking)  # a token for each byte

    assert counted("#### 18") == 0
    assert counted("<think>é</think>\n#### 18") == len("<think>é</think>".encode())
    assert counted("a <think>b</think> c <think>d</think> e") == 2 * len("<think>b</think>")
    assert counted("b</think>c") == len("b</think>")
    assert counted("bc", thinking=True) == 2
