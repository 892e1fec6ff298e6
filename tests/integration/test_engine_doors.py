"""Running engines on pages and for programs: who may name one, which addresses are asked, and which keys are sent."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gradio as gr
import httpx
import pytest
from starlette.requests import Request as WebRequest

from dashboard.experiments.experiment_form import RULE_FIELDS, ExperimentForm
from dashboard.experiments.own_models_panel import EnginesPanel, engines_html
from dashboard.ui.view import Asked, Question, Values
from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.config.options import method
from fsd_core.engines import client, connection
from fsd_core.engines.client import check_engine
from fsd_core.engines.connection import EngineHosts
from fsd_core.errors import EngineUnavailable, InvalidSetting, Refused, UnknownName
from fsd_core.evaluation.runner import execute_runs
from fsd_core.roles import Person
from fsd_core.rules import Served
from fsd_core.settings import Settings, get_settings
from fsd_core.storage.repository import Repository
from tests.tools.built import built
from tests.tools.certificates import self_signed
from tests.tools.toy_engine import MODEL, ToyEngine

SD = method({"acceptance": "speculative", "max_new_tokens": 8})
Calls = dict[str, Callable[..., Any]]


@pytest.fixture(scope="module")
def engine() -> Iterator[ToyEngine]:
    """An engine that is asked what it is, and no prompt."""
    with ToyEngine(None, SD) as engine:  # pyright: ignore[reportArgumentType]
        yield engine


def request(role: str = "admin") -> WebRequest:
    return WebRequest({"type": "http", "state": {}, KEY: Person("Ann", role)})


def calls_by_name(repository: Repository, settings: Settings) -> Calls:
    return {one.__name__: one for one in calls_of(repository, settings)}


def given(engine: ToyEngine, **changed: Any) -> dict[str, Any]:
    return {"name": "toy", "url": engine.url, "model": MODEL, "kind": "vllm"} | changed


def test_programs_name_ask_measure_and_forget_engines(
    repository: Repository, home: Path, toy: str, engine: ToyEngine
) -> None:
    calls = calls_by_name(repository, Settings(home=home))
    told = calls["add_endpoint"](**given(engine, hardware="one H100"), request=request())
    assert told == "toy is vLLM 9.8.7 with toy-model."
    assert calls["check_endpoint"]("toy", request("author")) == told
    (listed,) = calls["list_endpoints"]()
    assert (listed["url"], listed["hardware"], listed["added_by"]) == (engine.url, "one H100", "Ann")
    started = calls["start_experiment"](
        [{"acceptance": "speculative", "max_new_tokens": 9}], request("author"), pair=toy, limit=2,
        endpoints=["toy"], batches=[1, 2],
    )  # fmt: skip
    runs = repository.experiment(started["experiment"]).runs
    assert [(run.decoding.acceptance.kind, run.config.batch) for run in runs] == [
        ("speculative", 1), ("served", 1), ("speculative", 2), ("served", 2),
    ]  # fmt: skip
    assert {run.decoding.max_new_tokens for run in runs} == {9}
    alone = calls["start_experiment"](
        [], request("author"), pair=toy, limit=2, endpoints=["toy"], endpoint_options={"temperature": 0.5}
    )
    (run,) = repository.experiment(alone["experiment"]).runs
    assert run.decoding.sampling.temperature == 0.5
    for wrong, sentence in (
        ({"endpoints": ["nobody"]}, "There is no endpoint 'nobody'"),
        ({"endpoints": ["toy"], "endpoint_options": {"threshold": 0.1}}, "threshold does not apply to an endpoint"),
        ({}, "No setting is given"),
    ):
        with pytest.raises((UnknownName, InvalidSetting), match=sentence):
            calls["start_experiment"]([], request("author"), pair=toy, **wrong)
    assert "Its runs stay" in calls["remove_endpoint"]("toy", request())
    assert (calls["list_endpoints"](), len(repository.experiments())) == ([], 2)


def test_admins_alone_name_them_and_keys_of_other_things_are_not_sent(
    repository: Repository, home: Path, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "very-secret")
    calls = calls_by_name(repository, Settings(home=home))
    for role in ("viewer", "author", "reviewer"):
        with pytest.raises(Refused, match="admin"):
            calls["add_endpoint"](**given(engine), request=request(role))
        with pytest.raises(Refused, match="admin"):
            calls["remove_endpoint"]("toy", request(role))
    with pytest.raises(Refused, match="author"):
        calls["check_endpoint"]("toy", request("viewer"))
    engine.authorizations.clear()
    with pytest.raises(InvalidSetting, match="expected one that begins with ENGINE_KEY"):
        calls["add_endpoint"](**given(engine, key_variable="AWS_SECRET_ACCESS_KEY"), request=request())
    with pytest.raises(InvalidSetting, match="The environment variable ENGINE_KEY_A is not set"):
        calls["add_endpoint"](**given(engine, key_variable="ENGINE_KEY_A"), request=request())
    with pytest.raises(EngineUnavailable, match="other"):
        calls["add_endpoint"](**given(engine, model="other"), request=request())
    assert (repository.engines(), engine.authorizations) == ([], [])


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://169.254.169.254/latest", "is not asked over https"),
        ("http://example.org", "is not asked over https"),
        ("https://127.0.0.1:1", "is at a private or loopback address"),
        ("https://[::1]:1", "is at a private or loopback address"),
        ("https://[::ffff:10.0.0.7]", "is at a private or loopback address"),
        ("https://localhost:1", "is at a private or loopback address"),
        ("https://169.254.169.254", "is at a private or loopback address"),
        ("https://[64:ff9b::7f00:1]", "is at a private or loopback address"),
        ("https://[2002:7f00:1::]", "is at a private or loopback address"),
        ("https://[::127.0.0.1]", "is at a private or loopback address"),
        ("https://192.88.99.1", "is at a private or loopback address"),
        ("https://192.0.0.9", "is at a private or loopback address"),
        ("https://2130706433", "is spelled in a way that programs read differently"),
        ("https://0177.0.0.1", "is spelled in a way that programs read differently"),
        ("https://ｌocalhost", "is spelled in a way that programs read differently"),
        ("https://１２７.0.0.1", "is spelled in a way that programs read differently"),
        ("https://" + "a" * 64 + ".org", "is spelled in a way that programs read differently"),
        ("https://[fe80::1%25eth0]", "is spelled in a way that programs read differently"),
        ("https://xn--a.test", "is spelled in a way that programs read differently"),
    ],
)
def test_where_people_sign_in_only_public_addresses_are_asked(
    repository: Repository, home: Path, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch, url: str, sentence: str
) -> None:
    async def connects(*_: Any) -> httpx.Response:
        pytest.fail("it was asked")

    def numeric(host: str, port: int, *_: Any, **more: Any) -> list[Any]:
        return look_up(host, port, **more, flags=0 if host == "localhost" else socket.AI_NUMERICHOST)

    look_up = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", numeric)
    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", connects)
    calls = calls_by_name(repository, Settings(home=home, access="password"))
    with pytest.raises((Refused, EngineUnavailable, InvalidSetting), match=sentence):
        calls["add_endpoint"](**given(engine, url=url), request=request())
    assert repository.engines() == []


def test_a_name_that_leads_elsewhere_later_is_refused_then_and_a_named_host_is_asked(
    repository: Repository, home: Path, toy: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = re.sub("https?://", "", engine.url)
    for value, is_named in ((host, True), ("127.0.0.1", True), ("127.0.0.1:1", False), ("127.0.0.2", False)):
        assert EngineHosts.of(Settings(endpoint_hosts=f"a.b, {value}")).names(engine.url) is is_named
    calls = calls_by_name(repository, Settings(home=home, access="password", endpoint_hosts=host))
    assert "vLLM 9.8.7" in calls["add_endpoint"](**given(engine), request=request())
    assert repository.engine("toy").guarded
    calls = calls_by_name(repository, Settings(home=home))  # a pair in any folder
    monkeypatch.setenv("FSD_HOME", str(home))  # the worker's own settings, which name no host
    get_settings.cache_clear()
    started = calls["start_experiment"]([], request("author"), pair=toy, limit=1, endpoints=["toy"])
    (run,) = repository.experiment(started["experiment"]).runs
    execute_runs(repository, [run.id], lambda *_: pytest.fail("no pair is loaded"))
    run = repository.run(run.id)
    assert (run.status, "FSD_ENDPOINT_HOSTS" in (run.error or "")) == ("failed", True)
    get_settings.cache_clear()
    with pytest.raises(ValueError, match="FSD_ENDPOINT_HOSTS is"):
        Settings(endpoint_hosts="http://a")


def test_the_connection_goes_to_the_address_that_was_checked_with_a_certificate_for_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that the test alone resolves; loopback counts as public, so that a server can be reached."""
    found: list[str] = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        found.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    files = self_signed(tmp_path, "engine.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    monkeypatch.setattr(client, "RETRY_SECONDS", ())
    with ToyEngine(None, SD, files) as engine:  # pyright: ignore[reportArgumentType]
        port = engine.url.rpartition(":")[2]
        served = Served(engine="vllm", endpoint="a", url=f"https://engine.test:{port}", model=MODEL)
        other = served.model_copy(update={"url": f"https://other.test:{port}"})
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        with pytest.raises(EngineUnavailable, match="loopback address"):
            check_engine(served, hosts=EngineHosts(frozenset()))
        monkeypatch.setattr(connection, "is_public", lambda address: address == "127.0.0.1")
        assert check_engine(served, hosts=EngineHosts(frozenset())) == {"engine": "vLLM 9.8.7"}
        assert set(found) <= {"engine.test", "127.0.0.1"}
        with pytest.raises(EngineUnavailable, match=r"The certificate of https://other.test:\d+ is not trusted"):
            check_engine(other, hosts=EngineHosts(frozenset()))


def test_a_name_is_looked_up_once_for_a_request_and_what_it_leads_to_later_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens where the name leads the second time."""
    looked_up: list[str] = []

    def resolved(host: str, port: int, *_: Any, **__: Any) -> list[Any]:
        looked_up.append(host)
        address = "127.0.0.1" if looked_up.count("engine.test") == 1 else "127.0.0.2"
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    files = self_signed(tmp_path, "engine.test")
    monkeypatch.setenv("SSL_CERT_FILE", str(files[0]))
    monkeypatch.setattr(client, "RETRY_SECONDS", ())
    with ToyEngine(None, SD, files) as engine:  # pyright: ignore[reportArgumentType]
        url = f"https://engine.test:{engine.url.rpartition(':')[2]}"
        served = Served(engine="transformers-serve", endpoint="a", url=url, model=MODEL)
        monkeypatch.setattr(socket, "getaddrinfo", resolved)
        monkeypatch.setattr(connection, "is_public", lambda address: address == "127.0.0.1")
        assert check_engine(served, hosts=EngineHosts(frozenset())) == {"engine": "transformers serve"}
        assert looked_up.count("engine.test") == 1
        with pytest.raises(EngineUnavailable, match="loopback address"):
            check_engine(served, hosts=EngineHosts(frozenset()))


@pytest.mark.wide
def test_the_page_adds_chooses_asks_and_forgets_and_what_people_say_is_text(
    repository: Repository, home: Path, engine: ToyEngine
) -> None:
    settings = Settings(home=home)

    def build() -> tuple[ExperimentForm, EnginesPanel]:
        with gr.Blocks(analytics_enabled=False):
            form = ExperimentForm(repository, settings)
            return form, EnginesPanel(repository, settings, form, lambda: None)

    form, panel = built(build)
    chosen = form.fields["endpoints"]
    evil = "<img src=x onerror=alert(1)>"
    values = Values({panel.name: "toy", panel.kind: "vllm", panel.hardware: evil, panel.url: engine.url,
                     panel.model: MODEL, panel.key: None, panel.asks: True})  # fmt: skip
    asked = Asked(Question(), {field: field.value for field in form.fields.values()}, request())  # pyright: ignore[reportArgumentType]
    answer = panel.add_endpoint(values, asked)
    assert "toy is vLLM 9.8.7 with toy-model." in answer[panel.answer]
    assert asked.filled[chosen] == ["toy"]
    page = str(engines_html(repository.engines()))
    assert "&lt;img" in page
    assert evil not in page
    fields = {part: part.value for part in form.fields.values()} | {
        chosen: ["toy"], form.fields["batch"]: "1, 2", form.fields["name"]: "",
        **{form.fields[name]: [] for name in RULE_FIELDS},
    }  # fmt: skip
    sweep = form.sweep(fields)
    assert (sweep.batches, [one.acceptance.kind for one in sweep.decodings]) == ((1, 2), ["served"])
    repository.remove_engine("toy")
    gone = Asked(Question(), {**fields}, request())  # pyright: ignore[reportArgumentType]
    form.redraw_endpoints(gone, ())
    assert gone.filled[chosen] == []
