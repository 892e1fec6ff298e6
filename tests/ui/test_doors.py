"""Which addresses are open, to whom and from where: what an attacker, a browser and another origin may ask."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from uuid import uuid4

import pytest
from playwright.sync_api import Page, Route, expect

from dashboard.web import pages_of
from fsd_core.middleware import LONGEST_LOG_MESSAGE
from fsd_core.settings import Settings
from tests.tools.raw_http import send_request
from tests.tools.settled import go
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE, some
from tests.tools.visitor import Visitor
from tests.tools.worker_process import ROOT, until
from tools.first_sight import MOST_WORDS, first_sight

pytestmark = pytest.mark.ui


OPEN = {
    ("GET", "/"),
    ("HEAD", "/"),
    *(("HEAD", path) for path in ("/api/v1/uses", "/api/v1/uses/{use_id}/approved", "/api/v1/uses/{use_id}/check")),
    *(("GET", f"/{page.path}") for page in pages_of(Settings()) if page.path),
    ("GET", "/assets/{path:path}"),
    ("GET", "/static/{path:path}"),
    ("GET", "/theme.css"),
    ("GET", "/favicon.ico"),
    ("GET", "/preview.png"),
    ("GET", "/first.css"),
    ("GET", "/mlflow/static-files/fsd-start.js"),
    ("GET", "/manifest.json"),
    ("GET", "/pwa_icon"),
    ("GET", "/gradio_api/app_id"),
    ("GET", "/gradio_api/heartbeat/{session_hash}"),
    ("GET", "/gradio_api/queue/data"),
    ("POST", "/gradio_api/queue/join"),
    ("POST", "/gradio_api/run/{api_name}"),
    ("GET", "/export/comparison.{extension}"),
    ("GET", "/export/figure.{extension}"),
    ("GET", "/embed/figure"),
    ("GET", "/export/report.html"),
    ("GET", "/export/report.svg"),
    ("GET", "/config"),
    ("GET", "/gradio_api/info"),
    ("GET", "/export/review.{extension}"),
    ("GET", "/export/workspace.zip"),
    ("GET", "/export/task.jsonl"),
    ("GET", "/reference"),
    ("GET", "/api/v1"),
    ("POST", "/api/v1/calls/{name}"),
    ("GET", "/api/v1/uses"),
    ("GET", "/api/v1/uses/{use_id}/approved"),
    ("GET", "/api/v1/uses/{use_id}/check"),
    ("GET", "/mlflow"),
    ("GET", "/mlflow/{path:path}"),
    ("POST", "/mlflow/{path:path}"),
}
PARAMETERS = {
    "/assets/{path:path}": "/assets/index.js",
    "/static/{path:path}": "/static/fonts/IBMPlexSans/IBMPlexSans-Bold.woff2",
    "/gradio_api/run/{api_name}": "/gradio_api/run/predict",
    "/export/comparison.{extension}": "/export/comparison.csv",
    "/export/figure.{extension}": "/export/figure.svg",
    "/mlflow/{path:path}": "/mlflow/ajax-api/2.0/mlflow/experiments/search",
    "/export/review.{extension}": "/export/review.csv",
}
CLOSED = b"There is nothing at this address."
FOREIGN = ("https://evil.example", "http://localhost:3000", "http://127.0.0.1:3000", "null")


def test_every_route_is_one_that_the_pages_need_or_closed(site: Site) -> None:
    every = set(site.routes)
    assert len(every) > 80  # all that Gradio brings along
    assert every >= OPEN
    for method, route in sorted(every):
        path = re.sub(r"\{[^}]*\}", "abc", PARAMETERS.get(route, route))
        if route == "/gradio_api/heartbeat/{session_hash}":
            continue  # a stream, which the pages' own tests need to be open
        status, headers, _ = send_request(site.url, method, path)
        closed = (status, headers.get("content-length")) == (404, str(len(CLOSED)))
        assert closed == ((method, route) not in OPEN), (method, path)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/openapi.json"),
        ("GET", "/docs"),
        ("GET", "/gradio_api/openapi.json"),
        ("GET", "/gradio_api/mcp/"),
        ("GET", "/gradio_api/mcp/sse"),
        ("POST", "/gradio_api/mcp/messages/"),
        ("POST", "/gradio_api/call/start_experiment"),
        ("GET", "/gradio_api/file=/etc/hostname"),
        ("GET", "/static/../../../app.py"),
        ("GET", "/static/%2e%2e/%2e%2e/app.py"),
        ("GET", "/assets/..%2f..%2fapp.py"),
        ("GET", "//config"),
        ("GET", "/static/js/../../config"),
        ("GET", "/export/comparison.csv/../../config"),
        ("GET", "/mlflow/graphql"),
        ("GET", "/mlflow/ajax-api/2.0/mlflow/users/current"),
        ("GET", "/mlflow/../config"),
        ("GET", "/mlflow/..%2fconfig"),
        ("GET", "/mlflow/%2e%2e/config"),
        ("GET", "/mlflow/static-files/..%2f..%2f..%2fapp.py"),
        ("GET", "/mlflow/static-files/../health"),
        ("GET", "/mlflow//"),
        ("GET", "//mlflow/"),
        ("GET", "/mlflow%00/"),
        ("POST", "/mlflow"),
        ("POST", "/gradio_api/run/anything"),
        ("POST", "/"),
        ("PUT", "/gradio_api/queue/join"),
        ("PUT", "/gradio_api/run/predict"),
        ("OPTIONS", "/gradio_api/run/predict"),
        ("TRACE", "/"),
    ],
)
def test_what_is_not_needed_is_not_there(site: Site, method: str, path: str) -> None:
    status, headers, text = send_request(site.url, method, path)
    assert (status, text) == (404, CLOSED if method != "HEAD" else b"")
    assert "default-src 'self'" in headers["content-security-policy"]


def test_an_upload_is_refused_and_not_kept(site: Site) -> None:
    form = (
        b'--line\r\nContent-Disposition: form-data; name="files"; filename="a.bin"\r\n'
        b"Content-Type: application/octet-stream\r\n\r\n" + b"x" * 900_000 + b"\r\n--line--\r\n"
    )
    for headers in ({}, {"Origin": site.url}, {"Origin": FOREIGN[0]}, {"Origin": FOREIGN[1]}):
        kind = {"Content-Type": "multipart/form-data; boundary=line"}
        assert send_request(site.url, "POST", "/gradio_api/upload", form, **headers, **kind)[0] == 404
    assert list(site.temporary.rglob("*.bin")) == []


def starting(visitor: Visitor) -> dict[str, Any]:
    """What the button "Start experiment" sends, with the form as it is when the page opens."""
    button = next(c["id"] for c in visitor.config["components"] if c["props"].get("value") == "Start experiment")
    pressed = next(one for one in visitor.config["dependencies"] if [button, "click"] in one["targets"])
    event = next(one for one in visitor.events if "fsd.ask(" in str(one["js"]))
    form = [visitor.values[component] for component in pressed["inputs"]]
    data = [visitor.values[component] for component in event["inputs"]]
    place = re.search(r"ask\((\d+)", event["js"])
    assert place is not None
    data[int(place[1])] = json.dumps({"acts": [{"key": uuid4().hex, "name": "start", "data": form}]})
    return {"data": data, "fn_index": event["id"], "session_hash": visitor.session, "event_data": None}


def test_only_our_own_pages_and_programs_start_work(site: Site) -> None:
    with Visitor(site.url, "experiments") as visitor:
        bodies = [json.dumps(starting(visitor)) for _ in range(2)]
        body, began = bodies[0], len(site.repository.experiments())
        join, kind = "/gradio_api/run/predict", {"Content_Type": "application/json"}
        for origin in FOREIGN:
            assert send_request(site.url, "POST", join, body, Origin=origin, **kind)[0] == 403
            assert send_request(site.url, "POST", join, body, Origin=origin, Content_Type="text/plain")[0] == 403
        for where in ("cross-site", "same-site"):
            assert send_request(site.url, "POST", join, body, Sec_Fetch_Site=where, **kind)[0] == 403
        visitor.open()
        assert len(site.repository.experiments()) == began
        for headers, body in zip(({"Origin": site.url}, {}), bodies, strict=True):
            assert send_request(site.url, "POST", join, body, **headers, **kind)[0] == 200
        until(lambda: len(site.repository.experiments()) == began + 2, "two experiments", PATIENCE)


@pytest.mark.parametrize("origin", [*FOREIGN, "own"])
@pytest.mark.parametrize(
    "path", ["/", "/config", "/gradio_api/app_id", "/gradio_api/queue/join", "/gradio_api/run/predict"]
)
def test_no_origin_is_told_that_it_may_read_answers(site: Site, origin: str, path: str) -> None:
    origin = site.url if origin == "own" else origin
    for method in ("GET", "POST"):
        _, headers, _ = send_request(site.url, method, path, Origin=origin)
        assert [name for name in headers if name.startswith("access-control-")] == []
    preflight = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type"}
    status, headers, _ = send_request(site.url, "OPTIONS", path, Origin=origin, **preflight)
    assert status in (403, 404)
    assert [name for name in headers if name.startswith("access-control-")] == []


@pytest.mark.parametrize("chunked", [False, True])
def test_fifty_megabytes_are_refused_and_not_logged(site: Site, chunked: bool) -> None:
    logged = site.log.stat().st_size
    pieces = [b'{"data": ["', *[b"x" * 1_000_000] * 50, b'"], "fn_index": 0, "session_hash": "abc"}']
    body = iter(pieces) if chunked else b"".join(pieces)
    status, _, text = send_request(site.url, "POST", "/gradio_api/run/predict", body, Content_Type="application/json")
    assert status == 413
    assert b"at most 2,000,000 bytes" in text
    assert site.log.stat().st_size == logged


def test_wrong_inputs_are_not_logged_whole(site: Site) -> None:
    with Visitor(site.url, "experiments") as visitor:
        logged = site.log.stat().st_size
        event = next(event for event in visitor.events if event["backend_fn"] and len(event["inputs"]) > 1)
        long, kind = "x\n" * 450_000, {"Content_Type": "application/json"}

        def status(data: list[Any]) -> int:
            call = {"data": data, "fn_index": event["id"], "session_hash": visitor.session}
            return send_request(site.url, "POST", "/gradio_api/run/predict", json.dumps(call), **kind)[0]

        assert status([long]) == 422  # too few
        assert site.log.stat().st_size == logged
        for _ in range(3):
            assert status([{"a": long}, *[{"a": "x"}] * (len(event["inputs"]) - 1)]) == 500
        assert logged < site.log.stat().st_size < logged + 3 * 2 * LONGEST_LOG_MESSAGE


def test_functions_that_no_server_runs_are_refused_without_a_word_in_the_log(site: Site) -> None:
    with Visitor(site.url, "runs") as visitor:
        logged = site.log.stat().st_size
        in_browser = [event["id"] for event in visitor.config["dependencies"] if not event["backend_fn"]]
        assert len(in_browser) > 3
        for number in (*in_browser, -1, 10**6):
            body = json.dumps({"data": [], "fn_index": number, "session_hash": visitor.session})
            for path in ("/gradio_api/run/predict", "/gradio_api/queue/join"):
                kind = {"Content_Type": "application/json"}
                assert send_request(site.url, "POST", path, body, **kind)[0] == 404, number
        assert site.log.stat().st_size == logged


@pytest.mark.parametrize("query", ["deep_link=..%2F..%2Fetc", "view=api", "__theme=dark"])
def test_an_address_with_more_in_it_still_leads_to_the_page(site: Site, query: str) -> None:
    status, _, text = send_request(site.url, "GET", f"/?{query}")
    assert status == 200
    assert b"<html" in text


def test_a_page_that_does_not_exist_is_told(site: Site) -> None:
    logged = site.log.stat().st_size
    for path in ("/nonsense", "/?page=nonsense", "/?page=compare"):
        assert send_request(site.url, "GET", path)[0] == 404
    assert site.log.stat().st_size == logged


def test_behind_a_proxy_the_names_that_are_given_are_our_own(tmp_path: Path) -> None:
    given = {"SPACE_ID": "Team/My_Lab.2", "FSD_ALLOWED_HOSTS": "lab.example.org,*.example.net,*"}
    with serving(tmp_path, **given) as behind:
        for origin, status in {
            "https://team-my-lab-2.hf.space": 422,  # let in: it is the empty body that is wrong
            "https://lab.example.org": 422,
            "https://other.hf.space": 403,
            "https://huggingface.co": 403,
            "https://any.example.net": 403,
            "https://evil.example": 403,
        }.items():
            asked = {"Host": "10.0.0.7:7860", "Origin": origin}
            assert send_request(behind.url, "POST", "/gradio_api/run/predict", **asked)[0] == status, origin


# Sends a request and tells what the page learns of it: the status, "opaque", or that it failed.
SEND = """async ([url, options]) => {
  if (options.upload) {
    options.body = new FormData();
    options.body.append('files', new Blob(['x'.repeat(1000)]), 'planted.bin');
  }
  try { const answer = await fetch(url, options); return answer.status || answer.type; }
  catch (error) { return 'failed'; }
}"""
# A form sends JSON, too: what follows the first quotation mark ends in the name's "=".
FORM = """([url, body]) => {
  const form = document.createElement('form');
  Object.assign(form, {action: url, method: 'post', enctype: 'text/plain'});
  const field = document.createElement('input');
  [field.name, field.value] = [body.slice(0, -1) + ', "username": "', '"}'];
  form.append(field);
  document.body.append(form);
  form.submit();
}"""
IMAGE = """(url) => new Promise((done) => {
  const image = new Image();
  image.onload = () => done('loaded');
  image.onerror = () => done('failed');
  image.src = url;
})"""


class Blank(BaseHTTPRequestHandler):
    """Answers with a page, which is empty."""

    page = b"<!doctype html><title>Elsewhere</title><body>Elsewhere</body>"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(self.page)

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture(scope="module", params=some(["127.0.0.1", "localhost"], "localhost"))
def other_origin(request: pytest.FixtureRequest) -> Iterator[str]:
    """Another web server: on the same host name as the application (the same site to a browser), and on another."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Blank) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://{request.param}:{server.server_port}"
        server.shutdown()


