"""Signing in with Hugging Face, in a browser, with a provider of the tests' own on another site."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from joserfc.jwk import RSAKey
from playwright.sync_api import Browser, BrowserContext, Page, expect
from sqlalchemy import select, update
from starlette.applications import Starlette
from starlette.testclient import TestClient as Client

from dashboard.server.sign_in import huggingface_routes
from fsd_core import accounts
from fsd_core.settings import OAuthApp, Settings, Space, here
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import SignInRow
from tests.tools.openid_provider import CLIENT, SECRET, Provider, providing
from tests.tools.site import Site, serving
from tests.tools.sizes import PATIENCE
from tests.tools.worker_process import until

pytestmark = [pytest.mark.ui, pytest.mark.wide("test_settings.py")]

ANN, BOB, CAT, DAN, HOSTILE = range(5)
ROLES = "ann=reviewer,org:my-team=author,org:my-team/admin=admin"


@pytest.fixture(scope="module")
def provider() -> Iterator[Provider]:
    with providing() as provider:
        yield provider


def variables(provider: Provider) -> dict[str, str]:
    return {
        "FSD_ACCESS": "huggingface", "FSD_HF_ROLES": ROLES, "OAUTH_CLIENT_ID": CLIENT, "OAUTH_CLIENT_SECRET": SECRET,
        "OPENID_PROVIDER_URL": provider.url, "OAUTH_SCOPES": "openid profile",
    }  # fmt: skip


@pytest.fixture(scope="module")
def closed(provider: Provider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with serving(tmp_path_factory.mktemp("home"), **variables(provider)) as site:
        yield site


@pytest.fixture(scope="module")
def tab(profile: BrowserContext) -> Iterator[Page]:
    """One window for the module: each new one would compile the pages anew."""
    tab = profile.new_page()
    tab.set_default_timeout(1000 * PATIENCE)
    yield tab
    tab.close()


@pytest.fixture
def fresh(tab: Page, provider: Provider) -> Iterator[Page]:
    """The window with nobody signed in; the provider is honest again afterwards."""
    tab.context.clear_cookies()
    yield tab
    tab.context.clear_cookies()
    provider.claims, provider.signed_with, provider.told_of = {}, None, None


def sign_in(page: Page, site: Site, who: int, path: str = "/theory") -> None:
    page.goto(site.url + path)
    page.get_by_role("link", name="Sign in with Hugging Face").click()
    page.get_by_role("link", name=f"person {who}").click()


def answered(person: BrowserContext, address: str, who: int) -> str:
    """Where the provider sends somebody back to, without a page being shown."""
    for more in ("", f"&who={who}"):
        address = person.request.get(address + more, max_redirects=0).headers["location"]
    return address


def refused(page: Page, site: Site, words: str | re.Pattern[str]) -> None:
    expect(page.get_by_role("alert")).to_contain_text(words)
    assert not any(cookie["name"].startswith("fsd_session") for cookie in page.context.cookies())
    page.goto(f"{site.url}/theory")
    expect(page).to_have_url(re.compile("/login"))


def test_somebody_signs_in_is_named_and_signs_out(fresh: Page, closed: Site) -> None:
    sign_in(fresh, closed, ANN, "/runs?search=js")
    expect(fresh).to_have_url(f"{closed.url}/runs?search=js")
    expect(fresh.locator(".fsd-person form")).to_contain_text("ann")
    expect(fresh.locator(".fsd-person span")).to_have_attribute("title", "reviewer")
    cookie = next(one for one in fresh.context.cookies() if one["name"].startswith("fsd_session_"))
    assert (cookie["httpOnly"], cookie["sameSite"]) == (True, "Lax")
    with closed.repository._database.session(readonly=True) as session:
        assert session.scalar(select(SignInRow.user_name)) == "ann"
        assert cookie["value"] not in session.scalars(select(SignInRow.digest)).all()
    fresh.get_by_role("button", name="Sign out").click()
    expect(fresh).to_have_url(re.compile("/login"))
    fresh.goto(f"{closed.url}/runs")
    expect(fresh).to_have_url(re.compile("/login"))


@pytest.mark.parametrize(("who", "role"), [(BOB, "author"), (CAT, "admin"), (DAN, "viewer")])
def test_the_role_is_that_of_the_organisation(fresh: Page, closed: Site, who: int, role: str) -> None:
    """Who has not passed an organisation's own door is a viewer."""
    sign_in(fresh, closed, who)
    expect(fresh.locator(".fsd-person span")).to_have_attribute("title", role)


def test_a_name_that_can_be_none_is_refused(fresh: Page, closed: Site) -> None:
    sign_in(fresh, closed, HOSTILE)
    refused(fresh, closed, "cannot be believed (no preferred_username)")


def test_a_role_is_asked_for_anew_at_each_sign_in(fresh: Page, closed: Site) -> None:
    sign_in(fresh, closed, BOB)
    expect(fresh.locator(".fsd-person span")).to_have_attribute("title", "author")
    closed.repository.change_user("bob", by="test", role="admin")
    fresh.context.clear_cookies()
    sign_in(fresh, closed, BOB)
    expect(fresh.locator(".fsd-person span")).to_have_attribute("title", "author")


