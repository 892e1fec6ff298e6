"""What the application shows to whom nobody knows, and whose requests are let in."""

from __future__ import annotations

import http.client
import io
import re
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy import text
from starlette.types import ASGIApp, Receive, Scope, Send

from dashboard.ui.view import person_mark
from dashboard.web import build_app, pages_of
from fsd_core.middleware import LONGEST_LOG_MESSAGE, BoundedBody, SameOrigin, bound_log_lines
from fsd_core.roles import LOCAL
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.built import built
from tests.tools.sizes import PATIENCE

PERSON = {"Accept": "text/html"}
Served = Callable[..., TestClient]


@pytest.fixture
def served(repository: Repository, tmp_path: Path) -> Served:
    """Builds the application with some settings."""

    def client(**settings: str) -> TestClient:
        home = Settings.model_validate({"home": tmp_path, **settings})
        app = built(lambda: build_app(repository, home))
        return TestClient(app, "http://127.0.0.1", follow_redirects=False)

    return client


def tags(html: str) -> dict[str, list[str]]:
    """The contents of the meta tags that links to a page show, by their names."""
    found: dict[str, list[str]] = {}
    for name, content in re.findall(r'<meta\s+(?:property|name)="([^"]+)"\s+content="([^"]*)"', html):
        found.setdefault(name, []).append(content)
    return found


def shows_us(client: TestClient, html: str, host: str) -> None:
    shown = tags(html)
    assert shown["og:title"] == ["FSD Lab"]
    assert shown["og:description"] == shown["description"]
    assert shown["description"] == ["How far a language model may be sped up, and what each step costs in accuracy."]
    (picture,) = shown["og:image"]
    assert picture == f"{host}/preview.png"
    assert "gradio" not in str(shown).lower()
    answer = client.get("/preview.png")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "image/png")
    size = tuple(int(shown[f"og:image:{side}"][0]) for side in ("width", "height"))
    assert Image.open(io.BytesIO(answer.content)).size == size


def has_icon(client: TestClient, html: str, link: str) -> None:
    assert f'<link rel="icon" href="{link}" type="image/svg+xml">' in html
    icon = client.get("/favicon.ico")
    assert (icon.status_code, icon.headers["content-type"]) == (200, "image/svg+xml")
    assert b"#0f6b65" in icon.content


def test_links_to_pages_show_our_name_and_picture(served: Served) -> None:
    client = served()
    for page in pages_of(Settings()):
        html = client.get(f"/{page.path}", headers=PERSON).text
        shows_us(client, html, "http://127.0.0.1")
        has_icon(client, html, "favicon.ico")
        assert re.findall("<title>(.*?)</title>", html.partition("</head>")[0]) == [f"{page.title} – FSD Lab"]
        assert re.search(
            f'<meta name="fsd-person" content="{person_mark(LOCAL)}" data-installation="[0-9a-f]{{16}}">', html
        )
        assert f'"title":"{page.title} – FSD Lab"' in html  # which Gradio's script sets once more
    forwarded = client.get("/runs", headers={"X-Forwarded-Proto": "https", "Host": "localhost"}).text
    shows_us(client, forwarded, "https://localhost")


@pytest.mark.wide
def test_the_name_that_a_stranger_gives_a_proxy_stands_in_no_page(served: Served) -> None:
    named, headers = served(proxy_addresses="10.0.0.7"), PERSON | {"X-Forwarded-Host": "evil.example"}
    assert "evil.example" not in named.get("/runs", headers=headers).text
    assert "evil.example" not in named.get("/config", headers=headers).text


@pytest.mark.wide
def test_so_do_links_where_people_sign_in_and_nothing_else_is_told(served: Served) -> None:
    client = served(access="password", root_path="/lab")
    assert client.get("/compare", headers=PERSON).headers["location"] == "/lab/login?next=/compare"
    html = client.get("/login", headers=PERSON).text
    shows_us(client, html, "http://127.0.0.1/lab")
    has_icon(client, html, "/lab/favicon.ico")
    for path in ("/theme.css", "/manifest.json", "/pwa_icon", "/config", "/preview.png/"):
        assert client.get(path).status_code in (401, 404), path
    has_icon(client, client.get("/nowhere", headers=PERSON).text, "/lab/favicon.ico")


@pytest.mark.wide
@pytest.mark.parametrize("root", ["", "/lab"])
def test_the_first_page_has_its_name_and_old_links_to_the_playground_lead_there(served: Served, root: str) -> None:
    client = served(root_path=root)
    moved = {"/start?theme=dark": "/?theme=dark", "/start/": "/", "/?prompt=a%20b": "/playground?prompt=a%20b"}
    for path, place in (moved | {"/?theme=dark&job=1": "/playground?theme=dark&job=1"}).items():
        for headers in (PERSON, {}):  # a person and a program
            answer = client.get(path, headers=headers)
            assert (answer.status_code, answer.headers["location"]) == (308, root + place)
    assert client.head("/start").status_code == 308
    assert client.post("/start").status_code == 404
    assert client.get("/starts", headers=PERSON).status_code == 404
    assert client.get("/?theme=dark", headers=PERSON).status_code == 200


