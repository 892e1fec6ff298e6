"""What a request may call, in whose session, from which origin and through which proxy."""

from __future__ import annotations

import asyncio
import json
import runpy
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.datastructures import Headers
from starlette.testclient import TestClient
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dashboard.server.requests import ForwardedHeaders, given
from dashboard.ui.view import person_mark
from dashboard.web import ANOTHERS, NO_SESSION, NO_SUCH_FUNCTION, OF_PERSON, PAGE_CALLS, PageCalls
from fsd_core.accounts import KEY
from fsd_core.errors import InvalidSetting
from fsd_core.middleware import BoundedBody, RequireSignIn, SameOrigin
from fsd_core.roles import LOCAL, NOBODY, Person
from fsd_core.worker.mlflow_server import NOT_A_QUERY, QueriesAlone, asks_only
from fsd_core.worker.supervisor import GRAPHQL

ANN, BOB = Person("Ann", "author"), Person("Bob", "author")
FUNCTIONS: Any = {
    1: SimpleNamespace(fn=print, inputs=[]), 2: SimpleNamespace(fn=None, inputs=[]),
    4: SimpleNamespace(fn=print, inputs=["a", "b"]),
}  # fmt: skip


async def inner(scope: Scope, receive: Receive, send: Send) -> None:
    """Answers with the request's body, or with the client and the name that it came under."""
    body = (await receive())["body"] if scope["method"] == "POST" else b""
    host = next((value for name, value in scope["headers"] if name == b"x-forwarded-host"), b"")
    said = body or f"{scope['client'][0]} {host.decode()}".encode()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": said})


class Calling:
    """A client of the page's functions, as one person and then another."""

    def __init__(self) -> None:
        self.person: Person | None = ANN
        calls = PageCalls(inner, lambda: FUNCTIONS)

        async def signed_in(scope: Scope, receive: Receive, send: Send) -> None:
            await calls({**scope, KEY: self.person}, receive, send)

        self.client = TestClient(BoundedBody(signed_in))

    def call(self, content: Any, path: str = PAGE_CALLS[1]) -> tuple[int, str]:
        answer = self.client.post(path, content=content if isinstance(content, bytes) else json.dumps(content))
        return answer.status_code, answer.text


@pytest.mark.parametrize("data", [None, [], ["one"], "ab", {"a": 1, "b": 2}])
def test_a_call_with_too_few_values_is_refused(data: Any) -> None:
    calling = Calling()
    for path in PAGE_CALLS:
        status, said = calling.call({"fn_index": 4, "data": data}, path)
        assert (status, said.startswith("The function was given")) == (422, True)
        assert calling.call({"fn_index": 4, "data": ["one", 2, 3]}, path)[0] == 200


@pytest.mark.wide
@pytest.mark.parametrize("number", [2, 3, -1, 10**30, True, None, "1", 1.5, [1], {"a": 1}])
def test_functions_of_the_browser_alone_and_unknown_ones_are_refused(number: Any) -> None:
    calling = Calling()
    expected = (
        (200, json.dumps({"fn_index": True})) if number is True else (404, NO_SUCH_FUNCTION)
    )  # JSON's true is 1 to Python
    for path in PAGE_CALLS:
        assert calling.call({"fn_index": number}, path) == expected


def test_calls_of_known_functions_arrive_as_they_were_sent() -> None:
    calling = Calling()
    for content in (b'{"fn_index": 1, "data": ["\xc3\xbc"]}', b"{}", b"[1]", b"not JSON", b"{" * 5000):
        status, text = calling.call(content)
        assert (status, text.encode()) == (200, content)


def test_a_session_is_of_the_person_who_began_it() -> None:
    calling = Calling()
    assert calling.call({"fn_index": 1, "session_hash": "a1"})[0] == 200
    calling.person = BOB
    assert calling.call({"fn_index": 1, "session_hash": "a1"}) == (403, ANOTHERS)
    for path in ("/gradio_api/queue/data?session_hash=a1", "/gradio_api/heartbeat/a1"):
        assert calling.client.get(path).status_code == 403
    for path in ("/gradio_api/queue/data?session_hash=b2", "/gradio_api/heartbeat/b2", "/gradio_api/queue/data"):
        assert calling.client.get(path).status_code == 200
    calling.person = Person("Ann", "author", owner="Ann")  # a program of the same name is somebody else
    assert calling.client.get("/gradio_api/heartbeat/a1").status_code == 403
    calling.person = Person("Ann", "admin")  # whose role has changed is the same
    assert calling.client.get("/gradio_api/heartbeat/a1").status_code == 200


