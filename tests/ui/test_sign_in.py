"""Signing in, in a browser, and what each role is refused at every door."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from fastapi.testclient import TestClient
from playwright.sync_api import Page, expect

from dashboard.web import build_app
from fsd_core import accounts
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE
from tests.tools.visitor import Visitor
from tests.tools.whole_application import Application

PASSWORD = "correct horse battery"
HOSTILE = '"><script>alert(1)</script>'


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The application where people sign in, with one of each role and a finished experiment."""
    with serving(tmp_path_factory.mktemp("home"), FSD_ACCESS="password") as site:
        for role in ("viewer", "author", "reviewer", "admin"):
            accounts.add_user(site.repository, role.capitalize(), role, PASSWORD)
        add_finished(site.repository)
        yield site


def sign_in(page: Page, site: Site | Application, name: str, path: str = "/") -> None:
    page.goto(site.url + path)
    page.get_by_label("Name").fill(name)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()


def status(site: Site, path: str, method: str = "GET", **headers: str) -> tuple[int, str]:
    request = Request(site.url + path, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    try:
        with urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except HTTPError as error:
        return error.code, error.read().decode()


def test_a_page_leads_to_the_form_and_back(page: Page, closed: Site) -> None:
    page.goto(f"{closed.url}/runs?search=js")
    expect(page).to_have_url(f"{closed.url}/login?next=/runs%3Fsearch%3Djs")
    page.get_by_label("Name").fill(HOSTILE)
    page.get_by_label("Password").fill("wrong")
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("alert")).to_have_text("The name or the password is wrong.")
    expect(page.get_by_label("Name")).to_have_value(HOSTILE)
    page.get_by_label("Name").fill("Author")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{closed.url}/runs?search=js")
    expect(page.locator("#runs tbody tr")).to_have_count(4)
    expect(page.locator(".fsd-person form")).to_contain_text("Author")
    cookie = next(one for one in page.context.cookies() if one["name"].startswith("fsd_session_"))
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(re.compile("/login"))
    page.goto(f"{closed.url}/runs")
    expect(page).to_have_url(re.compile("/login"))


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"]
)
def test_nobody_is_sent_elsewhere(page: Page, closed: Site, elsewhere: str) -> None:
    form = page.request.get(f"{closed.url}/login", params={"next": elsewhere}).text()
    assert '<input type="hidden" name="next" value="/">' in form
    told = {"name": "Viewer", "password": PASSWORD, "next": elsewhere}
    answer = page.request.post(f"{closed.url}/login", form=told, max_redirects=0)
    assert (answer.status, answer.headers["location"]) == (303, "/")


def test_nothing_is_told_to_whom_nobody_knows(closed: Site) -> None:
    run = closed.repository.runs()[0].id
    body = json.dumps({"data": [], "fn_index": 0, "session_hash": "abc"})
    for method, path in (
        ("GET", f"/export/comparison.csv?runs={run}"), ("GET", "/theme.css"), ("POST", "/gradio_api/run/predict"),
        ("POST", "/gradio_api/queue/join"), ("GET", "/gradio_api/queue/data?session_hash=abc"), ("POST", "/logout"),
    ):  # fmt: skip
        code, told = status(closed, path, method)
        assert (code, told[:13]) == (401, "Sign in first"), path
    assert body
    assert status(closed, f"/export/comparison.csv?runs={run}", Authorization="Bearer nothing")[0] == 401
    token = accounts.add_token(closed.repository, "ci", "viewer")
    code, told = status(closed, f"/export/comparison.csv?runs={run}", Authorization=f"Bearer {token}")
    assert (code, run in told) == (200, True)


@pytest.mark.wide
def test_a_viewer_looks_and_writes_nothing(page: Page, closed: Site) -> None:
    sign_in(page, closed, "Viewer", "/experiments")
    expect(page.locator("article.exp")).to_have_count(1)
    expect(page.get_by_role("button", name="Start experiment")).to_be_disabled()
    expect(page.get_by_text("Starting an experiment needs the role author")).to_be_visible()
    delete = page.get_by_role("button", name="Delete", exact=True).first
    expect(delete).to_be_disabled()
    expect(delete).to_have_attribute("title", re.compile("Deleting needs the role admin, and Viewer is viewer"))
    assert len(closed.repository.experiments(1000)) == 1