@pytest.mark.wide
def test_who_is_not_signed_in_learns_nothing_of_the_database(
    served: Served, repository: Repository, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    client = served(access="password")
    with repository._database.session() as session:
        session.execute(text("DROP TABLE users"))
    for answer in (
        client.post("/login", data={"name": "Ann", "password": "a guess"}, headers={"Origin": "http://127.0.0.1"}),
        client.get("/runs", headers={"Cookie": f"{Settings(home=tmp_path).session_cookie}=x"}),
    ):
        assert "Nobody can sign in now" in answer.text
        assert "database" not in answer.text
    assert "lacks" in caplog.text


LIMIT = 100_000
SECONDS = 0.5
"""that a body may take where it is slow; elsewhere nothing may end by its time"""


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Tells how many bytes it was sent."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


@contextmanager
def serving(app: ASGIApp) -> Iterator[int]:
    """The application's port."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = uvicorn.Server(uvicorn.Config(app, log_level="critical", lifespan="off"))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        while not server.started:
            time.sleep(0.01)
        yield listener.getsockname()[1]
        server.should_exit = True
        thread.join()


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    with serving(SameOrigin(BoundedBody(echo, LIMIT, PATIENCE), ["lab.example.org", "[fd00::1]"])) as port:
        yield port


@pytest.fixture
def connection(port: int) -> Iterator[http.client.HTTPConnection]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    yield connection
    connection.close()


def send_request(connection: http.client.HTTPConnection, method: str, headers: dict[str, str]) -> int:
    connection.request(method, "/", b"{}" if method == "POST" else None, headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:7860", "http://localhost:7860"),
        ("127.0.0.1:7860", "https://127.0.0.1:7860"),  # a proxy speaks TLS
        ("lab.example.net", "https://lab.example.net"),
        ("lab.example.net:443", "https://lab.example.net"),
        ("lab.example.net", "http://lab.example.net:80"),
        ("LAB.example.net", "https://lab.example.NET"),
        ("[::1]:7860", "http://[::1]:7860"),
        ("127.0.0.1:7860", "https://lab.example.org"),  # named, behind a proxy that rewrites Host
        ("127.0.0.1:7860", "http://[fd00::1]:8443"),
    ],
)
def test_the_pages_own_origin_may_do_everything(connection: http.client.HTTPConnection, host: str, origin: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert send_request(connection, method, {"Host": host, "Origin": origin}) == 200


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:7860", "https://evil.example"),
        ("localhost:7860", "http://localhost:3000"),  # another program on this machine
        ("localhost:7860", "http://localhost"),
        ("localhost:7860", "http://127.0.0.1:7860"),
        ("localhost:7860", "null"),
        ("localhost:7860", ""),
        ("localhost:7860", "file://"),
        ("localhost:7860", "chrome-extension://abcdef"),
        ("localhost:7860", "http://localhost:7860.evil.example"),
        ("localhost:7860", "http://localhost:99999"),
        ("localhost:7860", "http://[::1"),
        ("lab.example.net:80", "https://lab.example.net"),
        ("localhost:7860", "https://sub.lab.example.org"),
    ],
)
def test_every_other_origin_is_refused(connection: http.client.HTTPConnection, host: str, origin: str) -> None:
    for method in ("GET", "POST", "PUT", "OPTIONS"):
        assert send_request(connection, method, {"Host": host, "Origin": origin}) == 403


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("POST", {}, 200),  # a program
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("POST", {"Sec-Fetch-Site": "none"}, 200),
        ("POST", {"Sec-Fetch-Site": "same-site"}, 403),
        ("POST", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 403),  # a form
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, 200),  # a link
        ("GET", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),  # an image
        ("HEAD", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
    ],
)
def test_without_an_origin_the_browser_says_where_a_request_comes_from(
    connection: http.client.HTTPConnection, method: str, headers: dict[str, str], status: int
) -> None:
    assert send_request(connection, method, headers) == status


def test_a_body_arrives_whole_up_to_the_limit(connection: http.client.HTTPConnection) -> None:
    for size in (0, 1, LIMIT):
        connection.request("POST", "/", b"x" * size)
        assert connection.getresponse().read() == str(size).encode()
    connection.request("POST", "/", iter([b"x" * 1000] * 50), encode_chunked=True)
    assert connection.getresponse().read() == b"50000"


@pytest.mark.parametrize("chunked", [False, True])
def test_a_larger_body_is_refused_in_a_sentence(connection: http.client.HTTPConnection, chunked: bool) -> None:
    body = iter([b"x" * 50_000] * 200)
    connection.request("POST", "/", body if chunked else b"".join(body), encode_chunked=chunked)
    answer = connection.getresponse()
    assert (answer.status, answer.getheader("connection")) == (413, "close")
    assert answer.read() == b"The body of the request is too large: expected at most 100,000 bytes."


def test_a_body_that_is_announced_too_large_is_not_waited_for(connection: http.client.HTTPConnection) -> None:
    """No byte of it is ever sent, and its time is not over."""
    connection.putrequest("POST", "/")
    connection.putheader("Content-Length", str(10 * LIMIT))
    connection.endheaders()
    assert connection.getresponse().status == 413


def test_a_slow_body_is_not_waited_for() -> None:
    """However steadily it drips: the time is that of the whole of it."""
    with serving(BoundedBody(echo, LIMIT, SECONDS)) as port:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
        connection.putrequest("POST", "/")
        connection.putheader("Content-Length", str(LIMIT))
        connection.endheaders()
        sent, drips = 0, int(PATIENCE / SECONDS * 5)
        while not select.select([connection.sock], [], [], SECONDS / 5)[0]:
            sent += 1
            assert sent < drips
            connection.sock.sendall(b"x")
        answer = connection.getresponse()
        assert answer.status == 408
        assert b"within 0.5 seconds" in answer.read()
        connection.close()


def test_what_is_written_to_the_log_at_once_is_bounded(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stderr", sys.stderr)  # put back afterwards
    bound_log_lines()
    print("short", file=sys.stderr)
    sys.stderr.write("begin" + "x" * 1_000_000 + "end")
    said = capsys.readouterr().err
    assert said.startswith("short\nbegin")
    assert said.endswith("end")
    assert "984,008 characters left out" in said
    assert len(said) < LONGEST_LOG_MESSAGE + 100