@pytest.mark.parametrize("session", ["x" * 65, "x" * 1_900_000, "", 7, ["a"], {"a": 1}, "a b", "\u00e9"])
def test_a_session_s_name_is_short(session: Any) -> None:
    calling = Calling()
    assert calling.call({"fn_index": 1, "session_hash": session}) == (422, NO_SESSION)


def test_a_page_asks_in_the_name_of_nobody_but_its_own_person() -> None:
    """Also in a session that no process has seen: a server that was started anew knows none."""
    calling = Calling()

    def ask(session: str, mark: str) -> tuple[int, str | None]:
        content = json.dumps({"fn_index": 1, "session_hash": session})
        answer = calling.client.post(PAGE_CALLS[1], content=content, headers={OF_PERSON: mark})
        return answer.status_code, answer.headers.get(OF_PERSON)

    assert ask("a1", person_mark(ANN)) == (200, None)
    assert ask("b2", person_mark(BOB)) == (403, "other")
    assert ask("c3", "") == (200, None)  # a program, or a page that names nobody
    calling.person = BOB
    assert ask("b2", person_mark(BOB)) == (200, None)
    assert ask("d4", person_mark(ANN)) == (403, "other")
    assert len({person_mark(one) for one in (ANN, BOB, LOCAL, NOBODY, ANN._replace(owner="Ann"))}) == 5
    assert person_mark(ANN) == person_mark(ANN._replace(role="admin"))


@pytest.mark.parametrize(
    ("app", "path", "body", "status"),
    [
        (BoundedBody(PageCalls(inner, lambda: FUNCTIONS)), PAGE_CALLS[0], b'{"fn_index": 4}', 422),
        (BoundedBody(QueriesAlone(inner)), GRAPHQL, b"{}", 403),
        (BoundedBody(inner, limit=5), "/", b"123456", 413),
    ],
    ids=["call", "graphql", "size"],
)
def test_a_refusal_does_not_wait_for_a_client_that_has_sent_everything(
    app: ASGIApp, path: str, body: bytes, status: int
) -> None:
    """Who has read the whole body and asks for more would wait until the client hangs up."""
    parts: Iterator[Message] = iter([{"type": "http.request", "body": body, "more_body": False}])
    answered: list[Message] = []

    async def receive() -> Message:
        return next(parts)

    async def send(message: Message) -> None:
        answered.append(message)

    asked: Scope = {"type": "http", "method": "POST", "path": path, "headers": [], KEY: ANN}
    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of its own, as that of a browser
        pool.submit(lambda: asyncio.run(app(asked, receive, send))).result()
    assert answered[0]["status"] == status


@pytest.mark.parametrize("clients", [True, False])
@pytest.mark.parametrize("peer", ["10.0.0.7", "10.0.0.9"])
def test_the_name_of_a_proxy_is_believed_of_named_ones_alone(peer: str, clients: bool) -> None:
    client = TestClient(ForwardedHeaders(inner, ["10.0.0.7"], clients=clients), client=(peer, 5000))
    headers = {"X-Forwarded-Host": "evil.example", "X-Forwarded-For": "192.0.2.1"}
    believed = peer == "10.0.0.7"
    expected = f"{'192.0.2.1' if believed and clients else peer} {'evil.example' if believed else ''}"
    assert client.get("/", headers=headers).text == expected


@pytest.mark.parametrize(
    ("document", "asks"),
    [
        ("query { mlflowGetRun { run } }", True),
        ("{ test(inputString: \"mutation\") { output } }", True),
        ("query A { a } query B { b } fragment C on Run { c }", True),
        ('mutation { testMutation(inputString: "x") { output } }', False),
        ("query A { a } mutation B { b }", False),
        ("subscription { a }", False),
        ("fragment C on Run { c }", False),
        ("{" * 50_000, False),
        ("{a" + " a" * 6000 + "}", False),
        ("{ a }" + " " * 100_001, False),
        ("", False),
        (None, False),
        (["{ a }"], False),
    ],
)  # fmt: skip
def test_graphql_asks_and_changes_nothing(document: Any, asks: bool) -> None:
    client = TestClient(BoundedBody(QueriesAlone(inner)))
    body = json.dumps({"query": document})
    answer = client.post(GRAPHQL, content=body)
    assert (answer.status_code, answer.text) == ((200, body) if asks else (403, NOT_A_QUERY))
    assert client.post("/other", content=body).text == body


