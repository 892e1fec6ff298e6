"""What is said of a run of an engine, on its page and on the command line."""

from __future__ import annotations

import pytest

from dashboard.runs.opened_run import engine_html
from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.options import effective_options, effective_settings
from fsd_core.decoding.loop import compose
from fsd_core.engines.kinds import NO_METRICS, engine_sentences, latency_sentence
from fsd_core.errors import UnfitEngine
from fsd_core.rules import RULES
from tests.tools.run_views import decoding, metrics, run_view

SERVED = decoding("served", engine="vllm", endpoint="fast", url="http://host:8000", model="m<b>")
COUNTS = {"tokens": 100, "generated": 1350, "other_traffic": True, "left_out": "It is a gauge."}
TIMES = {"time_per_output_token": 0.02, "time_per_output_token_p90": 0.03, "time_per_output_token_p99": 0.0456}


def test_a_run_says_on_what_it_was_measured_and_what_is_left_out() -> None:
    found = metrics() | TIMES | {"engine": COUNTS | {"counted_here": 3, "prompts_differ": 2}}
    run = run_view(SERVED, found, provenance={"engine": "vLLM 0.32.0"})
    first, traffic, left_out, counted, differ = engine_sentences(run)
    assert first == "Measured on vLLM 0.32.0 at host:8000, 1 prompt at once."
    assert traffic.startswith("It wrote 1,250 tokens for others meanwhile")
    assert left_out == "Its acceptance is left out. It is a gauge."
    assert (counted[:36], differ[:9]) == ("It gave no usage figures for 3 answe", "2 prompts")
    assert latency_sentence(run) == (
        "First token after 20 ms; time per output token 20 ms, 90 % below 30, 99 % below 45.6; 1.67 answers a second."
    )
    page = str(engine_html(run))
    assert all(sentence.split(",")[0] in page for sentence in (first, traffic, left_out))


def test_drafts_that_each_answer_tells_are_not_said_to_be_left_out() -> None:
    llama_cpp = decoding("served", engine="llama.cpp", endpoint="local", url="http://host:8080", model="m")
    counts = {"tokens": 100, "other_traffic": None, "left_out": NO_METRICS}
    run = run_view(llama_cpp, metrics(acceptance=0.5) | {"engine": counts}, provenance={"engine": "llama.cpp"})
    assert engine_sentences(run)[1:] == [f"{NO_METRICS} So whether it wrote for others meanwhile cannot be told."]


def test_a_run_at_a_request_rate_says_it_and_how_many_prompts_were_held_back() -> None:
    counts = {"tokens": 100, "requests": 50, "held": 7}
    run = run_view(SERVED, metrics() | {"engine": counts}, batch=64, rate=2.5, provenance={"engine": "vLLM 0.32.0"})
    assert engine_sentences(run) == [
        "Measured on vLLM 0.32.0 at host:8000, 2.5 prompts a second, at most 64 at once.",
        "7 of 50 prompts were held back on arrival, since 64 were open: at this rate it fell behind.",
    ]
    assert effective_settings(run.config)["rate"] == 2.5  # in exports
    assert "rate" not in effective_settings(run_view(SERVED).config)


def test_our_own_runs_say_nothing_of_engines_and_old_ones_nothing_of_latency() -> None:
    run = run_view(decoding("speculative"), metrics(acceptance=0.5))
    assert (engine_sentences(run), latency_sentence(run), str(engine_html(run))) == ([], "", "")
    assert engine_sentences(run_view(SERVED)) == [
        "Measured on host:8000, which has not answered yet, 1 prompt at once."
    ]


def test_an_engine_is_no_rule_to_choose_and_no_loop_of_ours_writes_for_it() -> None:
    assert "served" not in RULES
    config = RunConfig(setting=SettingConfig(decoding=SERVED))
    assert effective_settings(config)["setting.decoding.acceptance.endpoint"] == "fast"
    assert "max_new_tokens" in effective_options(config)
    assert SERVED.label == "Served · vLLM fast"
    with pytest.raises(UnfitEngine, match="fast"):
        compose(None, SERVED)  # pyright: ignore[reportArgumentType] - it is refused before the models are read
