"""The application below a path of a proxy that removes it: nothing leads out of the path, and every door holds."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi.testclient import TestClient
from gradio_client import Client
from playwright.sync_api import Page, expect
from starlette.types import Receive, Scope, Send

from dashboard.web import build_app
from fsd_core import accounts
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.every_page import every_page
from tests.tools.openid_provider import CLIENT, SECRET, providing
from tests.tools.plausible import add_finished
from tests.tools.prefix_proxy import PrefixProxy, proxying
from tests.tools.raw_http import send_request
from tests.tools.settled import go, settled
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE

pytestmark = pytest.mark.ui

ROOT = "/tools/lab"
PASSWORD = "correct horse battery"
MCP_CALL = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})
MCP = {"Content_Type": "application/json", "Accept": "application/json, text/event-stream"}


@pytest.fixture(scope="module")
def behind(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, PrefixProxy]]:
    """The application where people sign in, with an author and a finished experiment, and the proxy before it."""
    with serving(tmp_path_factory.mktemp("home"), FSD_ACCESS="password", FSD_ROOT_PATH=ROOT) as site:
        accounts.add_user(site.repository, "Ann", "admin", PASSWORD)
        add_finished(site.repository)
        with proxying(site.url, ROOT) as proxy:
            yield site, proxy


def watched(page: Page, proxy: PrefixProxy) -> list[str]:
    """A list of what goes wrong: a request out of the path, an answer that is an error, an error of a script."""
    problems: list[str] = []
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", lambda m: problems.append(m.text) if "Content Security Policy" in m.text else None)
    page.on(
        "request", lambda r: None if r.url.startswith((f"{proxy.url}/", "data:", "blob:")) else problems.append(r.url)
    )
    page.on("response", lambda r: problems.append(f"{r.status} {r.url}") if r.status >= 400 else None)
    return problems


@pytest.mark.wide
def test_a_browser_never_leaves_the_path(fresh: Page, behind: tuple[Site, PrefixProxy]) -> None:
    """Signing in, every page and all its links, an act, a download, signing out."""
    (site, proxy), page = behind, fresh
    problems = watched(page, proxy)
    page.goto(f"{proxy.url}/runs?search=js")
    expect(page).to_have_url(f"{proxy.url}/login?next=/runs%3Fsearch%3Djs")
    page.get_by_label("Name").fill("Ann")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in").click()
    expect(page).to_have_url(f"{proxy.url}/runs?search=js")
    (cookie,) = page.context.cookies()
    assert (cookie["name"][:12], cookie["path"], cookie["httpOnly"]) == ("fsd_session_", ROOT, True)

    links: set[str] = set()
    pages = every_page(site.repository)
    lost = pages.pop("nothing")
    for address in pages.values():
        go(page, proxy.url + address)
        expect(page.locator(".fsd-person form")).to_contain_text("Ann")
        links |= set(page.locator("a[href]").evaluate_all("links => links.map((link) => link.href.split('#')[0])"))
    elsewhere = {link for link in links if not link.startswith(f"{proxy.url}/")}
    assert {urlsplit(link).netloc for link in elsewhere} <= {"huggingface.co", "plotly.com", "127.0.0.1:5999"}
    paths = {urlsplit(link).path: link for link in links - elsewhere}
    assert {f"{ROOT}/", f"{ROOT}/runs", f"{ROOT}/export/comparison.csv", f"{ROOT}/export/review.csv"} <= set(paths)
    for link in paths.values():
        assert page.request.get(link).status == 200, link

    go(page, proxy.url + pages["compare"])
    with page.expect_download() as downloaded:
        page.get_by_role("link", name="Export CSV").click()
    assert site.repository.runs()[0].id in downloaded.value.path().read_text()
    page.get_by_role("navigation", name="Pages").get_by_role("link", name="Experiments").click()
    expect(page.locator("article.exp")).to_have_count(1)
    settled(page)
    page.get_by_role("button", name="Start experiment").click()
    expect(page.locator("article.exp")).to_have_count(2)
    assert not problems

    page.goto(f"{proxy.url}/theory/")  # a page has one address
    expect(page).to_have_url(f"{proxy.url}/theory")
    page.goto(f"{proxy.url}{lost}/deep/er")
    page.get_by_role("link", name="To the first page").click()
    expect(page).to_have_url(f"{proxy.url}/")
    assert [problem.partition(" ")[0] for problem in problems] == ["404"]
    settled(page)
    page.get_by_role("button", name="Sign out").click()
    expect(page).to_have_url(f"{proxy.url}/login")
    page.goto(f"{proxy.url}/runs")
    expect(page).to_have_url(re.compile("/login"))
    assert proxy.outside == []


def test_programs_reach_the_same_below_the_path(behind: tuple[Site, PrefixProxy]) -> None:
    site, proxy = behind
    token = accounts.add_token(site.repository, "nightly", "author")
    known = {"Authorization": f"Bearer {token}"}
    lab = Client(proxy.url, headers=known, verbose=False, httpx_kwargs={"timeout": PATIENCE})
    runs = [run.id for run in site.repository.runs()[:2]]
    page = lab.predict(runs=runs, api_name="/compare_runs")["page"]
    assert page.startswith(f"{ROOT}/compare?runs=")
    assert send_request(proxy.url.removesuffix(ROOT), "GET", page, **known)[0] == 200
    assert send_request(proxy.url, "GET", "/api/v1/uses", **known)[0] == 200
    status, _, told = send_request(proxy.url, "POST", "/gradio_api/mcp/", MCP_CALL, **MCP, **known)
    assert (status, b"compare_runs" in told) == (200, True)
    assert proxy.outside == []


def test_the_doors_hold_below_the_path(behind: tuple[Site, PrefixProxy]) -> None:
    site, proxy = behind
    known = {"Authorization": f"Bearer {accounts.add_token(site.repository, 'doors', 'author')}"}
    own = proxy.url.removesuffix(ROOT)
    for origin, expected in ((own, 422), ("https://evil.example", 403), ("http://127.0.0.1:9", 403), ("null", 403)):
        asked = {**known, "Origin": origin}
        assert send_request(proxy.url, "POST", "/gradio_api/run/predict", **asked)[0] == expected, origin
    for path in ("/gradio_api/upload", "/monitoring", f"{ROOT}/runs", "//runs", "/runs/../config/x", "/theme.css/"):
        assert send_request(proxy.url, "GET", path, **known)[0] == 404, path
    run = site.repository.runs()[0].id
    for path in (f"/export/comparison.csv?runs={run}", "/config", "/mlflow/", "/api/v1/uses"):
        assert send_request(proxy.url, "GET", path)[0] == 401, path
    assert send_request(proxy.url, "GET", "/runs", Host="evil.example", **known)[0] == 400
    sign_in = "name=Ann&password=correct+horse+battery&next=//evil.example"
    form = {"Content_Type": "application/x-www-form-urlencoded"}
    status, headers, _ = send_request(proxy.url, "POST", "/login", sign_in, Origin=own, **form)
    assert (status, headers["location"]) == (303, f"{ROOT}/")
    assert f"Path={ROOT};" in headers["set-cookie"]


@pytest.mark.wide
def test_signing_in_with_hugging_face_leads_below_the_path(
    repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with providing() as provider:
        monkeypatch.setenv("OAUTH_CLIENT_ID", CLIENT)
        monkeypatch.setenv("OAUTH_CLIENT_SECRET", SECRET)
        monkeypatch.setenv("OPENID_PROVIDER_URL", provider.url)
        monkeypatch.setenv("OAUTH_SCOPES", "openid profile")
        app = build_app(repository, Settings(home=tmp_path, access="huggingface", root_path=ROOT))

        async def proxy(scope: Scope, receive: Receive, send: Send) -> None:
            assert scope["path"].startswith(f"{ROOT}/")
            below = {name: scope[name][len(ROOT) :] for name in ("path", "raw_path")}
            await app({**scope, **below}, receive, send)

        visitor = TestClient(proxy, "http://127.0.0.1", follow_redirects=False)
        looked = visitor.get(f"{ROOT}/runs?search=js", headers={"Accept": "text/html"})
        assert looked.headers["location"] == f"{ROOT}/login?next=/runs%3Fsearch%3Djs"
        assert f'href="{ROOT}/login/huggingface?next=/runs' in visitor.get(looked.headers["location"]).text
        away = visitor.get(f"{ROOT}/login/huggingface?next=/runs%3Fsearch%3Djs")
        assert f"path={ROOT}/login;" in away.headers["set-cookie"]
        back = httpx.get(f"{away.headers['location']}&who=0", timeout=PATIENCE).headers["location"]
        assert back.startswith(f"http://127.0.0.1{ROOT}/login/callback?code=")
        here = visitor.get(back)
        assert (here.status_code, here.headers["location"]) == (303, f"{ROOT}/runs?search=js")
        assert f"Path={ROOT};" in here.headers["set-cookie"]
        assert visitor.get(here.headers["location"]).status_code == 200
        again = visitor.get(back)
        assert (again.status_code, f'href="{ROOT}/login/huggingface' in again.text) == (403, True)
        assert visitor.post(f"{ROOT}/logout").headers["location"] == f"{ROOT}/login"


@pytest.mark.wide
@pytest.mark.parametrize("root", ["/runs", "/runs/compare"])
def test_the_path_may_be_named_as_a_page(repository: Repository, tmp_path: Path, root: str) -> None:
    client = TestClient(build_app(repository, Settings(home=tmp_path, root_path=f"{root}/")), "http://127.0.0.1")
    for path in ("/", "/runs", "/compare", "/config", "/theme.css"):
        assert client.get(path).status_code == 200, path
    assert client.get("/config").json()["root"] == f"http://127.0.0.1{root}"
    assert client.get("/mlflow", follow_redirects=False).headers["location"] == f"{root}/mlflow/"
    moved = client.get("/compare/?runs=a", headers={"Accept": "text/html"}, follow_redirects=False)
    assert (moved.status_code, moved.headers["location"]) == (308, f"{root}/compare?runs=a")


@pytest.mark.parametrize("root", ["lab", "https://evil.example", "//evil.example", "/../up", "/a b", "/a?b", "/é"])
def test_what_is_no_path_is_refused(tmp_path: Path, root: str) -> None:
    with pytest.raises(ValueError, match="expected one such as /lab"):
        Settings(home=tmp_path, root_path=root)
    assert Settings(home=tmp_path, root_path="/").root_path == ""