@pytest.mark.parametrize("body", [b"", b"[]", b"[" * 100_000, b'[{"query": "{ a }"}]', b"\xff", b'{"query": 1}'])
def test_what_is_no_document_is_no_query(body: bytes) -> None:
    assert not asks_only(body)


def test_a_void_token_is_told_as_http_says() -> None:
    client = TestClient(RequireSignIn(inner, lambda scope: None, KEY, "/login"), follow_redirects=False)
    page = {"Accept": "text/html"}
    assert client.get("/runs", headers=page).status_code == 303
    unknown = client.get("/runs", headers=page | {"Authorization": "Bearer fsd_gone"})
    assert (unknown.status_code, "was revoked" in unknown.text) == (401, True)
    assert 'error="invalid_token"' in unknown.headers["www-authenticate"]
    without = client.get("/api/v1/uses")
    assert (without.status_code, without.headers["www-authenticate"]) == (401, 'Bearer realm="FSD Lab"')


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ({"origin": "http://lab.example", "host": "lab.example"}, True),
        ({"origin": "http://lab.example:81", "host": "lab.example"}, False),
        ({"origin": "null", "host": "lab.example"}, False),
        ({"origin": "null", "host": "lab.example", "sec-fetch-site": "cross-site"}, False),
        ({"origin": "null", "host": "lab.example", "sec-fetch-site": "none"}, False),
        # Behind a proxy with `Referrer-Policy: no-referrer`, a browser names no origin for our own forms.
        ({"origin": "null", "host": "lab.example", "sec-fetch-site": "same-origin"}, True),
    ],
)
def test_a_form_is_our_own(headers: dict[str, str], allowed: bool) -> None:
    async def app(*_: object) -> None: ...

    assert SameOrigin(app)._allowed("POST", Headers(headers)) is allowed


APP = Path(__file__).parents[2] / "app.py"


def test_each_argument_is_a_variable() -> None:
    assert given([]) == {}
    assert given(["--host", "::1", "--port=8000", "--home", "~/lab"]) == {
        "FSD_HOST": "::1", "FSD_PORT": "8000", "FSD_HOME": "~/lab",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--prot", "80"], r"^Unrecognized arguments: --prot 80\. `python app\.py --help` lists the arguments\.$"),
        (["--hos", "::1"], r"^Unrecognized arguments: --hos ::1\."),  # nothing is guessed
        (["serve"], r"^Unrecognized arguments: serve\."),
        (["--port"], r"^Argument --port: expected one argument\."),
        (["--port", "many"], r"^--port is 'many': expected a port from 1 to 65535\.$"),
        (["--port", "0"], "^--port is '0': expected a port"),
        (["--port", "65536"], "^--port is '65536': expected a port"),
        (["--port", "9" * 9999], "^--port is '9{40}': expected a port"),
        (["--port", "٣"], "^--port is '٣': expected a port"),
        (["--home", ""], r"^--home is empty: expected a value\."),  # and not the default home
        (["--host", " "], r"^--host is empty"),
    ],
)
def test_what_is_no_argument_is_a_sentence(arguments: list[str], sentence: str) -> None:
    with pytest.raises(InvalidSetting, match=sentence):
        given(arguments)


@pytest.mark.parametrize(
    ("arguments", "status", "printed"),
    [
        (["--help"], 0, "usage: python app.py [-h] [--host HOST] [--port PORT] [--home FOLDER]"),
        (["--port", "many"], 2, "error: --port is 'many': expected a port from 1 to 65535.\n"),
        (["--unknown"], 2, "error: Unrecognized arguments: --unknown. `python app.py --help` lists the arguments.\n"),
    ],
)
def test_help_and_refusals_start_nothing(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    arguments: list[str], status: int, printed: str,
) -> None:  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["app.py", *arguments])
    for name in ("signal", "getsignal"):
        monkeypatch.setattr(f"signal.{name}", lambda *_: None)
    monkeypatch.setattr(sys, "stderr", sys.stderr)
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(APP), None, "__main__")
    out, err = capsys.readouterr()
    assert (stop.value.code, printed in out + err) == (status, True)
    assert (out + err).count("\n") == 1 or status == 0
    assert not home.exists()
