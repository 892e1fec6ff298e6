"""The one sentence that a comparison comes to, over loads and over the parts that make a run slower."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from dashboard.compare.compared_runs import ComparedRuns, compare
from dashboard.compare.comparison_html import answers_html
from dashboard.compare.export import csv_text, html, latex, markdown, matched_csv
from fsd_core.analysis.cells import run_names
from fsd_core.analysis.recommendation import (
    ACCEPTANCE,
    VERIFICATION,
    LoadLine,
    Slowdown,
    load_lines,
    load_sentences,
    recommend,
    slowdown,
)
from fsd_core.analysis.recommendation import DRAFT as RECOMMENDATION_DRAFT
from fsd_core.analysis.recommendation import LONGER as RECOMMENDATION_LONGER
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.evaluation.aggregate import summarise
from fsd_core.plots.curves import SPEEDS_BY_LOAD, draw_load_curves
from fsd_core.plots.trade_offs import FIGURE_NAMES, named_figure
from fsd_core.storage.records import PromptCounts, RunView
from fsd_core.storage.repository import Repository
from fsd_plugins.training import generators
from tests.tools.plausible import PROVENANCE, decoding, generation, new_repository, record
from tests.tools.run_views import decoding as view_decoding
from tests.tools.run_views import metrics, prompts, run_view
from tests.tools.run_views import prompts as prompts_of

TARGET, SD = decoding("autoregressive"), decoding("speculative")
LONGER = decoding("block")
STRICT, LOOSE = (decoding("fsd-reducible", divergence="js", threshold=t) for t in (0.05, 0.2))
PROMPTS = 60


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return new_repository(tmp_path)


def compared(
    repository: Repository, runs: Mapping[DecodingConfig, tuple[int, float]], margin: float | None = 2.0,
    done: Mapping[DecodingConfig, int] = {}, outcome: str = "wrong", cpu: float | None = None,
    elsewhere: Collection[DecodingConfig] = (),
) -> ComparedRuns:  # fmt: skip
    """Runs on the same prompts, each with how many of the first ones it does not solve, and its seconds an answer.
    Those of ``done`` are under way with so many prompts. ``cpu``: the share of the time that the runs had. Those of
    ``elsewhere`` had more threads."""
    sweep = SweepConfig(name="Known", limit=PROMPTS, seeds=(0,), decodings=tuple(runs))
    experiment = repository.create_experiment(sweep, enqueue=False)
    views = repository.experiment(experiment).runs
    for run in views:
        conditions = {"threads": 4} if run.decoding in elsewhere else {}
        repository.start_run(run.id, PROVENANCE | conditions)
        _measure(repository, run, *runs[run.decoding], done.get(run.decoding, PROMPTS), outcome, cpu)
    return compare(repository, [run.id for run in views], None, margin)


def _measure(
    repository: Repository, run: RunView, lost: int, seconds: float, done: int, outcome: str,
    cpu: float | None,
) -> None:  # fmt: skip
    problems = generators.held_out_long(PROMPTS)
    times = [seconds * (1 + 0.01 * ((7 * i + 3 * run.position) % (5 + run.position))) for i in range(done)]
    texts = [
        replace(
            generation(run, position, problem),
            outcome=outcome if position < lost or outcome == "unscored" else "correct",
            seconds=times[position],  # no two are alike
            cpu_seconds=None if cpu is None else cpu * times[position],
            text=f"{lost}",
        )
        for position, problem in enumerate(problems[:done])
    ]
    record(repository, run.id, texts)
    if done == PROMPTS:
        repository.finish_run(run.id, summarise(texts, (text.records for text in texts)))


def told(comparison: ComparedRuns) -> str:
    assert comparison.recommendation is not None
    return comparison.recommendation.sentence.partition(" On ")[0]


def named(comparison: ComparedRuns, decoding: DecodingConfig) -> str:
    return next(run.id for run in comparison.runs if run.decoding == decoding)


def test_the_fastest_lossy_setting_within_the_margin_is_the_answer(repository: Repository):
    comparison = compared(repository, {TARGET: (0, 4.0), SD: (0, 2.0), STRICT: (0, 1.0), LOOSE: (30, 0.5)}, margin=6.0)
    start = "Fastest within 6 points of the target: FSD reducible · js ≤ 0.05 · γ 5, 1.9"
    assert told(comparison).startswith(start)
    assert told(comparison).endswith("× SD · γ 5, 100 % solved, identical texts.")
    assert comparison.best == named(comparison, STRICT)
    assert f"{told(comparison)} On 60 prompts." in markdown(comparison, "Known").splitlines()


def test_nothing_that_is_not_shown_to_be_faster_is_called_the_fastest(repository: Repository):
    """Also where other programs took so much of the time that nothing is told apart."""
    slower = compared(repository, {TARGET: (0, 1.0), SD: (0, 1.1)})
    assert told(slower) == "Nothing here is faster than the target."
    shown = compared(repository, {TARGET: (0, 4.0), SD: (0, 2.7), LONGER: (0, 4.4)}, cpu=0.2)
    assert told(shown).startswith("Fastest without loss: SD · γ 5")
    unclear = compared(repository, {TARGET: (0, 4.0), SD: (0, 3.97)}, cpu=0.2)
    assert told(unclear) == (
        "Too busy to tell: nothing is shown to be faster than the target, and other programs took 80 % of the time. "
        "Measure again on a quiet machine."
    )
    assert unclear.best == named(unclear, TARGET)


def test_what_was_measured_under_other_conditions_is_not_called_slower(repository: Repository):
    runs = {TARGET: (0, 4.0), SD: (0, 2.0), STRICT: (0, 1.0)}
    all_apart = compared(repository, runs, 6.0, elsewhere=[SD, STRICT])
    assert told(all_apart) == (
        "Which setting is the fastest cannot be told. 2 settings were measured under other conditions than the target, "
        "so their speed is not compared: measure them in one experiment."
    )
    assert all_apart.best is None
    one = compared(repository, runs, 6.0, elsewhere=[STRICT])
    assert told(one).startswith("Fastest without loss: SD · γ 5, 1.99 × the target")
    assert told(one).endswith(
        "FSD reducible · js ≤ 0.05 · γ 5 was measured under other conditions than the target, so its speed is not "
        "compared: measure them in one experiment."
    )
    assert "No lossy setting" not in told(one)
    undecided = compared(repository, runs | {STRICT: (3, 1.0)}, 6.0, elsewhere=[STRICT])
    assert undecided.recommendation is not None
    assert undecided.recommendation.undecided_id is None
    assert told(undecided) == told(one)
    slower = compared(repository, {TARGET: (0, 4.0), SD: (0, 5.0), STRICT: (3, 1.0)}, 6.0, elsewhere=[STRICT])
    assert told(slower).startswith("Which setting is the fastest cannot be told. FSD reducible")


def test_no_reason_is_given_for_a_slowness_that_was_not_measured(repository: Repository):
    comparison = compared(repository, {TARGET: (0, 1.0), SD: (0, 2.0), LONGER: (0, 2.0)}, elsewhere=[SD])
    assert [row.run.decoding for row in comparison.rows if row.slowdown] == [LONGER]


def test_settings_under_another_load_are_neither_slower_nor_to_be_measured_in_one_experiment(repository: Repository):
    sweep = SweepConfig(name="Loads", limit=PROMPTS, seeds=(0,), decodings=(TARGET, SD), batches=(1, 4))
    views = repository.experiment(repository.create_experiment(sweep, enqueue=False)).runs
    for run in views:
        repository.start_run(run.id, PROVENANCE)
        _measure(repository, run, 0, 4.0 if run.decoding == TARGET else 5.0, PROMPTS, "wrong", None)
    comparison = compare(repository, [run.id for run in views], None, 2.0)
    assert told(comparison).endswith(
        "4 at once was measured under other conditions than the target, so its speed is not compared."
    )
    assert [row.run.config.batch for row in comparison.rows if row.slowdown] == [1]


@pytest.mark.parametrize("all_slower", [True, False])
def test_over_many_noisy_worlds_what_is_slower_is_hardly_ever_called_the_fastest(
    repository: Repository, all_slower: bool
) -> None:
    """A busy machine, answers that differ much, and rules whose true times are known: at most one world in twenty names
    a setting that is slower than the baseline, and where one is clearly faster most worlds name one that is."""
    seen = compared(repository, {TARGET: (0, 4.0), SD: (0, 2.0), LONGER: (0, 2.1), STRICT: (0, 1.9)}, margin=6.0)
    runs = {run.decoding: run for run in seen.runs}
    verdicts = {row.run.id: row.verdict for row in seen.rows}
    names, worlds, slower, faster = {run.id: run.decoding.label for run in seen.runs}, 100, 0, 0
    for seed in range(worlds):
        rng = np.random.default_rng(seed)
        truth = {one: rng.uniform(1.0, 1.3) if all_slower else rng.uniform(0.5, 1.3) for one in runs} | {TARGET: 1.0}
        if not all_slower:
            truth[LONGER] = 0.5
        prompts = {run.id: _noisy(rng, truth[one]) for one, run in runs.items()}
        found = recommend(seen.runs, runs[TARGET], prompts, names, verdicts, dict.fromkeys(names, 0.0), 6.0)
        best = next(one for one, run in runs.items() if run.id == found.run_id)
        slower += truth[best] > 1.0
        faster += truth[best] < 0.8
        assert ("Fastest" in found.sentence) == (best != TARGET)
    assert slower <= worlds // 20
    assert faster >= (0 if all_slower else worlds // 2)


def _noisy(rng: np.random.Generator, seconds: float) -> dict[int, PromptCounts]:
    """Times of answers of which other programs took between none and nine tenths."""
    own = seconds * rng.lognormal(0, 0.4, PROMPTS)
    walls = own / (1 - rng.uniform(0, 0.9, PROMPTS))
    return {
        i: PromptCounts("correct", "eos", 40, 10, 40, 30, 0, 1.0, wall, 0.01, cpu_seconds=cpu)
        for i, (wall, cpu) in enumerate(zip(walls.tolist(), own.tolist(), strict=True))
    }


def test_without_exact_sd_the_speed_is_held_against_the_baseline(repository: Repository):
    comparison = compared(repository, {TARGET: (1, 4.0), STRICT: (0, 1.0)}, margin=10.0)
    assert "× the target, 100 % solved, non-inferior." in told(comparison)


def test_what_would_decide_is_the_setting_that_may_be_within_the_margin_and_is_faster(repository: Repository):
    comparison = compared(repository, {TARGET: (1, 4.0), SD: (1, 2.0), STRICT: (0, 1.0), LOOSE: (40, 0.5)})
    found = comparison.recommendation
    assert found is not None
    verdict = next(row.verdict for row in comparison.rows if row.run.decoding == STRICT)
    assert verdict is not None
    assert verdict.kind == "undecided"
    assert (found.undecided_id, found.prompts) == (named(comparison, STRICT), verdict.prompts)
    assert verdict.prompts is not None
    more = f"about {verdict.prompts - PROMPTS:,} more prompts would decide on FSD reducible · js ≤ 0.05 · γ 5."
    assert told(comparison).startswith(f"No lossy setting is within 2 points of the target yet: {more} Fastest without")
    assert comparison.best == named(comparison, SD)


def test_of_settings_that_need_as_many_prompts_the_draft_alone_comes_last(repository: Repository):
    draft = decoding("draft-only")
    comparison = compared(repository, {TARGET: (1, 4.0), SD: (1, 2.0), draft: (0, 0.5), STRICT: (0, 1.0)})
    assert comparison.recommendation is not None
    assert comparison.recommendation.undecided_id == named(comparison, STRICT)


@pytest.mark.parametrize(("lost", "seconds"), [(3, 1.0), (0, 3.0)])
def test_no_more_prompts_are_asked_for_where_they_promise_nothing(repository: Repository, lost: int, seconds: float):
    comparison = compared(repository, {TARGET: (1, 4.0), SD: (1, 2.0), STRICT: (lost, seconds)})
    assert "what is undecided loses more so far, or is not faster. Fastest without loss: SD · γ 5" in told(comparison)
    assert comparison.recommendation is not None
    assert comparison.recommendation.prompts is None


def test_where_all_lossy_settings_are_worse_the_lossless_one_is_the_answer(repository: Repository):
    comparison = compared(repository, {TARGET: (0, 4.0), SD: (0, 2.0), STRICT: (30, 1.0), LOOSE: (40, 0.5)})
    assert told(comparison).startswith("No lossy setting is known to be within 2 points of the target: all of them are")
    assert comparison.best == named(comparison, SD)


def test_a_lossy_setting_that_is_slower_than_sd_is_not_the_answer(repository: Repository):
    comparison = compared(repository, {TARGET: (0, 4.0), SD: (0, 1.0), STRICT: (0, 2.0)}, margin=10.0)
    assert told(comparison).startswith(
        "No lossy setting within 10 points of the target is faster. Fastest without loss"
    )


def test_a_margin_of_nothing_asks_for_more_accuracy(repository: Repository):
    comparison = compared(repository, {TARGET: (30, 4.0), SD: (30, 2.0), STRICT: (0, 1.0)}, margin=0.0)
    assert told(comparison).startswith("Fastest more accurate than the target: FSD reducible")


@pytest.mark.wide
def test_runs_that_are_not_finished_are_told_and_get_no_verdict(repository: Repository):
    known = {TARGET: (0, 4.0), SD: (0, 2.0), STRICT: (0, 1.0)}
    comparison = compared(repository, known, 20.0, done={STRICT: 40})
    assert told(comparison).startswith("Fastest without loss: SD · γ 5")
    assert told(comparison).endswith("1 run is not finished.")
    row = next(row for row in comparison.rows if row.run.decoding == STRICT)
    assert row.verdict is None
    assert row.run.metrics is not None
    assert (row.run.metrics["n"], row.run.metrics["accuracy"]) == (40, 1.0)
    assert row.run.metrics["accuracy_low"] is not None
    assert all(cell.estimate for cell in row.cells[:1])
    assert told(compared(repository, known, done={SD: 10, STRICT: 3})).startswith("Nothing can be said yet: 2 runs are")
    assert "before the baseline is measured" in told(compared(repository, known, done={TARGET: 3}))


@pytest.mark.wide
def test_what_cannot_be_answered_says_why(repository: Repository):
    known = {TARGET: (0, 4.0), SD: (0, 2.0), STRICT: (0, 1.0)}
    assert "Without a margin of 0 to 20 points" in told(compared(repository, known, margin=None))
    assert "choose another one" in told(compared(repository, {TARGET: (0, 4.0)}))
    unscored = compared(repository, known, outcome="unscored")
    assert "no prompt of it is scored. Fastest without loss: SD · γ 5" in told(unscored)
    assert told(compared(repository, {TARGET: (0, 1.0), SD: (0, 2.0)})) == "Nothing here is faster than the target."


@pytest.mark.wide
def test_every_figure_and_file_is_made_of_runs_under_way(repository: Repository):
    known = {TARGET: (0, 4.0), SD: (0, 2.0), STRICT: (0, 1.0), LOOSE: (9, 0.5)}
    for done in ({TARGET: 3, SD: 0, STRICT: 0, LOOSE: 0}, {SD: 1, STRICT: 3, LOOSE: 5}):
        comparison = compared(repository, known, done=done)
        for name in FIGURE_NAMES:
            named_figure(name, comparison.runs, comparison.baseline, comparison.prompts, marked=comparison.best)
        shown = f"{done[STRICT]} of {PROMPTS}"
        assert f'<td class="verdict ">{shown}</td>' in answers_html(comparison)
        assert f"{shown} prompts" in html(comparison)
        assert all(write(comparison) for write in (csv_text, matched_csv, latex, lambda c: markdown(c, "Known")))


ENGINE = {"engine": "vllm", "url": "http://host:8000", "model": "m"}
PLAIN, DRAFT = (view_decoding("served", endpoint=name, **ENGINE) for name in ("plain", "draft"))
LOADS: tuple[int, ...] = (1, 2, 4)


def done(seconds: float) -> dict[int, PromptCounts]:
    """Counts of twenty prompts of about ten tokens."""
    (spread,) = prompts_of(run_view(PLAIN, metrics())).values()
    return {
        i: replace(one, tokens=10 + i % 3, seconds=seconds * (1 + 0.01 * (i % (5 if seconds == 1.0 else 4))))
        for i, one in spread.items()
        if i < 20
    }


def measured(
    what: Any, load: int, seconds: float, prompts: dict[str, Any], acceptance: float | None = None, **more: Any
) -> RunView:
    figures = metrics(acceptance=acceptance) | {"time_per_output_token": seconds / 10} | more.pop("figures", {})
    run = run_view(what, figures, batch=load, **cast(Any, {"provenance": {"engine": "vLLM 0.32.0"}, **more}))
    prompts[run.id] = done(seconds)
    return run


def lines_of(times: Mapping[int, float], baseline: Any = PLAIN, setting: Any = DRAFT, **more: Any) -> list[LoadLine]:
    """The setting beside a baseline that takes a second per answer under every load."""
    prompts: dict[str, Any] = {}
    acceptance = None if baseline is PLAIN else 0.5
    runs = [measured(baseline, load, 1.0, prompts, acceptance) for load in times]
    runs += [measured(setting, load, seconds, prompts, 0.5, **more) for load, seconds in times.items()]
    return load_lines(runs, runs[1], prompts)


@pytest.mark.parametrize(
    ("times", "sentence"),
    [
        ((0.5, 0.6, 1.2), "plain at 1 and 2 at once, and at 4 no longer beyond chance (at 4 it is slower)"
         ": speculation stops paying between 2 and 4."),
        ((0.5, 0.6, 0.7), "under every load, from 1 to 4 at once: speculation still pays at 4."),
        ((1.5, 1.6, 1.7), "no load, from 1 to 4 at once, and is slower at 1, 2 and 4: speculation does not pay here."),
        ((1.5, 0.6, 1.2), "at 2 at once, and not at the other loads (at 1 and 4 it is slower)."),
    ],
)  # fmt: skip
def test_a_sentence_says_where_speculation_stops_paying(times: tuple[float, ...], sentence: str) -> None:
    lines = lines_of(dict(zip(LOADS, times, strict=True)))
    assert [[point.load for point in line.points] for line in lines] == [[1, 2, 4], [1, 2, 4]]
    (told,) = load_sentences(lines)
    assert told.startswith("Served · vLLM draft writes more tokens per second than")
    assert told.endswith(sentence)


def test_nothing_is_said_of_speculation_where_the_baseline_speculates_too_or_another_engine_writes() -> None:
    times = dict(zip(LOADS, (0.5, 0.6, 1.2), strict=True))
    other = view_decoding("served", endpoint="other", **ENGINE | {"engine": "sglang"})
    for lines in (lines_of(times, baseline=other), lines_of(times, provenance={"engine": "SGLang"})):
        (told,) = load_sentences(lines)
        assert "speculation" not in told


def test_other_traffic_and_one_load_alone_are_left_out_with_the_reason() -> None:
    traffic = {"figures": {"engine": {"other_traffic": True, "tokens": 1, "generated": 2}}}
    reasons = load_sentences(lines_of({1: 0.5, 2: 0.6}, **traffic))
    assert reasons == [
        f"Served · vLLM draft at {load} at once wrote for others meanwhile, so it is not compared." for load in (1, 2)
    ]
    prompts: dict[str, Any] = {}
    runs = [measured(PLAIN, 1, 1.0, prompts), *(measured(DRAFT, load, 0.5, prompts, 0.5) for load in (1, 2))]
    lines = load_lines(runs, runs[0], prompts)
    assert [line.name for line in lines] == ["Served · vLLM draft"]
    assert load_sentences(lines) == [
        "The baseline was measured under one load alone: choose one that was measured under several."
    ]
    assert load_lines(runs[:2], runs[0], prompts) == []


def test_request_rates_are_an_axis_of_their_own() -> None:
    prompts: dict[str, Any] = {}
    times = {1.0: (1.0, 0.5), 2.5: (1.0, 1.2)}
    runs = [
        measured(what, 64, seconds, prompts, accepted, rate=rate, figures={"engine": {"held": 3}})
        for rate, both in times.items()
        for what, seconds, accepted in zip((PLAIN, DRAFT), both, (None, 0.5), strict=True)
    ]
    runs += [measured(what, load, 0.5, prompts) for what in (PLAIN, DRAFT) for load in (1, 64)]
    lines = load_lines(runs, runs[0], prompts)
    assert [(line.by_rate, [point.load for point in line.points]) for line in lines] == [
        (True, [1.0, 2.5]), (True, [1.0, 2.5]), (False, [1, 64]), (False, [1, 64])
    ]  # fmt: skip
    assert [line.is_baseline for line in lines] == [True, False, True, False]
    told = load_sentences(lines)
    assert any(
        sentence.endswith("at 1 a second, and at 2.5 no longer beyond chance (at 2.5 it is slower): speculation stops "
                          "paying between 1 and 2.5.")
        for sentence in told
    )  # fmt: skip
    for name, what in SPEEDS_BY_LOAD.items():
        figure = cast(Any, named_figure(name, runs, runs[0], prompts))
        assert [trace.x for trace in figure.data] == [(1.0, 2.5) if what.by_rate else (1, 64)] * 2
        assert figure.layout.xaxis.title.text.startswith("Prompts a second" if what.by_rate else "Prompts at once")
    first = cast(Any, draw_load_curves(lines, SPEEDS_BY_LOAD["time_to_first_token_by_rate"])).data[0]
    assert "3 prompts were held back on arrival" in first.hovertext[0]
    assert "2.5 a second" in first.hovertext[1]
    names = [*run_names(runs).values()]
    assert names[0].endswith("plain · 1 a second")
    assert names[-1].endswith("draft · 64 at once")


def test_the_figures_draw_our_batches_on_the_same_axis_and_names_tell_loads_apart() -> None:
    prompts: dict[str, Any] = {}
    runs = [measured(what, load, 0.5, prompts) for what in (view_decoding("speculative"), DRAFT) for load in LOADS]
    lines = load_lines(runs, runs[0], prompts)
    for name, what in SPEEDS_BY_LOAD.items():
        figure = cast(Any, named_figure(name, runs, runs[0], prompts))
        assert [trace.x for trace in figure.data] == ([] if what.by_rate else [LOADS, LOADS])
        assert figure.layout.xaxis.type == (None if what.by_rate else "log")
    median = cast(Any, draw_load_curves(lines, SPEEDS_BY_LOAD["time_per_token_by_load"])).data[0]
    assert median.y == (50.0, 50.0, 50.0)
    assert "median 50 ms" in median.hovertext[0]
    assert list(run_names(runs).values())[3:] == [f"Served · vLLM draft · {load} at once" for load in LOADS]


SLOWDOWN_TARGET = run_view(view_decoding("autoregressive"), metrics(47, speed=100) | {"draft_seconds": 0.0})


def slow(
    tokens: float = 3.0, length: float = 1.0, draft: float = 0.5, verification: float = 1.0, **changes: object
) -> Slowdown | None:
    """A run whose rounds bring so many tokens, draft for so many of the target's passes and verify for so many."""
    found = metrics(40, acceptance=0.5)
    run = run_view(
        view_decoding("speculative"), found | {"draft_seconds": draft, "seconds": draft + verification}, **changes
    )
    base = prompts(SLOWDOWN_TARGET)[SLOWDOWN_TARGET.id]
    ours = {}
    for i, one in base.items():
        rounds = round(10 * length * one.tokens)
        seconds = rounds / 10 / tokens * (draft + verification) * one.seconds / one.tokens * (1 + 0.01 * (i % 3))
        ours[i] = replace(
            one, tokens=round(10 * length * one.tokens), rounds=round(rounds / tokens), seconds=10 * seconds
        )
    # Ten times as many of everything, so that no count is rounded; the baseline likewise.
    theirs = {
        i: replace(one, tokens=10 * one.tokens, rounds=10 * one.tokens, seconds=10 * one.seconds)
        for i, one in base.items()
    }
    return slowdown(run, SLOWDOWN_TARGET, {run.id: ours, SLOWDOWN_TARGET.id: theirs})


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"tokens": 2.0, "length": 2.2}, (RECOMMENDATION_LONGER,)),
        ({"tokens": 2.0, "draft": 1.5}, (RECOMMENDATION_DRAFT,)),
        ({"tokens": 2.0, "verification": 2.2}, (VERIFICATION,)),
        ({"tokens": 1.05, "draft": 0.4, "verification": 1.1}, (ACCEPTANCE,)),
        ({"tokens": 2.0, "draft": 0.9, "verification": 1.5}, (RECOMMENDATION_DRAFT, VERIFICATION)),
    ],
)
def test_the_part_that_does_it_is_named(changes: dict[str, float], parts: tuple[str, ...]) -> None:
    found = slow(**changes)  # type: ignore[arg-type]
    assert found is not None
    assert found.parts == parts
    assert found.time > 1