def test_a_session_that_is_over_leads_to_the_form(fresh: Page, closed: Site) -> None:
    sign_in(fresh, closed, ANN)
    expect(fresh.locator(".fsd-person form")).to_contain_text("ann")
    with closed.repository._database.session() as session:
        session.execute(update(SignInRow).values(expires_at=datetime.now(UTC) - timedelta(seconds=1)))
    # Somebody found is remembered for two seconds.
    asking = fresh.context.request
    until(lambda: asking.get(f"{closed.url}/theory", max_redirects=0).status != 200, "the end", PATIENCE)
    fresh.goto(f"{closed.url}/theory")
    expect(fresh.get_by_role("link", name="Sign in with Hugging Face")).to_be_visible()


def test_an_answer_to_another_sign_in_is_refused(fresh: Page, closed: Site, browser: Browser) -> None:
    """Somebody sends a victim the address by which the sender would be signed in."""
    with closing(browser.new_context()) as sender:
        address = answered(sender, f"{closed.url}/login/huggingface", CAT)
    assert "/login/callback?code=" in address
    fresh.goto(address)
    refused(fresh, closed, "belongs to no sign-in that this browser began")
    fresh.goto(f"{closed.url}/login/callback")
    refused(fresh, closed, "sign in again")


@pytest.mark.parametrize(
    "wrong",
    [
        {"aud": "another-app"}, {"aud": "another-app", "azp": CLIENT}, {"nonce": "another"}, {"exp": 1},
        {"iss": "https://another.example"},
    ],
    ids=str,
)  # fmt: skip
def test_an_identity_made_for_others_is_refused(
    fresh: Page, closed: Site, provider: Provider, wrong: dict[str, Any]
) -> None:
    provider.claims = wrong
    sign_in(fresh, closed, CAT)
    refused(fresh, closed, "cannot be believed")


def test_an_identity_that_another_signed_or_that_names_two_people_is_refused(
    fresh: Page, closed: Site, provider: Provider
) -> None:
    provider.signed_with = RSAKey.generate_key(2048, {"kid": "one"})
    sign_in(fresh, closed, ANN)
    refused(fresh, closed, "cannot be believed")
    provider.signed_with, provider.told_of = None, "cat"
    sign_in(fresh, closed, ANN)
    refused(fresh, closed, "two people in one answer")


def test_who_refuses_there_is_told_here(fresh: Page, closed: Site) -> None:
    fresh.goto(f"{closed.url}/login/huggingface")
    fresh.get_by_role("link", name="refuse").click()
    refused(fresh, closed, "did not let you in (access_denied: <b>no</b>): sign in again")


@pytest.mark.parametrize("elsewhere", ["https://evil.example/", "//evil.example", "javascript:alert(1)"])
def test_nobody_is_sent_elsewhere(fresh: Page, closed: Site, elsewhere: str) -> None:
    back = answered(fresh.context, f"{closed.url}/login/huggingface?next={quote(elsewhere)}", ANN)
    assert back.startswith(f"{closed.url}/login/callback?code=")
    assert fresh.context.request.get(back, max_redirects=0).headers["location"] == "/"
    assert any(cookie["name"].startswith("fsd_session_") for cookie in fresh.context.cookies())


def test_a_name_that_has_a_password_here_is_not_taken_over(fresh: Page, closed: Site) -> None:
    if "cat" in [user.name for user in closed.repository.users()]:
        closed.repository.remove_user("cat", "test")
    accounts.add_user(closed.repository, "cat", "viewer", "correct horse battery")
    sign_in(fresh, closed, CAT)
    refused(fresh, closed, "There is a user 'cat' with a password here already")
    closed.repository.remove_user("cat", "test")


def doors(repository: Repository, tmp_path: Path, provider: str, space: Space | None = None, roles: str = "") -> Client:
    """The way there and back without the pages, and a browser that follows nothing by itself."""
    settings = Settings(home=tmp_path, access="huggingface", hf_roles=roles)
    app = OAuthApp(CLIENT, SECRET, provider, "openid profile")
    return Client(Starlette(routes=huggingface_routes(repository, settings, app, space)), follow_redirects=False)


def test_a_provider_that_does_not_answer_is_told(repository: Repository, tmp_path: Path) -> None:
    told = doors(repository, tmp_path, "http://localhost:9").get("/login/huggingface")
    assert told.status_code == 502
    assert re.search(r'role="alert">Hugging Face cannot be reached \(.+\): try again', told.text)


def test_on_a_space_the_form_opens_a_tab_and_the_frame_gets_the_cookie_too(
    repository: Repository, tmp_path: Path, provider: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The address of a Space is its own, under https, where no browser of a test comes."""
    monkeypatch.setenv("SPACE_ID", "cat/lab")
    monkeypatch.setenv("SPACE_HOST", "cat-lab.hf.space")
    visitor = doors(repository, tmp_path, provider.url, here(), "*=viewer")
    visitor.base_url = "https://cat-lab.hf.space"
    link = 'href="https://cat-lab.hf.space/login/huggingface?next=/" target="_blank"'
    assert link in visitor.get("/login").text
    away = visitor.get("/login/huggingface").headers
    assert "secure" in away["set-cookie"]
    back = httpx.get(f"{away['location']}&who={CAT}", timeout=PATIENCE).headers["location"]
    assert back.startswith("https://cat-lab.hf.space/login/callback?code=")
    kept = visitor.get(back).headers["set-cookie"].lower()
    assert all(part in kept for part in ("fsd_session_", "httponly", "samesite=none", "secure")), kept
    assert "partitioned" not in kept
    assert [(user.name, user.role) for user in repository.users()] == [("cat", "admin")]
