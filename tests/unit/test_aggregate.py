"""The figures of a run, its fidelity to another, and the runaways that few prompts do not show."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.stats import binom

from fsd_core.decoding.trace import RoundRecord
from fsd_core.evaluation.aggregate import Runaways, is_moved, runaways, summarise
from fsd_core.evaluation.versus import FIDELITY_KEYS, ComparedText, fidelity, versus, versus_target
from fsd_core.metrics import METRICS, compared
from fsd_core.statistics.intervals import PROMPTS_THAT_SHOW_RARE, most_share, wilson
from tests.tools.sizes import LONG
from tools.rare_runaways import CHANGED, LIMIT, PROMPTS, RATES, acceptance_coverage, coverage


@dataclass(frozen=True)
class Generated:
    position: int = 0
    text: str = ""
    outcome: str = "correct"
    stop_reason: str = "eos"
    tokens: int = 10
    rounds: int = 4
    drafted: int = 20
    accepted: int = 6
    fuzzy: int = 2
    negative_log_likelihood: float = 5.0
    seconds: float = 2.0
    time_to_first_token: float = 0.1
    thought_tokens: int = 0
    turn: int = 0
    group: str = ""
    cpu_seconds: float | None = None
    latency: float | None = None
    energy: float | None = None
    device_memory: int | None = None
    unread: bool = False
    timed: bool = True


def round_(accepted: int, judged: int, *, drafted: int = 3, divergence: float | None = 0.1) -> RoundRecord:
    return RoundRecord(
        drafted=tuple(range(drafted)),
        accepted=accepted,
        emitted=tuple(range(accepted + 1)),
        kinds=("strict",) * accepted + ("correction" if accepted < judged else "bonus",),
        divergence=(divergence,) * judged,
        target_probability=(0.5,) * judged,
        draft_probability=(0.5,) * judged,
        emitted_probability=(0.5,) * (accepted + 1),
        seconds=0.5,
        draft_seconds=0.2,
    )


def test_totals_and_ratios_are_of_sums_not_means_of_ratios() -> None:
    long = Generated(outcome="wrong", tokens=50, rounds=8, seconds=4.0, accepted=12)
    figures = summarise([Generated(), long], [])
    assert figures["tokens"] == 60
    assert figures["acceptance_rate"] == pytest.approx(18 / 40)
    assert figures["mean_acceptance_length"] == pytest.approx(60 / 12)
    assert figures["tokens_per_second"] == pytest.approx(10.0)
    assert figures["negative_log_likelihood"] == pytest.approx(10 / 60)
    assert figures["mean_tokens"] == 30
    assert figures["fuzzy_tokens"] == 4
    third = Generated(tokens=20, rounds=7, accepted=9, seconds=3.0)
    more = [
        third,
        Generated(tokens=25, rounds=6, seconds=2.0),
        Generated(tokens=30, rounds=6, seconds=2.5, accepted=11),
    ]
    figures = summarise([Generated(), long, *more], [])
    for name in ("acceptance_rate", "mean_acceptance_length", "tokens_per_second", "negative_log_likelihood"):
        assert figures[f"{name}_low"] < figures[name] < figures[f"{name}_high"]


def test_answers_have_a_length_passes_and_runaways_and_both_acceptance_lengths() -> None:
    texts = [Generated(), Generated(tokens=50, rounds=8, stop_reason="length"), Generated(stop_reason="context")]
    figures = summarise([*texts, Generated(outcome="failed", tokens=0, stop_reason="error")], [])
    assert figures["mean_tokens"] == pytest.approx(70 / 3)
    assert figures["target_passes"] == pytest.approx(16 / 3)
    assert figures["runaway_rate"] == pytest.approx(2 / 3)
    assert (figures["runaway_rate_low"], figures["runaway_rate_high"]) == wilson(2, 3)
    assert figures["mean_acceptance_length"] == pytest.approx(70 / 16)  # over rounds
    assert figures["mean_acceptance_length_by_request"] == pytest.approx((2.5 + 6.25 + 2.5) / 3)  # over requests


def test_acceptance_is_spread_over_requests() -> None:
    done = [Generated(accepted=n) for n in range(0, 21, 2)]
    assert summarise(done, [])["acceptance_deciles"] == pytest.approx([n / 10 for n in range(11)])
    assert summarise([Generated(drafted=0, accepted=0)], [])["acceptance_deciles"] == []


def test_answers_are_told_relative_to_those_of_the_target_alone() -> None:
    ours = {n: Generated(position=n, tokens=20 + n, rounds=4, seconds=1.0 + n) for n in range(6)}
    targets = {n: Generated(position=n, rounds=8, seconds=1.5) for n in range(1, 9)}
    found = versus_target(list(ours.values()), list(targets.values()))
    assert found["mean_tokens_versus_target"] == pytest.approx(23 / 10)  # of prompts 1 to 5
    assert found["target_passes_versus_target"] == 0.5
    assert found["runaway_rate_versus_target"] == 0
    assert found["mean_tokens_versus_target_low"] < 2.3 < found["mean_tokens_versus_target_high"]  # type: ignore[operator]
    assert found["runaway_rate_versus_target_low"] < 0 < found["runaway_rate_versus_target_high"]  # type: ignore[operator]
    assert set(versus_target([], list(targets.values())).values()) == {None}


def test_truncated_and_failed_count_against_accuracy_and_are_told_apart() -> None:
    outcomes = ["correct", "correct", "wrong", "truncated", "failed"]
    figures = summarise([Generated(outcome=o) for o in outcomes], [])
    assert {o: figures[o] for o in set(outcomes)} == {"correct": 2, "wrong": 1, "truncated": 1, "failed": 1}
    assert figures["n"] == 5
    assert figures["accuracy"] == pytest.approx(0.4)
    assert (figures["accuracy_low"], figures["accuracy_high"]) == wilson(2, 5)
    assert figures["seconds_per_solved_task"] == pytest.approx(10 / 2)


def test_a_failed_prompt_has_no_part_in_speed_but_its_time_is_not_forgotten() -> None:
    failed = Generated(
        outcome="failed", tokens=0, rounds=0, drafted=0, accepted=0, seconds=100.0, time_to_first_token=0
    )
    figures = summarise([Generated(), failed], [])
    assert figures["tokens_per_second"] == pytest.approx(5.0)
    assert figures["time_to_first_token"] == 0.1
    assert figures["seconds"] == figures["seconds_per_solved_task"] == 102


def test_unlabelled_prompts_have_no_accuracy() -> None:
    figures = summarise([Generated(outcome="unscored"), Generated(outcome="failed")], [])
    for name in ("accuracy", "accuracy_low", "accuracy_high", "seconds_per_solved_task"):
        assert figures[name] is None


def test_nothing_solved_has_no_time_per_solved_task() -> None:
    figures = summarise([Generated(outcome="wrong")], [])
    assert figures["accuracy"] == 0
    assert figures["seconds_per_solved_task"] is None


def test_a_baseline_has_no_acceptance_and_one_token_a_round() -> None:
    baseline = Generated(rounds=10, drafted=0, accepted=0, fuzzy=0)
    plain = RoundRecord((), 0, (7,), ("plain",), (), (), (), (0.9,), 0.2)
    figures = summarise([baseline], [[plain] * 10])
    assert figures["acceptance_rate"] is figures["acceptance_rate_low"] is None
    assert figures["mean_acceptance_length"] == 1
    assert figures["acceptance_at_position"] == figures["conditional_acceptance_at_position"] == []
    assert figures["divergence_histogram"] is None


def test_acceptance_by_position() -> None:
    # 3 accepted of 3; rejected at the second; rejected at the first; the end of the text after one of three drafted.
    rounds = [round_(3, 3), round_(1, 2), round_(0, 1), round_(1, 1)]
    figures = summarise([Generated()], [rounds[:2], rounds[2:]])
    assert figures["acceptance_at_position"] == pytest.approx([3 / 4, 1 / 4, 1 / 4])
    assert figures["conditional_acceptance_at_position"] == pytest.approx([3 / 4, 1 / 2, 1])
    assert figures["draft_seconds"] == pytest.approx(0.8)


def test_a_judged_bonus_is_no_draft_position() -> None:
    figures = summarise([Generated()], [[round_(3, 4)]])
    assert figures["acceptance_at_position"] == figures["conditional_acceptance_at_position"] == [1, 1, 1]


def test_the_histogram_counts_every_judged_token_infinite_ones_last() -> None:
    rounds = [round_(3, 3, divergence=0.2), round_(1, 2, divergence=0.0), round_(0, 1, divergence=math.inf)]
    histogram = summarise([Generated()], [rounds])["divergence_histogram"]
    assert sum(histogram["counts"]) == 6
    assert histogram["counts"][0] == 2
    assert histogram["counts"][-1] == 4
    assert (histogram["edges"][0], histogram["edges"][-1]) == (0, 0.2)
    assert len(histogram["edges"]) == len(histogram["counts"]) + 1


@pytest.mark.parametrize("divergence", [0.0, math.inf, None])
def test_figures_are_json_whatever_the_divergence(divergence: float | None) -> None:
    figures = summarise([Generated()], [[round_(1, 2, divergence=divergence)]])
    assert json.loads(json.dumps(figures, allow_nan=False)) == figures


def test_an_empty_run_has_figures_too() -> None:
    figures = summarise([], [])
    assert figures["n"] == figures["tokens"] == 0
    assert figures["accuracy"] is figures["tokens_per_second"] is figures["time_to_first_token"] is None
    json.dumps(figures, allow_nan=False)


def test_two_prompts_leave_their_ratios_without_an_interval() -> None:
    found = summarise([Generated(), Generated(tokens=20)], [])
    assert found["tokens_per_second"] is not None
    assert (found["tokens_per_second_low"], found["acceptance_rate_high"]) == (None, None)
    assert found["accuracy_low"] is not None  # Wilson's knows how little one problem says


def test_thoughts_have_a_length_of_their_own() -> None:
    figures = summarise([Generated(tokens=30, thought_tokens=20), Generated(tokens=10)], None)
    assert (figures["mean_tokens"], figures["mean_thought_tokens"]) == (20, 10)


def test_the_turns_of_a_conversation_are_one_prompt_in_intervals() -> None:
    lengths = [10, 20, 30, 40]
    turns = [Generated(i, tokens=n, turn=turn) for i, n in enumerate(lengths) for turn in (0, 1)]
    whole = [Generated(i, tokens=2 * n, rounds=8, drafted=40, accepted=12, seconds=4.0) for i, n in enumerate(lengths)]
    apart = [Generated(i, tokens=n) for i, n in enumerate(sorted(lengths * 2))]
    of_turns, of_whole, of_apart = (summarise(each, None) for each in (turns, whole, apart))
    for end in ("", "_low", "_high"):
        key = f"tokens_per_second{end}"
        assert of_turns[key] == pytest.approx(of_whole[key])
    assert of_turns["tokens_per_second_high"] > of_apart["tokens_per_second_high"]  # else too sure of itself
    assert (of_turns["n"], of_turns["tokens"]) == (8, 200)
    assert of_turns["mean_tokens"] == 25  # of a turn

    slower = [replace(each, seconds=2.0 + i % 3) for i, each in enumerate(turns)]
    sums = [replace(each, seconds=slower[2 * i].seconds + slower[2 * i + 1].seconds) for i, each in enumerate(whole)]
    metric = METRICS["tokens_per_second"]
    by_turn = versus(metric, dict(enumerate(slower)), dict(enumerate(turns)))
    assert by_turn == pytest.approx(versus(metric, dict(enumerate(sums)), dict(enumerate(whole))))


TARGETS = {
    0: ComparedText([1, 2, 3], 3.0),
    1: ComparedText([4, 5], 1.0),
    2: ComparedText([6], 0.5),
    3: ComparedText([7, 8, 9, 1], 2.5),
}


def test_a_lossless_method_is_the_target() -> None:
    found = fidelity(TARGETS, TARGETS, greedy=True)
    assert (found["same_text"], found["agreed_tokens"]) == (1.0, None)
    assert (found["excess_nll"], found["excess_nll_low"], found["excess_nll_high"]) == (0.0, None, None)


def test_texts_that_stray_are_counted_with_where_and_how_far() -> None:
    ours = {
        0: ComparedText([1, 2, 9], 6.0),
        1: TARGETS[1],
        2: ComparedText([6, 6, 6], 1.5),
        3: ComparedText([1], 3.0),
        9: ComparedText([1], 99.0),
    }
    found = fidelity(ours, TARGETS, greedy=True)
    assert found["same_text"] == 0.25
    assert (found["same_text_low"], found["same_text_high"]) == wilson(1, 4)
    assert found["agreed_tokens"] == 1  # of 2, 1 (the target had ended) and 0
    assert found["excess_nll"] == pytest.approx(11.5 / 9 - 7.0 / 10)  # prompt 9 is not shared
    assert found["excess_nll_low"] < found["excess_nll"] < found["excess_nll_high"]


def test_when_sampling_two_exact_methods_differ_as_well() -> None:
    found = fidelity(TARGETS, TARGETS, greedy=False)
    assert found["same_text"] is None
    assert found["excess_nll"] == 0.0


@pytest.mark.parametrize("ours", [{}, {7: ComparedText([1], 1.0)}, {0: ComparedText([], 0.0)}])
def test_what_cannot_be_told_is_none(ours: dict[int, ComparedText]) -> None:
    found = fidelity(ours, TARGETS, greedy=False)
    assert set(found) == set(FIDELITY_KEYS)
    assert found["excess_nll"] is None


@pytest.mark.parametrize("n", [10, 30])
def test_acceptance_looks_surer_than_it_is_and_what_is_said_beside_it_holds(n: int) -> None:
    alone, said = acceptance_coverage(n, 0.03, 0.3)
    assert alone < 0.9
    assert said >= 0.95


@pytest.mark.parametrize(("rate", "changed"), [(r, c) for r in RATES for c in CHANGED] if LONG else [(0.03, 0.3)])
def test_what_is_said_holds_where_an_interval_alone_does_not(rate: float, changed: float) -> None:
    """At most 5 % are wrong by design, one percent of runaways at n = 299 leaves a little more."""
    found = {n: coverage(n, rate, changed) for n in (PROMPTS if LONG else (30, PROMPTS_THAT_SHOW_RARE))}
    assert min(at.said for at in found.values()) >= 0.96, found
    assert max(at.wrong for at in found.values()) <= 0.075, found
    if (rate, changed) == (0.03, 0.3):  # what was wrong before
        assert found[30].alone < 0.9, found
        assert found[30].wrong_before > 0.1, found
        assert found[30].wrong < 0.02, found


@pytest.mark.parametrize(("seen", "n"), [(0, 1), (0, 30), (0, 299), (1, 30), (5, 40)])
def test_the_most_is_the_share_at_which_so_few_are_seen_once_in_twenty(seen: int, n: int) -> None:
    assert binom.cdf(seen, n, most_share(seen, n)) == pytest.approx(0.05)


def test_the_ends_of_the_rule_of_three() -> None:
    assert most_share(4, 4) == 1
    assert most_share(0, PROMPTS_THAT_SHOW_RARE) <= 0.01 < most_share(0, PROMPTS_THAT_SHOW_RARE - 1)
    with pytest.raises(ValueError, match="got 3 of 2"):
        most_share(3, 2)


def _answer(tokens: int, group: str = "", outcome: str = "correct", turn: int = 0) -> Any:
    stop = "length" if tokens == LIMIT else "eos"
    return SimpleNamespace(turn=turn, group=group, outcome=outcome, stop_reason=stop, tokens=tokens, timed=True)


def test_a_runaway_is_one_that_the_baseline_did_not_have() -> None:
    run = {0: _answer(LIMIT), 1: _answer(LIMIT), 2: _answer(9), 3: _answer(LIMIT, outcome="failed")}
    baseline = {0: _answer(LIMIT), 1: _answer(9), 2: _answer(LIMIT), 3: _answer(9), 4: _answer(9)}
    assert runaways(run, baseline) == Runaways(1, 3)
    assert runaways(run, {}) is None


def test_prompts_of_one_group_count_once() -> None:
    run = {i: _answer(LIMIT if i < 2 else 9, group=str(i // 4)) for i in range(12)}
    assert runaways(run, {i: _answer(9) for i in range(12)}) == Runaways(1, 3, "group")


def test_turns_of_one_conversation_count_once_and_are_named() -> None:
    run = {i: _answer(9, turn=i % 3) for i in range(90)}
    found = runaways(run, run)
    assert found == Runaways(0, 30, "conversation")
    assert found.sentence == "up to 10 % of answers could be overlong unseen by 30 conversations"


def test_what_a_long_answer_moves_is_told_of_them() -> None:
    moved = {metric.key for metric in compared() if is_moved(metric)}
    assert moved >= {"seconds_per_answer", "mean_tokens", "target_passes", "acceptance_rate", "mean_acceptance_length"}
    assert not moved & {"accuracy", "same_text", "runaway_rate"}


def test_it_is_said_in_words() -> None:
    assert Runaways(0, 30).sentence == "up to 10 % of answers could be overlong unseen by 30 prompts"
    assert Runaways(0, 299).sentence == "up to 1.0 % of answers could be overlong unseen by 299 prompts"
    assert Runaways(2, 30).sentence == "overlong beyond the baseline's: 2 of 30, and up to 20 % are possible"
    assert (Runaways(0, 30).prompts_lacking, Runaways(0, 300).prompts_lacking) == (269, 0)