def test_what_would_break_even() -> None:
    found = slow(tokens=2.0, draft=1.2, verification=1.3)
    assert found is not None
    assert found.break_even == pytest.approx(2.5, rel=0.03)
    alpha = found.acceptance
    assert alpha is not None
    assert (1 - alpha**6) / (1 - alpha) == pytest.approx(found.break_even)
    assert (
        f"break even at {found.break_even:.2f} tokens per pass, an acceptance of {100 * alpha:.0f} %"
        in found.sentence()
    )


def test_what_cannot_break_even_is_said() -> None:
    found = slow(tokens=2.0, draft=5.0, verification=2.0)
    assert found is not None
    assert found.acceptance is None
    assert "which 6 at most cannot reach" in found.sentence()


def test_a_run_that_is_not_surely_slower_has_no_reason() -> None:
    assert slow(tokens=3.0) is None
    assert slow(tokens=1.6) is None
    assert slowdown(SLOWDOWN_TARGET, SLOWDOWN_TARGET, prompts(SLOWDOWN_TARGET)) is None
    assert slow(tokens=1.0, task="other") is None


def test_a_draft_alone_has_no_rounds_to_explain() -> None:
    draft: RunView = run_view(view_decoding("draft-only"), metrics(10, speed=10))
    assert slowdown(draft, SLOWDOWN_TARGET, prompts(draft, SLOWDOWN_TARGET)) is None
