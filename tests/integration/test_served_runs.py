"""Runs of an engine over HTTP: our own loop behind a server of the tests, so that every figure can be told."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any, cast

import pytest
from transformers import PreTrainedTokenizerBase

from dashboard.runs.opened_run import provenance_html
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.config.options import method
from fsd_core.engines.kinds import measured_on
from fsd_core.errors import Cancelled, EngineUnavailable, InvalidSetting, UnknownName
from fsd_core.evaluation.rescoring import rescore
from fsd_core.evaluation.runner import RunObserver, execute_runs
from fsd_core.library.measuring import compare
from fsd_core.models.conversation import THOUGHT_MARKS
from fsd_core.models.loading import LoadedPair
from fsd_core.models.model_pairs import get_pair
from fsd_core.models.prompt import load_tokenizer
from fsd_core.rules import Served
from fsd_core.settings import Settings
from fsd_core.storage.records import READING_VERSIONS, GenerationView, RunView
from fsd_core.storage.repository import Repository
from fsd_core.tasks import get_task
from fsd_core.tasks.readings import READING_VERSION
from fsd_core.testing import save_toy_pair
from fsd_core.worker.run_actions import open_repository
from tests.tools.toy_engine import Request, ToyEngine
from tests.tools.worker_process import until
from tests.unit.test_components import Reader

SHARED: dict[str, Any] = {"max_new_tokens": 24}
LIMIT = 6
SD = method({"acceptance": "speculative", "draft_length": 3, **SHARED})


@pytest.fixture(scope="module")
def server(pair: LoadedPair) -> Iterator[ToyEngine]:
    with ToyEngine(pair, SD) as engine:
        yield engine


@pytest.fixture
def engine(server: ToyEngine) -> ToyEngine:
    server.reset(SD)
    return server


def run_of(repository: Repository, toy: str, served: Served, batch: int = 1, **decoding: Any) -> str:
    """The id of a new run of an endpoint, which is kept first."""
    repository.add_engine(served, "", "Ann")
    return repository.create_run(config(toy, DecodingConfig(acceptance=served, **SHARED | decoding), batch))


def config(toy: str, decoding: DecodingConfig, batch: int = 1) -> RunConfig:
    setting = SettingConfig(pair=toy, decoding=decoding)
    return RunConfig(setting=setting, task="arithmetic", limit=LIMIT, batch=batch)


def no_pair(*_: str) -> LoadedPair:
    raise AssertionError("no pair is loaded for an engine")


def measured(repository: Repository, id: str) -> tuple[RunView, list[GenerationView]]:
    execute_runs(repository, [id], no_pair)
    return repository.run(id), repository.generations(id)


def ours(repository: Repository, toy: str, pair: LoadedPair, **options: Any) -> tuple[RunView, list[GenerationView]]:
    """Our own loop on the same prompts."""
    id = repository.create_run(config(toy, method({**options, **SHARED})))
    execute_runs(repository, [id], lambda *_: pair)
    return repository.run(id), repository.generations(id)


def test_greedy_texts_are_the_targets_and_figures_are_those_of_the_loop_behind_it(
    repository: Repository, toy: str, pair: LoadedPair, engine: ToyEngine
) -> None:
    run, generations = measured(repository, run_of(repository, toy, engine.served()))
    _, alone = ours(repository, toy, pair, acceptance="autoregressive")
    behind, records = ours(repository, toy, pair, acceptance="speculative", draft_length=3)
    assert run.status == "finished"
    assert [g.text for g in generations] == [g.text for g in alone]
    columns = ("position", "example_id", "prompt_hash", "outcome", "answer", "stop_reason", "tokens")
    for mine, others in zip(generations, records, strict=True):
        assert [getattr(mine, name) for name in columns] == [getattr(others, name) for name in columns]
        assert 0 < mine.time_to_first_token <= (mine.latency or 0.0)
        assert mine.seconds > 0.8 * (mine.latency or 0.0)  # one at a time, its share is all of it
    figures, expected = run.metrics or {}, behind.metrics or {}
    assert figures["accuracy"] == expected["accuracy"]
    assert figures["acceptance_rate"] == pytest.approx(expected["acceptance_rate"])
    rounds = [record for _, records in repository.traces(behind.id) for record in records]
    drafts = [record for record in rounds if record.drafted]
    assert figures["engine_mean_acceptance_length"] == pytest.approx(
        1 + sum(record.accepted for record in drafts) / len(drafts)
    )
    assert figures["engine"]["other_traffic"] is False
    # An engine says nothing of rounds and probabilities: such figures are missing, and not 0.
    for unknown in ("target_passes", "negative_log_likelihood", "mean_acceptance_length"):
        assert figures[unknown] is None
        assert expected[unknown] > 0
    assert figures["time_per_output_token"] <= figures["time_per_output_token_p90"]
    assert figures["time_per_output_token_p90"] <= figures["time_per_output_token_p99"]
    assert run.provenance == {"engine": "vLLM 9.8.7", READING_VERSIONS: str(READING_VERSION)}
    assert [dict(session.conditions) for session in run.measurement_sessions] == [{"engine": "vLLM 9.8.7"}]
    asked = engine.asked[0]
    assert (asked["temperature"], asked["top_p"], asked["top_k"], asked["min_p"]) == (0.0, 1.0, -1, 0.0)
    assert all(isinstance(id, int) for id in asked["prompt"])


def test_prompts_that_arrive_at_a_rate_give_the_same_texts_and_no_more_are_open_than_may_be(
    repository: Repository, toy: str, engine: ToyEngine
) -> None:
    _, one = measured(repository, run_of(repository, toy, engine.served()))
    config = repository.run(run_of(repository, toy, engine.served(), batch=3)).config
    id = repository.create_run(config.model_copy(update={"rate": 500.0}))

    def cut_off(run: RunView) -> None:
        if run.prompts_done == 2:
            raise Cancelled("Somebody asked for it.")

    with pytest.raises(Cancelled):
        execute_runs(repository, [id], no_pair, RunObserver(cut_off))
    until(lambda: not engine.open, "the end of what was asked")  # the engine goes on with what nobody waits for
    repository.reopen_runs([id], enqueue=False)
    run, arrived = measured(repository, id)  # goes on with the prompts that are left
    assert run.status == "finished"
    assert [(g.position, g.text) for g in arrived] == [(g.position, g.text) for g in one]
    assert engine.most_open <= 3
    assert all(0 < g.time_to_first_token <= (g.latency or 0.0) for g in arrived)
    figures = (run.metrics or {})["engine"]
    assert 0 <= figures.get("held", 0) <= figures["requests"]
    place = engine.url.removeprefix("http://")
    assert measured_on(run) == f"vLLM 9.8.7 at {place}, 500 prompts a second, at most 3 at once"


def test_several_at_once_are_really_at_once_and_give_the_same_texts(
    repository: Repository, toy: str, engine: ToyEngine
) -> None:
    _, one = measured(repository, run_of(repository, toy, engine.served()))
    engine.together = Barrier(3)  # no prompt is answered before three of them are asked
    run, three = measured(repository, run_of(repository, toy, engine.served(), batch=3))
    assert engine.most_open == 3
    assert [g.text for g in three] == [g.text for g in one]
    # Shares sum to the time of all; each text's own time is longer.
    assert sum(g.seconds for g in three) < sum(g.latency or 0.0 for g in three)
    assert (run.metrics or {})["engine"]["other_traffic"] is False


def test_a_text_engine_gets_the_same_prompts_as_text(repository: Repository, toy: str, engine: ToyEngine) -> None:
    served = engine.served(engine="transformers-serve")
    _, generations = measured(repository, run_of(repository, toy, served))
    _, by_ids = measured(repository, run_of(repository, toy, engine.served()))
    assert isinstance(engine.asked[0]["prompt"], str)
    assert [g.text for g in generations] == [g.text for g in by_ids]


def test_without_usage_figures_tokens_are_counted_here_and_that_is_said(
    repository: Repository, toy: str, engine: ToyEngine
) -> None:
    _, counted = measured(repository, run_of(repository, toy, engine.served()))
    engine.usage = False
    run, generations = measured(repository, run_of(repository, toy, engine.served()))
    assert [g.tokens for g in generations] == [g.tokens for g in counted]
    assert (run.metrics or {})["engine"]["counted_here"] == LIMIT


def test_without_a_page_of_metrics_acceptance_is_left_out(repository: Repository, toy: str, engine: ToyEngine) -> None:
    engine.metrics = False
    run, _ = measured(repository, run_of(repository, toy, engine.served()))
    figures = run.metrics or {}
    assert (run.status, figures["acceptance_rate"]) == ("finished", None)
    assert figures["engine"]["left_out"] == "The engine's page of metrics could not be read."
    assert figures["engine"]["other_traffic"] is None


def test_other_traffic_is_marked(repository: Repository, toy: str, engine: ToyEngine) -> None:
    def beside_another(request: Request) -> None:
        engine.count(generated=7, drafted=3, drafts=1)
        request.answer()

    engine.faults.append(beside_another)
    run, _ = measured(repository, run_of(repository, toy, engine.served()))
    figures = run.metrics or {}
    assert figures["engine"]["other_traffic"] is True
    assert figures["acceptance_rate"] is None


def test_a_restart_in_the_middle_leaves_the_texts_and_takes_the_counters(
    repository: Repository, toy: str, engine: ToyEngine
) -> None:
    def restarted(request: Request) -> None:
        engine.counts.update(dict.fromkeys(engine.counts, 0))
        request.answer()

    engine.count(generated=100_000, drafts=100_000, drafted=100_000, accepted=100_000)
    engine.faults += [Request.answer, restarted]
    run, generations = measured(repository, run_of(repository, toy, engine.served()))
    engine_says = (run.metrics or {})["engine"]
    assert (run.status, len(generations)) == ("finished", LIMIT)
    assert engine_says["left_out"] == "The engine was restarted while it was measured, so its counters began anew."
    assert engine_says["generated"] is None


def test_what_ended_before_the_engine_died_stays_and_a_resumed_run_goes_on(
    repository: Repository, toy: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = measured(repository, run_of(repository, toy, engine.served()))
    monkeypatch.setattr("fsd_core.engines.client.RETRY_SECONDS", ())
    id = run_of(repository, toy, engine.served())
    engine.faults += [Request.answer] * 2 + [Request.break_off] * 10
    with pytest.raises(EngineUnavailable, match="does not answer"):
        execute_runs(repository, [id], no_pair)
    assert repository.done_positions(id) == {0, 1}
    assert repository.run(id).losses == {}
    engine.faults.clear()
    engine.asked.clear()
    run, generations = measured(repository, id)
    assert (run.status, len(engine.asked)) == ("finished", LIMIT - 2)
    assert [g.text for g in generations] == [g.text for g in whole]
    total = (run.metrics or {})["engine"]
    assert (total["requests"], total["tokens"]) == (LIMIT, sum(g.tokens for g in whole))


def test_a_cancelled_run_keeps_what_it_has_and_asks_nothing_more(
    repository: Repository, toy: str, engine: ToyEngine
) -> None:
    seen: list[int] = []

    def cancel(run: RunView) -> None:
        seen.append(run.prompts_done)
        if run.prompts_done == 2:
            raise Cancelled("Somebody asked for it.")

    id = run_of(repository, toy, engine.served())
    with pytest.raises(Cancelled):
        execute_runs(repository, [id], no_pair, RunObserver(on_prompt=cancel))
    run = repository.run(id)
    assert (run.status, run.prompts_done, len(engine.asked)) == ("cancelled", 2, 2)
    assert (run.metrics or {})["engine"]["requests"] == 2


def test_an_engine_takes_turns_with_our_own_loop_in_one_experiment(
    repository: Repository, toy: str, pair: LoadedPair, engine: ToyEngine
) -> None:
    mine = repository.create_run(config(toy, method({"acceptance": "autoregressive", **SHARED})))
    served, order = run_of(repository, toy, engine.served()), []
    observer = RunObserver(on_prompt=lambda run: order.append(run.id))
    execute_runs(repository, [mine, served], lambda *_: pair, observer)
    assert sorted(order[:2]) == sorted([mine, served])
    assert [g.text for g in repository.generations(mine)] == [g.text for g in repository.generations(served)]
    # The target alone of the same experiment is what the engine is held against, by its texts.
    assert (repository.run(served).metrics or {})["same_text"] == 1.0
    assert (repository.run(served).metrics or {})["speedup_versus_target"] > 0


def test_a_run_is_of_the_engine_that_it_began_with(repository: Repository, toy: str, engine: ToyEngine) -> None:
    id = run_of(repository, toy, engine.served())
    repository.add_engine(engine.served(model="another"), "", "Bob")
    with pytest.raises(EngineUnavailable, match="another engine now"):
        execute_runs(repository, [id], no_pair)
    repository.remove_engine("toy")
    with pytest.raises(EngineUnavailable, match="toy"):
        execute_runs(repository, [id], no_pair)
    assert engine.asked == []


def test_a_text_that_fills_the_engines_context_is_cut_there_and_a_prompt_that_does_fails_alone(
    repository: Repository, toy: str, engine: ToyEngine
) -> None:
    _, whole = measured(repository, run_of(repository, toy, engine.served()))
    lengths = [len(asked["prompt"]) for asked in engine.asked]
    assert whole[0].tokens == SHARED["max_new_tokens"]
    model = {"id": "toy-model", "max_model_len": lengths[0] + 5}
    engine.pages["/v1/models"] = (200, "application/json", json.dumps({"data": [model]}))
    engine.asked.clear()
    run, generations = measured(repository, run_of(repository, toy, engine.served()))
    assert (run.status, generations[0].stop_reason, generations[0].tokens) == ("finished", "context", 5)
    assert whole[0].text.startswith(generations[0].text.rstrip("\ufffd"))
    failed = [i for i, length in enumerate(lengths) if length >= lengths[0] + 5]
    assert [g.position for g in generations if g.outcome == "failed"] == failed
    assert len(engine.asked) == LIMIT - len(failed)
    model["max_model_len"] = max(lengths)
    engine.pages["/v1/models"] = (200, "application/json", json.dumps({"data": [model]}))
    _, generations = measured(repository, run_of(repository, toy, engine.served()))
    longest = lengths.index(max(lengths))
    assert f"and the engine's context is {max(lengths)}" in (generations[longest].error or "")


@pytest.mark.wide
def test_the_library_measures_an_endpoint_beside_ours_under_several_loads(
    home: Path, toy: str, pair: LoadedPair, engine: ToyEngine
) -> None:
    open_repository(Settings(home=home)).add_engine(engine.served(), "", "Ann", hardware="two cores")
    setting = {"acceptance": "speculative", "draft_length": 3, "max_new_tokens": 8}
    pair = replace(pair, spec=get_pair(toy))
    measured = compare([setting], "arithmetic", 4, pair=pair, batch=[1, 2], endpoints=["toy"], home=home)
    assert [(run.decoding.acceptance.kind, run.config.batch) for run in measured.runs] == [
        ("speculative", 1), ("served", 1), ("speculative", 2), ("served", 2),
    ]  # fmt: skip
    assert all((run.metrics or {})["time_per_output_token"] > 0 for run in measured.runs)
    assert measured_on(measured.runs[3]).endswith("(two cores), 2 prompts at once")
    figure = cast(Any, measured.figure("throughput_by_load"))
    assert [list(trace.x) for trace in figure.data] == [[1, 2], [1, 2]]
    arriving = compare([], "arithmetic", 2, pair=pair, endpoints=["toy"], rates=[50.0, 100.0], home=home)
    assert [(run.config.rate, run.config.batch, run.status) for run in arriving.runs] == [
        (50.0, 64, "finished"), (100.0, 64, "finished"),
    ]  # fmt: skip
    with pytest.raises(InvalidSetting, match="rate"):
        compare([setting], "arithmetic", 2, pair=pair, endpoints=["toy"], rates=[1.0], home=home)
    with pytest.raises(UnknownName, match="other"):
        compare([setting], "arithmetic", 4, pair=pair, endpoints=["other"], home=home)


MUSE = """{% for m in messages %}{% set c = m.content %}{% if m.role == 'assistant' and '<|muse_start|>' in c %}
{%- set c = c.split('<|muse_start|>')[0] + c.split('<|muse_end|>')[-1] %}{% endif %}{{ m.role }}: {{ c }}
{% endfor %}assistant:OPEN"""
"""thinks between special tokens that are no family's"""


