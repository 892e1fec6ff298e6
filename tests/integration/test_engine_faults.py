"""What a served engine may do wrong: each is a sentence, and what was measured stays."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fsd_core.config import DecodingConfig, RunConfig, SamplingConfig, SettingConfig
from fsd_core.config.options import method
from fsd_core.engines import client
from fsd_core.engines.client import check_engine
from fsd_core.engines.kinds import NO_METRICS
from fsd_core.errors import EngineUnavailable, FsdError, InvalidSetting, Misconfigured, UnfitEngine
from fsd_core.evaluation.runner import execute_runs
from fsd_core.models.loading import LoadedPair
from fsd_core.rules import Served
from fsd_core.storage.records import GenerationView, RunView
from fsd_core.storage.repository import Repository
from tests.tools.certificates import self_signed
from tests.tools.toy_engine import Request, ToyEngine

SD = method({"acceptance": "speculative", "draft_length": 3, "max_new_tokens": 12})
JSON = "application/json"
Measure = Callable[..., tuple[RunView, list[GenerationView]]]


@pytest.fixture(scope="module")
def server(pair: LoadedPair) -> Iterator[ToyEngine]:
    with ToyEngine(pair, SD) as engine:
        yield engine


@pytest.fixture
def engine(server: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> ToyEngine:
    monkeypatch.setattr(client, "RETRY_SECONDS", (0.0, 0.0))
    server.reset(SD)
    return server


@pytest.fixture
def measure(repository: Repository, toy: str, engine: ToyEngine) -> Measure:
    """Measures three prompts; a fault of the engine that ends the run is raised by ``execute_runs``."""

    def run(served: Served | None = None, key: str = "", **changed: Any) -> tuple[RunView, list[GenerationView]]:
        served = served or engine.served(**changed)
        repository.add_engine(served, key, "Ann")
        decoding = DecodingConfig(acceptance=served, max_new_tokens=12)
        setting = SettingConfig(pair=toy, decoding=decoding)
        id = repository.create_run(RunConfig(setting=setting, task="arithmetic", limit=3))
        execute_runs(repository, [id], lambda *_: None)  # pyright: ignore[reportArgumentType] - none is loaded
        return repository.run(id), repository.generations(id)

    return run


def says_html(request: Request) -> None:
    request.page(200, "text/html; charset=utf-8", "<html><body>Sign in</body></html>")


def says_json(request: Request) -> None:
    request.page(200, JSON, '{"choices": [{"text": "4"}]}')


def refuses(request: Request) -> None:
    request.page(400, JSON, '{"error": {"message": "the prompt is too odd", "code": 400}}')


def busy(request: Request) -> None:
    request.page(503, JSON, '{"error": "loading"}')


def half(request: Request) -> None:
    request.begin()
    request.event(text="The answer")


def in_the_middle(request: Request) -> None:
    half(request)
    request.send({"error": {"message": "out of memory"}})
    request.end()


def breaks_off(request: Request) -> None:
    half(request)
    request.break_off()


def ends_early(request: Request) -> None:
    half(request)
    request.end()


def filtered(request: Request) -> None:
    request.begin()
    request.event(text="4", finish_reason="content_filter")
    request.end()


def no_json(request: Request) -> None:
    request.begin()
    request.chunk("data: {broken\n\n")
    request.end()


def another_model(request: Request) -> None:
    request.begin()
    request.event(model="gemma", text="4", finish_reason="stop")
    request.end()


def sends(*events: str) -> Callable[[Request], None]:
    """An answer with events of its own."""

    def fault(request: Request) -> None:
        request.begin()
        for event in events:
            request.chunk(f"data: {event}\n\n")
        request.end()

    return fault


def writes(**choice: Any) -> Callable[[Request], None]:
    return sends(json.dumps({"choices": [{"finish_reason": "stop", "text": "4", **choice}]}))


def counts(**usage: Any) -> Callable[[Request], None]:
    return sends('{"choices": [{"text": "4", "finish_reason": "stop"}]}', json.dumps({"usage": usage}))


def floods(part: str) -> Callable[[Request], None]:
    """An answer of which the engine can send a part only: whoever reads it all reads 64 MB."""

    def fault(request: Request) -> None:
        request.begin()
        with suppress(OSError):
            for sent in range(0, 64_000_000, len(part)):
                request.flooded = sent
                request.chunk(part)
            request.end()
        request.close_connection = True

    return fault


def compresses(request: Request) -> None:
    packed = gzip.compress(b"data: {}\n\n" * 100_000)
    request.send_response(200)
    for name, value in (("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")):
        request.send_header(name, value)
    request.send_header("Content-Length", str(len(packed)))
    request.end_headers()
    request.wfile.write(packed)


def leads_elsewhere(request: Request) -> None:
    request.page(307, JSON, "", Location="http://127.0.0.1:9/v1/completions")


def is_no_http(request: Request) -> None:
    with suppress(OSError):
        request.wfile.write(b"HTTP/1.1 200 OK\r\n" + b"X-More: x\r\n" * 100_000)
    request.close_connection = True


LONG = "x" * 50_000


@pytest.mark.parametrize(
    ("fault", "sentence", "text"),
    [
        (sends("[" * 100_000), "The engine sent an event that is no JSON: [[[", False),
        (sends('{"choices": [{"text": "\\ud800"}]}'), "The engine sent an event that is no JSON: {", False),
        (sends("[]"), "The engine sent an event that is no object: []", False),
        (sends('{"choices": {}}'), "The engine sent an event that cannot be read. Choices is {}: expected a", False),
        (writes(text=["4"]), "cannot be read. Text is ['4']: expected a text.", False),
        (writes(token_ids=[10**30]), f"Token ids is {10**30}: expected at most 2147483647.", False),
        (writes(token_ids=["x"]), "Token ids is 'x': expected a whole number.", False),
        (writes(token_ids=[-1]), "Token ids is -1: expected at least 0.", False),
        (writes(token_ids=[10**6]), "sent the token id 1000000, which is beyond the pair's vocabulary", False),
        (writes(token_ids=[1] * 13), "says that it wrote 13 tokens, and 12 were asked for", False),
        (counts(completion_tokens="inf"), "Completion tokens is 'inf': expected a whole number.", True),
        (counts(completion_tokens=10**30), f"Completion tokens is {10**30}: expected at most", True),
        (counts(completion_tokens=13), "says that it wrote 13 tokens, and 12 were asked for", True),
        (sends('{"timings": {"draft_n": 1, "draft_n_accepted": 2}}'), "accepted 2 of 1 drafted tokens", False),
        (writes(text="x" * 20_000), "The engine wrote more characters than 12 tokens can have.", False),
        (floods("x" * 50_000), "The engine sent an event of more than 1,000,", False),
        (floods(f'data: {{"choices": [{{"text": "{LONG}'), "The engine sent an event of more than 1,000,", False),
        (floods(": nothing\n" * 10_000), "bytes for the 12 tokens of an answer.", False),
        (floods('data: {"choices": []}\n' * 5_000), "bytes for the 12 tokens of an answer.", False),
    ],
)
def test_what_is_more_or_other_than_was_asked_for_is_that_prompts_and_is_not_read_on(
    engine: ToyEngine, measure: Measure, fault: Callable[[Request], None], sentence: str, text: bool
) -> None:
    seen: list[Request] = []

    def remembered(request: Request) -> None:
        seen.append(request)
        fault(request)

    engine.faults += [Request.answer, remembered]
    run, (_, second, third) = measure()
    assert (run.status, second.outcome, third.outcome == "failed") == ("finished", "failed", False)
    assert sentence in (second.error or "")
    assert (len(engine.asked), second.tokens, bool(second.text)) == (3, 0, text)
    assert seen[0].flooded < 16_000_000  # 1 MB, and what a connection holds in between


@pytest.mark.parametrize(
    "metrics",
    [
        'vllm:spec_decode_num_accepted_tokens_per_pos_total{position="99999999"} 1',
        f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{position="{"9" * 5000}"}} 1',
        "vllm:generation_tokens_total +Inf",
        "vllm:generation_tokens_total NaN",
        "vllm:generation_tokens_total 1e300",
        "vllm:generation_tokens_total 9e15\n" * 2_000,
        "vllm:generation_tokens_total -1",
        "some_gauge 1\n" * 400_000,
        "vllm:generation_tokens_total{" + "a" * 100_000 + "} -1",
    ],
)
def test_a_page_of_metrics_that_cannot_be_true_leaves_acceptance_out(
    engine: ToyEngine, measure: Measure, metrics: str
) -> None:
    engine.pages["/metrics"] = (200, "text/plain", metrics)
    run, generations = measure()
    counted = (run.metrics or {})["engine"]
    assert (run.status, len(generations), counted["requests"]) == ("finished", 3, 3)
    assert (counted["left_out"], counted["generated"], counted["accepted_at"]) == (NO_METRICS, None, [])


@pytest.mark.parametrize(
    ("fault", "sentence", "text"),
    [
        (in_the_middle, "The engine reports an error: out of memory", True),
        (breaks_off, "The connection to the engine broke in the middle of its answer", True),
        (ends_early, "The answer ended without saying why", True),
        (filtered, "The engine ended the answer for the reason 'content_filter'.", True),
        (no_json, "The engine sent an event that is no JSON: {broken", False),
        (refuses, "The engine refused the prompt (400): the prompt is too odd", False),
    ],
)
def test_a_fault_in_one_answer_is_that_prompts_and_the_others_stay(
    engine: ToyEngine, measure: Measure, fault: Callable[[Request], None], sentence: str, text: bool
) -> None:
    engine.faults += [Request.answer, fault]
    run, (first, second, third) = measure()
    assert (run.status, first.outcome == "failed", third.outcome == "failed") == ("finished", False, False)
    assert (second.outcome, second.tokens, bool(second.text)) == ("failed", 0, text)
    assert sentence in (second.error or "")
    assert len(engine.asked) == 3  # what has begun is not asked for again
    figures = run.metrics or {}
    assert (figures["failed"], figures["mean_tokens"]) == (1, (first.tokens + third.tokens) / 2)
    assert figures["seconds_per_answer"] == pytest.approx((first.seconds + third.seconds) / 2)


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (says_html, "none of an engine that speaks as OpenAI's API does: it answers with a page for people"),
        (says_json, "it does not stream its answers, but sends application/json"),
        (another_model, "The engine answers as the model 'gemma', and the endpoint says 'toy-model'"),
        (compresses, "it compresses its answers .gzip., unasked"),
        (leads_elsewhere, "it leads to another address .307."),
        (is_no_http, "it does not answer as HTTP does"),
    ],
)
def test_what_is_no_engine_ends_the_run_and_the_first_prompts_stay(
    repository: Repository, engine: ToyEngine, measure: Measure, fault: Callable[[Request], None], sentence: str
) -> None:
    engine.faults += [Request.answer, fault]
    with pytest.raises(EngineUnavailable, match=sentence.replace("'", ".")):
        measure()
    (run,) = repository.runs()
    assert (run.prompts_done, run.ended, len(engine.asked)) == (1, False, 2)


@pytest.mark.wide
def test_a_busy_engine_is_asked_again_and_nothing_is_counted_twice(
    repository: Repository, engine: ToyEngine, measure: Measure
) -> None:
    engine.faults += [busy, busy]
    run, generations = measure()
    assert (run.status, len(generations), len(engine.asked)) == ("finished", 3, 5)
    assert (run.metrics or {})["engine"]["requests"] == 3
    assert (run.metrics or {})["engine"]["other_traffic"] is False
    engine.faults += [busy] * 3
    with pytest.raises(EngineUnavailable, match="answered 503"):
        measure()


@pytest.mark.wide
def test_an_engine_that_is_too_slow_fails_the_prompt_at_its_deadline(
    engine: ToyEngine, measure: Measure, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs: list[Request] = []

    def hang(request: Request) -> None:
        hangs.append(request)
        half(request)
        request.connection.recv(1)  # until the other side closes it

    original = client.EngineClient.answer

    async def quickly(self: client.EngineClient, question: client.EngineQuestion) -> Any:
        self._deadline = 1.0 if engine.faults == [hang] else 600.0
        return await original(self, question)

    monkeypatch.setattr(client.EngineClient, "answer", quickly)
    engine.faults.append(hang)
    _, (first, second, _) = measure()
    assert len(hangs) == 1
    assert (first.outcome, second.outcome == "failed") == ("failed", False)
    assert first.error == (
        "The engine did not end its answer within 1 seconds: ask for shorter answers or fewer at once."
    )


def test_a_server_that_is_down_is_told_before_anything_is_stored(engine: ToyEngine) -> None:
    with pytest.raises(EngineUnavailable, match=r"The engine at http://127.0.0.1:9 does not answer \(ConnectError\)"):
        check_engine(engine.served(url="http://127.0.0.1:9"))


@pytest.mark.parametrize(
    ("path", "answer", "sentence"),
    [
        ("/v1/models", (200, "text/html", "<html>"), "it answers with a page for people"),
        ("/v1/models", (307, JSON, ""), r"it leads to another address \(307\)"),
        ("/v1/models", (200, JSON, "[]"), "its list of models is none"),
        ("/v1/models", (200, JSON, "{"), "its answer to /v1/models is no JSON"),
        ("/v1/models", (200, JSON, "[" * 100_000), "its answer to /v1/models is no JSON"),
        ("/v1/models", (200, JSON, '{"data": [{"id": "a", "max_model_len": "inf"}]}'), "its list of models is none"),
        ("/v1/models", (200, JSON, '{"data": [' + "0," * 3_000_000), "answer to /v1/models has more than 4,000,000"),
        ("/v1/models", (500, JSON, "x" * 5_000_000), "answer to /v1/models has more than 4,000,000"),
        ("/v1/models", (404, JSON, "{}"), "it has no /v1/models"),
        ("/v1/models", (500, JSON, '{"detail": "broken"}'), r"refused /v1/models \(500\): broken"),
        ("/v1/models", (401, JSON, "{}"), r"refused a request without a key \(401\)"),
        ("/v1/models", (200, JSON, '{"data": [{"id": "b"}, {"id": "a"}]}'), "has no model 'toy-model': it serves b, a"),
        ("/version", (200, JSON, '{"version": "1", "spec": {"synth_len": 3.4}}'), "makes its acceptance up .synth_len"),
    ],
)
def test_what_an_engine_must_say_of_itself(
    engine: ToyEngine, path: str, answer: tuple[int, str, str], sentence: str
) -> None:
    engine.pages[path] = answer
    with pytest.raises(EngineUnavailable, match=sentence):
        check_engine(engine.served())


def test_a_version_is_not_needed_and_one_without_made_up_acceptance_is_taken(engine: ToyEngine) -> None:
    engine.pages["/version"] = (404, JSON, "{}")
    assert check_engine(engine.served()) == {"engine": "vLLM"}
    engine.pages["/version"] = (200, JSON, '{"version": "1", "spec": {"synth_len": 0.0, "synth_rates": []}}')
    assert check_engine(engine.served()) == {"engine": "vLLM 1"}


def test_an_untrusted_certificate_is_refused_and_named(pair: LoadedPair, tmp_path: Path) -> None:
    files = self_signed(tmp_path, "127.0.0.1")
    with ToyEngine(pair, SD, files) as engine, pytest.raises(EngineUnavailable, match="is not trusted"):
        check_engine(engine.served())


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"url": "http://ann:secret@host"}, "says who signs in"),
        ({"url": "http://host?api_key=secret"}, "says who signs in"),
        ({"url": "ftp://host"}, "is none of a server"),
        ({"url": "http://"}, "is none of a server"),
        ({"url": "http://host:port"}, "cannot be read"),
        ({"endpoint": "Not a name"}, "expected 1 to 40 small letters"),
        ({"model": " \n"}, "The model's name cannot be used"),
        ({"engine": "vllama"}, "expected 'vllm', 'sglang'"),
    ],
)
def test_an_endpoint_that_cannot_be_is_refused_without_its_secret(changed: dict[str, Any], sentence: str) -> None:
    known = {"engine": "vllm", "endpoint": "a", "url": "http://host:8000/v1/", "model": "m"}
    assert Served.checked(**known).url == "http://host:8000"
    with pytest.raises(InvalidSetting, match=sentence) as refusal:
        Served.checked(**known | changed)
    assert "secret" not in str(refusal.value)


def test_a_way_of_sampling_that_an_engine_does_not_take_is_refused() -> None:
    served = Served(engine="openai", endpoint="a", url="http://host", model="m")
    with pytest.raises(UnfitEngine, match="OpenAI API"):
        client.check_sampling(served, SamplingConfig(temperature=1.0, min_p=0.1))
    client.check_sampling(served.model_copy(update={"engine": "vllm"}), SamplingConfig(top_k=5))


KEY = 'sk-"live"/key\\4711'
"""one that JSON writes otherwise than it is"""
SAID = json.dumps(f"Bearer {KEY}")


@pytest.fixture
def key(monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("ENGINE_KEY", KEY)
    return "ENGINE_KEY"


@pytest.mark.parametrize(
    ("path", "answer", "sentence"),
    [
        ("/v1/models", (200, JSON, f'{{"data": [{{"id": {SAID}}}]}}'), "it serves Bearer ***."),
        ("/v1/models", (400, JSON, f'{{"error": {{"message": {SAID}}}}}'), "(400): Bearer ***"),
        ("/v1/models", (400, JSON, f'{{"error": {{{SAID}: 1}}}}'), '(400): {"Bearer ***": 1}'),
        ("/v1/models", (400, "text/plain", "." * 290 + KEY), "(400): " + "." * 290 + "***"),
        ("/version", (200, JSON, f'{{{SAID[:-1]}_synth": 3}}'), "makes its acceptance up (Bearer ***_synth)"),
    ],
)
def test_a_key_that_an_engine_says_of_itself_is_in_no_sentence(
    engine: ToyEngine, key: str, path: str, answer: tuple[int, str, str], sentence: str
) -> None:
    engine.pages[path] = answer
    with pytest.raises(EngineUnavailable, match=re.escape(sentence)) as refusal:
        check_engine(engine.served(), key)
    assert KEY not in str(refusal.value)


@pytest.mark.parametrize(
    ("fault", "ends", "text"),
    [
        (lambda request: request.page(400, JSON, f'{{"error": {SAID}}}'), "refused the prompt (400): Bearer ***", ""),
        (lambda request: request.page(200, f"text/{KEY}", "x"), "but sends text/***", None),
        (sends(f'{{"model": {SAID}}}'), "answers as the model 'Bearer ***'", None),
        (sends(f'{{"error": {SAID}}}'), "reports an error: Bearer ***", ""),
        (sends(f"{{{KEY}"), "that is no JSON: {***", ""),
        (writes(token_ids=[f"Bearer {KEY}"]), "Token ids is 'Bearer ***'", ""),
        (writes(finish_reason=f"Bearer {KEY}"), "for the reason 'Bearer ***'", "4"),
        (
            sends(
                json.dumps({"choices": [{"text": f"The key: {KEY[:5]}"}]}),
                json.dumps({"choices": [{"text": f"{KEY[5:]}!", "finish_reason": "stop"}]}),
            ),
            "",
            "The key: ***!",
        ),
    ],
)
def test_a_key_that_an_engine_says_in_an_answer_is_not_stored(
    repository: Repository, engine: ToyEngine, measure: Measure, key: str, fault: Any, ends: str, text: str | None
) -> None:
    engine.faults += [Request.answer, fault]
    if text is None:
        with pytest.raises(EngineUnavailable, match=re.escape(ends)) as refusal:
            measure(key=key)
        stored = str(refusal.value)
    else:
        _, (_, second, _) = measure(key=key)
        assert (second.text, ends in (second.error or "")) == (text, True)
        stored = f"{second}"
    assert engine.authorizations == [f"Bearer {KEY}"] * len(engine.asked)
    assert all(part not in stored for part in (KEY, repr(KEY)[1:-1], SAID[8:-1]))


def test_a_key_that_is_not_there_or_none_is_told_without_it(engine: ToyEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Misconfigured, match="ENGINE_KEY"):
        check_engine(engine.served(), "ENGINE_KEY")
    monkeypatch.setenv("ENGINE_KEY", "se\ncret")
    with pytest.raises(FsdError, match="ENGINE_KEY holds no key") as refusal:
        check_engine(engine.served(), "ENGINE_KEY")
    assert "cret" not in str(refusal.value)