@pytest.fixture
def elsewhere(fresh: Page, other_origin: str) -> Page:
    """A page of the other origin."""
    fresh.goto(other_origin)
    return fresh


def test_its_requests_start_nothing_and_learn_nothing(elsewhere: Page, site: Site) -> None:
    with Visitor(site.url, "experiments") as visitor:
        body, began = json.dumps(starting(visitor)), len(site.repository.experiments())
        for path in ("queue/join", "run/predict", "upload"):
            url = f"{site.url}/gradio_api/{path}"
            for kind in ("text/plain", "application/json"):
                for mode in ("no-cors", "cors"):
                    options = {"method": "POST", "mode": mode, "headers": {"Content-Type": kind}, "body": body}
                    assert elsewhere.evaluate(SEND, [url, options]) in ("failed", "opaque")
        upload = {"method": "POST", "mode": "no-cors", "upload": True}
        assert elsewhere.evaluate(SEND, [f"{site.url}/gradio_api/upload", upload]) in ("failed", "opaque")
        for path in ("", "/experiments", f"/gradio_api/queue/data?session_hash={visitor.session}"):
            assert elsewhere.evaluate(SEND, [f"{site.url}{path}", {"mode": "cors"}]) == "failed"
        assert elsewhere.evaluate(IMAGE, f"{site.url}/favicon.ico") == "failed"
        visitor.open()
        assert len(site.repository.experiments()) == began
    assert list(site.temporary.rglob("planted.bin")) == []