@pytest.mark.wide
def test_an_author_starts_and_does_not_delete(page: Page, closed: Site) -> None:
    sign_in(page, closed, "Author", "/experiments")
    expect(page.locator("article.exp")).to_have_count(1)
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("article.exp")).to_have_count(2)
    finished = page.locator("article.exp", has_text="Find the knee")
    delete = finished.get_by_role("button", name="Delete", exact=True)
    expect(delete).to_be_disabled()
    expect(delete).to_have_attribute("title", re.compile("Deleting needs the role admin, and Author is author"))
    assert len(closed.repository.experiments(1000)) == 2


@pytest.mark.wide
def test_an_admin_deletes(page: Page, closed: Site) -> None:
    sign_in(page, closed, "Admin", "/experiments")
    finished = page.locator("article.exp", has_text="Find the knee")
    finished.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("dialog").get_by_role("button", name="Delete").click()
    expect(finished).to_have_count(0)


@pytest.mark.wide
def test_people_and_tokens_have_a_page(page: Page, closed: Site) -> None:
    """An admin adds somebody, who signs in once and chooses a password; a program that shows a token sees nothing."""
    sign_in(page, closed, "Admin", "/people")
    people = page.get_by_label("People", exact=True).locator("tbody tr")
    expect(people).to_have_count(4)
    expect(people.filter(has_text="Admin").get_by_role("button")).to_have_count(0)
    page.get_by_label("Name of the person").fill("Dan")
    page.get_by_role("button", name="Add the person").click()
    password = page.locator(".people-secret").inner_text()
    expect(people.filter(has_text="Dan")).to_contain_text("one-time password")
    page.get_by_label("Name of the token").fill("deploy")
    page.get_by_role("button", name="Make a token").click()
    expect(page.locator(".people-secret")).to_have_count(2)
    token = page.locator(".people-secret", has_text="fsd_").inner_text()
    made = page.get_by_label("Tokens", exact=True).locator("tbody tr", has_text="deploy")
    expect(made).to_have_count(1)
    assert accounts.whose_token(closed.repository, token) == Person("Admin/deploy", "viewer", owner="Admin")
    assert status(closed, "/people", Authorization=f"Bearer {token}", Accept="text/html")[0] == 200
    with Visitor(closed.url, "people", {"Authorization": f"Bearer {token}"}) as program:
        program.open()
        told = " ".join(map(str, program.values.values()))
    assert "is for people, and Admin/deploy is a program" in told
    assert "Viewer" not in told
    made.get_by_role("button", name="Revoke").click()
    page.get_by_role("dialog").get_by_role("button", name="Revoke").click()
    expect(made).to_have_count(0)
    assert accounts.whose_token(closed.repository, token) is None

    page.context.clear_cookies()
    page.goto(f"{closed.url}/runs")
    page.get_by_label("Name").fill("Dan")
    page.get_by_label("Password").fill(password)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{closed.url}/password")
    page.get_by_label("Current password").fill(password)
    page.get_by_label("New password", exact=True).fill(PASSWORD)
    page.get_by_label("New password again").fill(PASSWORD)
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_text("You are Dan, with the role viewer.")).to_be_visible()
    expect(page.get_by_label("What happened to accounts").locator("tbody tr").first).to_contain_text("password changed")
    expect(page.get_by_label("Name of the person")).to_have_count(0)
    page.get_by_role("button", name="Sign out everywhere").click()
    expect(page).to_have_url(re.compile("/login"))


def test_a_proxy_is_believed_and_nobody_else(repository: Repository, tmp_path: Path) -> None:
    settings = Settings(
        home=tmp_path, access="proxy", proxy_roles="ann=author,*=viewer", proxy_addresses="10.0.0.7"
    )  # fmt: skip
    app = build_app(repository, settings)
    page, ann = {"Accept": "text/html"}, {"X-Forwarded-User": "ann"}
    others, proxy = (TestClient(app, "http://127.0.0.1", client=(host, 5000)) for host in ("127.0.0.1", "10.0.0.7"))
    assert others.get("/", headers=page | ann).status_code == 401
    assert proxy.get("/", headers=page).status_code == 401
    assert proxy.get("/", headers=ann).status_code == 200
    assert proxy.get("/login", headers=ann).status_code == 404
