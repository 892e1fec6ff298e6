"""A page of another origin in a real browser: it can link to the application, and do nothing else with it."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from playwright.sync_api import Page, expect

from tests.tools.site import Site
from tests.tools.sizes import PATIENCE, some
from tests.tools.visitor import Visitor
from tests.tools.worker_process import until
from tests.ui.test_doors import starting

pytestmark = pytest.mark.ui

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