def test_its_forms_start_nothing(elsewhere: Page, site: Site) -> None:
    with Visitor(site.url, "experiments") as visitor:
        body, began = json.dumps(starting(visitor)), len(site.repository.experiments())
        elsewhere.evaluate(FORM, [f"{site.url}/gradio_api/run/predict", body])
        expect(elsewhere.locator("body")).to_contain_text("made by a page of another site")
        visitor.open()
        assert len(site.repository.experiments()) == began


@pytest.mark.wide
def test_its_links_lead_to_the_application(elsewhere: Page, site: Site) -> None:
    elsewhere.evaluate("(url) => { window.location.href = url; }", f"{site.url}/experiments")
    expect(elsewhere.get_by_text("= 2,400 generations")).to_be_visible()  # the page is alive


def test_the_same_request_of_our_own_page_starts_work(page: Page, site: Site) -> None:
    began = len(site.repository.experiments())
    page.goto(f"{site.url}/experiments")
    with Visitor(site.url, "experiments") as visitor:
        headers = {"Content-Type": "application/json"}
        options = {"method": "POST", "headers": headers, "body": json.dumps(starting(visitor))}
        assert page.evaluate(SEND, [f"{site.url}/gradio_api/run/predict", options]) == 200
        until(lambda: len(site.repository.experiments()) == began + 1, "an experiment", PATIENCE)