def thinker(folder: Path, *, opened: bool) -> tuple[str, PreTrainedTokenizerBase]:
    """The name of a saved pair, and its tokenizer. ``opened``: whether prompts end inside of a thought."""
    name = save_toy_pair(folder)
    for role in ("target", "draft"):
        tokenizer = load_tokenizer(folder / role)
        tokenizer.add_special_tokens({"additional_special_tokens": ["<|muse_start|>", "<|muse_end|>"]})
        tokenizer.chat_template = MUSE.replace("OPEN", "<|muse_start|>" if opened else "")
        tokenizer.save_pretrained(folder / role)
    return name, load_tokenizer(folder / "target")


def test_thoughts_of_an_engine_are_those_of_its_pairs_template(
    repository: Repository, tmp_path: Path, engine: ToyEngine
) -> None:
    name, tokenizer = thinker(tmp_path, opened=False)
    answer = get_task("arithmetic").all_examples()[0].reference

    def thinks(request: Request) -> None:
        """The engine leaves special tokens out of its texts."""
        request.begin()
        ids = tokenizer(f"<|muse_start|>#### 1<|muse_end|>#### {answer}", add_special_tokens=False)["input_ids"]
        request.event(text=f"#### 1#### {answer}", token_ids=ids, finish_reason="stop")
        request.end()

    def never_ends(request: Request) -> None:
        request.begin()
        ids = tokenizer(f"<|muse_start|>#### {answer}", add_special_tokens=False)["input_ids"]
        request.event(text=f"#### {answer}", token_ids=ids, finish_reason="stop")
        request.end()

    engine.faults += [thinks, never_ends]
    run, (first, second, *_) = measured(repository, run_of(repository, name, engine.served()))
    assert (run.provenance or {})[THOUGHT_MARKS] == "<|muse_start|> … <|muse_end|>"
    assert (first.outcome, first.text) == ("correct", f"<|muse_start|>#### 1<|muse_end|>#### {answer}")
    assert 0 < first.thought_tokens < first.tokens
    assert (second.outcome, second.only_thought) == ("truncated", True)
    assert "Thought marks<|muse_start|> … <|muse_end|>" in Reader(provenance_html(run, {})).text
    assert rescore(repository, run.id) == 0  # by the marks that the run knows


def test_a_prompt_that_opens_a_thought_opens_it_for_an_engine_too(
    repository: Repository, tmp_path: Path, engine: ToyEngine
) -> None:
    name, _ = thinker(tmp_path, opened=True)

    def cut_off(request: Request) -> None:
        request.begin()
        request.event(text="#### 7 it is", finish_reason="length")
        request.end()

    engine.faults += [cut_off]
    run, (first, *_) = measured(repository, run_of(repository, name, engine.served()))
    assert (run.error, first.outcome, first.only_thought) == (None, "truncated", True)
