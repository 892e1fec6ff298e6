"""People and tokens: what admins do with everybody's, and everybody with their own; programs with none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.testclient import TestClient

from dashboard.people import people_html, tokens_html
from dashboard.server.sign_in import login_routes, logout_routes
from dashboard.web import PAGES, pages_of
from fsd_core import accounts
from fsd_core.accounts import KEY, AccountService, identifier
from fsd_core.errors import NotApplicable, OutOfRange, Refused, UnknownChoice, UnknownName
from fsd_core.middleware import RequireSignIn
from fsd_core.roles import LOCAL, VISITOR, Person
from fsd_core.settings import Settings
from fsd_core.storage import accounts as stored_accounts
from fsd_core.storage.repository import Repository

PASSWORD = "correct horse battery"
CAT, ANN, EVE = Person("Cat", "admin"), Person("Ann", "author"), Person("Eve", "viewer")
NIGHTLY = Person("nightly", "admin", owner="Cat")


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a hash costs is not what is tested here."""
    monkeypatch.setattr(accounts, "HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    accounts._nobodys.cache_clear()
    yield
    accounts._nobodys.cache_clear()


@pytest.fixture
def service(repository: Repository) -> AccountService:
    for person in (CAT, ANN, EVE):
        accounts.add_user(repository, person.name, person.role, PASSWORD)
    return AccountService(repository, Settings(access="password"))


def sign_in(service: AccountService, name: str, password: str = PASSWORD) -> str:
    return accounts.sign_in(service.repository, name, password, "127.0.0.1")


def test_an_admin_adds_changes_disables_and_enables(service: AccountService) -> None:
    password = service.add_person(CAT, "Dan", "viewer")
    assert len(password) >= accounts.SHORTEST_PASSWORD
    service.change_role(CAT, "Dan", "reviewer")
    session = sign_in(service, "Dan", password)
    token = service.make_token(Person("Dan", "reviewer"), "dans", "author", 1)
    service.set_disabled(CAT, "Dan", True)
    assert accounts.whose_cookie(service.repository, session) is None
    assert accounts.whose_token(service.repository, token) is None
    with pytest.raises(Refused):
        sign_in(service, "Dan", "wrong password")  # which is all that a stranger learns
    new = service.new_password(CAT, "Dan")
    with pytest.raises(Refused):
        sign_in(service, "Dan", new)
    service.set_disabled(CAT, "Dan", False)
    assert accounts.whose_cookie(service.repository, sign_in(service, "Dan", new)) == Person(
        "Dan", "reviewer", must_choose_password=True
    )
    assert accounts.whose_token(service.repository, token) == Person("Dan/dans", "author", owner="Dan")
    dan = next(one for one in service.people(CAT) if one.name == "Dan")
    assert (dan.disabled, dan.one_time, dan.signed_in_at is None) == (False, True, False)
    acts = [event.act for event in reversed(service.log(CAT, 50)) if "Dan" in (event.who, event.subject)]
    assert acts == [
        "person added", "role changed", "signed in", "token added", "person disabled", "sign-in failed",
        "one-time password", "person enabled", "signed in",
    ]  # fmt: skip


def test_a_one_time_password_is_good_for_one_sign_in_in_its_time(
    service: AccountService, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sign_in(service, "Ann")
    password = service.new_password(CAT, "Ann")
    assert accounts.whose_cookie(service.repository, session) is None
    with pytest.raises(Refused):
        sign_in(service, "Ann")
    cookie = sign_in(service, "Ann", password)
    with pytest.raises(Refused):
        sign_in(service, "Ann", password)
    other = "another horse battery"
    accounts.change_own_password(service.repository, "Ann", password, other, "127.0.0.1", cookie)
    assert accounts.whose_cookie(service.repository, cookie) == ANN
    sign_in(service, "Ann", other)
    late = service.new_password(CAT, "Ann")
    clock = datetime.now(UTC) + accounts.ONE_TIME + timedelta(seconds=1)
    monkeypatch.setattr(stored_accounts, "now", lambda: clock)
    with pytest.raises(Refused):
        sign_in(service, "Ann", late)


def test_ones_own_password_takes_the_old_one_and_ends_other_sessions(service: AccountService) -> None:
    change, other = accounts.change_own_password, "another horse battery"
    here, there = sign_in(service, "Ann"), sign_in(service, "Ann")
    for _ in range(4):
        with pytest.raises(Refused):
            change(service.repository, "Ann", "wrong", other, "127.0.0.1", here)
    with pytest.raises(OutOfRange):
        change(service.repository, "Ann", PASSWORD, "short", "127.0.0.1", here)
    change(service.repository, "Ann", PASSWORD, other, "127.0.0.1", here)
    assert accounts.whose_cookie(service.repository, here) == ANN
    assert accounts.whose_cookie(service.repository, there) is None
    for _ in range(5):
        with pytest.raises(Refused):
            change(service.repository, "Ann", "wrong", other, "127.0.0.1", here)
    with pytest.raises(Refused):
        change(service.repository, "Ann", other, PASSWORD, "127.0.0.1", here)


def test_everybody_has_their_own_tokens_and_sees_their_own_log(service: AccountService) -> None:
    service.make_token(ANN, "mine", "author", None)
    service.make_token(CAT, "deploy", "admin", 90)
    assert [token.name for token in service.tokens(ANN)] == ["mine"]
    assert [token.name for token in service.tokens(CAT)] == ["deploy", "mine"]
    assert {event.who for event in service.log(ANN, 50)} == {"Ann", LOCAL.name}
    with pytest.raises(Refused):
        service.make_token(ANN, "more", "reviewer", None)
    with pytest.raises(UnknownChoice, match="deploy"):
        service.revoke_token(ANN, "deploy")
    service.revoke_token(CAT, "mine")
    assert service.tokens(ANN) == []
    assert (service.log(CAT, 1)[0].act, service.log(CAT, 1)[0].detail) == ("token revoked", "of Ann")


ACTS: list[Callable[[AccountService, Person], Any]] = [
    lambda service, who: service.people(who),
    lambda service, who: service.add_person(who, "Dan", "viewer"),
    lambda service, who: service.new_password(who, "Eve"),
    lambda service, who: service.change_role(who, "Eve", "admin"),
    lambda service, who: service.set_disabled(who, "Eve", True),
    lambda service, who: service.tokens(who),
    lambda service, who: service.log(who, 5),
    lambda service, who: service.make_token(who, "mine", "viewer", 1),
    lambda service, who: service.revoke_token(who, "ci"),
]


def test_programs_strangers_and_others_are_refused(service: AccountService) -> None:
    accounts.add_token(service.repository, "ci", "viewer", "Cat")
    before = repr((service.log(CAT, 50), service.people(CAT), service.tokens(CAT)))
    for act in ACTS:
        with pytest.raises(Refused, match="nightly"):
            act(service, NIGHTLY)
        with pytest.raises(Refused):
            act(service, VISITOR)
    for act in ACTS[:5]:
        with pytest.raises(Refused, match="author"):
            act(service, ANN)
    for own in (
        lambda: service.change_role(CAT, "cat", "viewer"),
        lambda: service.set_disabled(CAT, "CAT", True),
        lambda: service.new_password(CAT, "Cat"),
    ):
        with pytest.raises(Refused):
            own()
    with pytest.raises(UnknownName):
        service.set_disabled(CAT, "Nobody", True)
    assert repr((service.log(CAT, 50), service.people(CAT), service.tokens(CAT))) == before


def test_where_others_keep_the_accounts_that_is_said(repository: Repository) -> None:
    elsewhere = Settings(access="huggingface"), Settings(access="proxy", proxy_roles="ann=admin,*=viewer")
    accounts.sign_in_elsewhere(repository, "Eve", "viewer")
    for settings, source in zip(elsewhere, ("FSD_HF_ROLES", "FSD_PROXY_ROLES"), strict=True):
        service = AccountService(repository, settings)
        for act in ACTS[1:4]:
            with pytest.raises(NotApplicable, match=source):
                act(service, CAT)
        service.make_token(CAT, settings.access, "viewer", None)
        assert "People" in [page.title for page in pages_of(settings)]
    hub, proxy = (AccountService(repository, settings) for settings in elsewhere)
    hub.set_disabled(CAT, "Eve", True)
    with pytest.raises(Refused):
        accounts.sign_in_elsewhere(repository, "Eve", "viewer")
    with pytest.raises(NotApplicable):
        proxy.set_disabled(CAT, "Eve", False)
    html = people_html(proxy.people(CAT), CAT, elsewhere[1])
    assert "X-Forwarded-User" in html
    assert "ann" in html
    assert "Eve" not in html
    assert "No tokens yet" in tokens_html([], CAT)
    assert {page.title for page in PAGES} - {page.title for page in pages_of(Settings())} == {"People"}


def test_behind_a_proxy_a_token_is_worth_no_more_than_its_owner_there(repository: Repository) -> None:
    secret = accounts.add_token(repository, "ci", "admin", "ann")
    settings = Settings(access="proxy", proxy_roles="ann=author,*=viewer")
    scope = {"type": "http", "headers": [(b"authorization", f"Bearer {secret}".encode())], "client": ("1.1.1.1", 1)}
    assert identifier(settings, repository)(scope) == Person("ann/ci", "author", owner="ann")


@pytest.fixture
def browser_of(service: AccountService) -> Callable[[], TestClient]:
    """A browser that follows no redirects, at the pages for passwords."""
    app = FastAPI()
    identify = identifier(Settings(access="password"), service.repository)
    app.add_middleware(RequireSignIn, identify=identify, key=KEY, login="/login")
    app.include_router(login_routes(service.repository, Settings().session_cookie))
    app.include_router(logout_routes(service.repository, "/login", Settings().session_cookie))
    return lambda: TestClient(app, follow_redirects=False)


def test_the_pages_for_passwords(service: AccountService, browser_of: Callable[[], TestClient]) -> None:
    once, here, there = service.new_password(CAT, "Ann"), browser_of(), browser_of()
    answer = here.post("/login", data={"name": "Ann", "password": once, "next": "/runs"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/runs")
    assert "New password again" in here.get("/password").text
    for path in ("/", "/people", "/review"):  # until then it opens nothing else
        page = here.get(path, headers={"Accept": "text/html", "Sec-Fetch-Dest": "document"})
        assert (page.status_code, page.headers["location"]) == (303, "/password")
    assert here.post("/api/v1/calls/list_uses").status_code == 403
    told = {"current": once, "new": PASSWORD, "again": "something else"}
    assert "differ" in here.post("/password", data=told).text
    assert here.post("/password", data=told | {"current": "wrong", "again": PASSWORD}).status_code == 403
    changed = here.post("/password", data=told | {"again": PASSWORD})
    assert (changed.status_code, changed.headers["location"]) == (303, "/people")
    answer = there.post("/login", data={"name": "Ann", "password": PASSWORD, "next": "/runs"})
    assert answer.headers["location"] == "/runs"
    token = service.make_token(ANN, "mine", "author", None)
    as_program = browser_of().post("/password", data=told, headers={"Authorization": f"Bearer {token}"})
    assert (as_program.status_code, "for people who have signed in" in as_program.text) == (403, True)

    assert here.post("/logout", data={"everywhere": "yes"}).headers["location"] == "/login"
    for browser in (here, there):
        secret = browser.cookies.get(Settings().session_cookie) or ""
        assert accounts.whose_cookie(service.repository, secret) is None
    assert service.log(CAT, 1)[0].act == "signed out everywhere"
    here.post("/login", data={"name": "Ann", "password": PASSWORD})
    here.post("/logout")
    here.post("/login", data={"name": "Nobody", "password": PASSWORD})
    assert [(one.act, one.subject, one.detail) for one in service.log(CAT, 3)] == [
        ("sign-in failed", "Nobody", "at testclient"), ("signed out", "Ann", ""), ("signed in", "Ann", ""),
    ]  # fmt: skip


def test_of_failed_sign_ins_the_latest_are_kept(service: AccountService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_accounts, "FAILURES_KEPT", 3)
    before = len(service.log(CAT, 1000))
    for i in range(6):
        service.repository.sign_in_failed(f"n{i}", "1.1.1.1")
    assert [one.subject for one in service.log(CAT, 3)] == ["n5", "n4", "n3"]
    assert len(service.log(CAT, 1000)) == before + 3