@pytest.fixture(scope="module")
def events(site: Site) -> list[dict[str, Any]]:
    """The events of all pages that ask the server, and those that programs call."""
    with Visitor(site.url) as visitor:
        return visitor.events


def test_no_answer_comes_through_the_queue(events: list[dict[str, Any]]) -> None:
    assert events
    assert [event["id"] for event in events if event["queue"]] == []


def test_no_event_of_a_page_is_part_of_the_public_interface(events: list[dict[str, Any]]) -> None:
    of_pages = [event for event in events if event["targets"] or event["trigger_after"] is not None]
    assert of_pages
    assert {event["api_visibility"] for event in of_pages} == {"private"}


@pytest.mark.wide
def test_the_header_mends_itself_where_an_answer_was_lost(page: Page, site: Site) -> None:
    """The page says what it shows, so the answer after the lost one tells the same."""
    go(page, f"{site.url}/theory")
    lost: list[Route] = []

    def lose(route: Route) -> None:
        changes = "worker ready" in route.fetch().text()
        if changes and not lost:
            lost.append(route)
            route.fulfill(status=500, body="{}")
        else:
            route.continue_()

    expect(page.locator(".fsd-worker")).to_contain_text("worker is not running")
    page.route("**/gradio_api/run/**", lose)
    alive = threading.Event()

    def live() -> None:
        while not alive.wait(1):
            site.repository.report_worker(1, "host", "cpu", "idle")

    worker = threading.Thread(target=live)
    worker.start()
    try:
        expect(page.locator(".fsd-worker")).to_contain_text("worker ready")
    finally:
        alive.set()
        worker.join()
    assert lost


