"""Settings over the load: who is faster under which, where speculation stops paying, and what is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import pytest

from fsd_core.analysis.cells import run_names
from fsd_core.analysis.recommendation import LoadLine, load_lines, load_sentences
from fsd_core.plots.curves import SPEEDS_BY_LOAD, draw_load_curves
from fsd_core.plots.trade_offs import named_figure
from fsd_core.storage.records import PromptCounts, RunView
from tests.tools.run_views import decoding, metrics, run_view
from tests.tools.run_views import prompts as prompts_of

ENGINE = {"engine": "vllm", "url": "http://host:8000", "model": "m"}
PLAIN, DRAFT = (decoding("served", endpoint=name, **ENGINE) for name in ("plain", "draft"))
LOADS: tuple[int, ...] = (1, 2, 4)


def done(seconds: float) -> dict[int, PromptCounts]:
    """Counts of twenty prompts of about ten tokens."""
    (spread,) = prompts_of(run_view(PLAIN, metrics())).values()
    return {
        i: one._replace(tokens=10 + i % 3, seconds=seconds * (1 + 0.01 * (i % (5 if seconds == 1.0 else 4))))
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
    other = decoding("served", endpoint="other", **ENGINE | {"engine": "sglang"})
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
    runs = [measured(what, load, 0.5, prompts) for what in (decoding("speculative"), DRAFT) for load in LOADS]
    lines = load_lines(runs, runs[0], prompts)
    for name, what in SPEEDS_BY_LOAD.items():
        figure = cast(Any, named_figure(name, runs, runs[0], prompts))
        assert [trace.x for trace in figure.data] == ([] if what.by_rate else [LOADS, LOADS])
        assert figure.layout.xaxis.type == (None if what.by_rate else "log")
    median = cast(Any, draw_load_curves(lines, SPEEDS_BY_LOAD["time_per_token_by_load"])).data[0]
    assert median.y == (50.0, 50.0, 50.0)
    assert "median 50 ms" in median.hovertext[0]
    assert list(run_names(runs).values())[3:] == [f"Served · vLLM draft · {load} at once" for load in LOADS]