def status(url: str, **headers: str) -> int:
    try:
        with urlopen(Request(url, headers=headers), timeout=PATIENCE) as answer:
            return answer.status
    except HTTPError as error:
        return error.code


@pytest.mark.parametrize(
    ("host", "expected"), [("localhost", 200), ("127.0.0.1:7860", 200), ("[::1]:80", 200), ("evil.example", 400)]
)
def test_only_known_host_names_are_answered(site: Site, host: str, expected: int) -> None:
    assert status(site.url, Host=host) == expected


def test_pages_may_load_nothing_from_elsewhere(site: Site) -> None:
    with urlopen(site.url, timeout=PATIENCE) as answer:
        policy = answer.headers["Content-Security-Policy"]
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert "default-src 'self'" in policy
    assert "http" not in policy


def test_files_named_by_their_contents_are_kept_by_the_browser(site: Site) -> None:
    with urlopen(site.url, timeout=PATIENCE) as answer:
        assert answer.headers["Cache-Control"] == "private, no-cache"
        named = re.search(r"/assets/index-[^\"']+\.js", answer.read().decode())
    assert named is not None
    for path, kept in (
        (named[0], True),
        ("/theme.css?v=1", True),
        ("/theme.css", False),
        ("/assets/no-such.js", False),
    ):
        request = Request(site.url + path)
        try:
            headers = urlopen(request, timeout=PATIENCE).headers
        except HTTPError as error:
            headers = error.headers
        assert ("immutable" in (headers["Cache-Control"] or "")) == kept, path


def test_neither_the_database_nor_the_program_is_served(site: Site) -> None:
    for path in (site.home / "fsd.db", ROOT / "app.py", ROOT / "pyproject.toml"):
        assert path.exists()
        assert status(f"{site.url}/gradio_api/file={path}") == 404


def test_the_icon_is_ours(site: Site) -> None:
    with urlopen(f"{site.url}/favicon.ico", timeout=PATIENCE) as answer:
        assert b"#0f6b65" in answer.read()


@pytest.mark.wide
def test_an_address_that_leads_nowhere_is_a_page_with_a_way_back(page: Page, site: Site) -> None:
    answer = page.goto(f"{site.url}/nosuch")
    assert answer is not None
    assert answer.status == 404
    expect(page.locator("h1")).to_have_text("There is nothing at this address.")
    page.get_by_role("link", name="To the first page").click()
    expect(page).to_have_url(f"{site.url}/")
    page.goto(f"{site.url}/start?theme=dark")
    expect(page).to_have_url(f"{site.url}/?theme=dark")
    page.get_by_role("link", name="FSD Lab").click()
    expect(page).to_have_url(f"{site.url}/")
    expect(page.locator("h1")).to_have_text(
        re.compile(r"^Use FSD reducible .* 2\.2 × as fast as exact SD, within 2 points")
    )
    expect(page.get_by_role("img", name="as fast as exact SD, within 2 points")).to_be_in_viewport()
    assert len(first_sight(page).words) <= MOST_WORDS
    page.get_by_role("link", name="Find it for your prompts").click()
    expect(page).to_have_url(f"{site.url}/experiments")
    page.go_back()
    page.get_by_role("link", name="reference").click()
    page.get_by_role("link", name="variables").click()
    expect(page).to_have_url(f"{site.url}/reference#variables")
    expect(page.get_by_role("heading", name="Variables")).to_be_in_viewport()
    page.go_back()
    page.go_back()
    page.get_by_role("link", name="Try it on a prompt").click()
    expect(page).to_have_url(f"{site.url}/playground?pair=bundled")
    expect(page.locator(".setting-line p").nth(1)).to_have_text("FSD reducible · js ≤ 0.1 · γ 16")
