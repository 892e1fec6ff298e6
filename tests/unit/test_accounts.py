"""Who is who, and what people and programs may do with their own accounts and others'."""

from __future__ import annotations

import io
import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from argon2 import PasswordHasher
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text, update

from dashboard.people import TOKENS, roles_html
from dashboard.server.sign_in import login_routes, logout_routes
from dashboard.web import PAGES, pages_of
from fsd_core import accounts
from fsd_core.accounts import KEY, identifier
from fsd_core.actions import people
from fsd_core.actions.action import Ask
from fsd_core.errors import (
    InvalidSetting,
    Malformed,
    Misconfigured,
    NotApplicable,
    OutOfRange,
    Refused,
    Taken,
    UnknownChoice,
    UnknownName,
)
from fsd_core.middleware import RequireSignIn
from fsd_core.roles import LOCAL, VISITOR, Person, require
from fsd_core.settings import Settings, get_settings
from fsd_core.storage import accounts as stored_accounts
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import ApiTokenRow, SignInRow

PASSWORD = "correct horse battery"


def scope(client: str = "127.0.0.1", **headers: str) -> Any:
    named = [(name.replace("_", "-").encode(), value.encode("latin-1")) for name, value in headers.items()]
    return {"type": "http", "headers": named, "client": (client, 5000)}


@pytest.fixture(autouse=True)
def quick_hashes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What a hash costs is what argon2 recommends, and not what is tested here."""
    assert accounts.HASHER.memory_cost >= 1 << 16
    monkeypatch.setattr(accounts, "HASHER", PasswordHasher(time_cost=1, memory_cost=64, parallelism=1))
    accounts._nobodys.cache_clear()
    yield
    accounts._nobodys.cache_clear()


@pytest.fixture
def ann(repository: Repository) -> str:
    accounts.add_user(repository, "Ann", "author", PASSWORD)
    return "Ann"


def test_a_password_is_kept_as_a_hash_and_opens_a_session(repository: Repository, ann: str) -> None:
    secret = accounts.sign_in(repository, ann, PASSWORD, "127.0.0.1")
    assert accounts.whose_cookie(repository, secret) == Person("Ann", "author")
    with repository._database.session(readonly=True) as session:
        stored = " ".join(
            str(row) for table in ("users", "sign_ins") for row in session.execute(text(f"SELECT * FROM {table}"))
        )
    assert "$argon2id$" in stored
    assert PASSWORD not in stored
    assert secret not in stored
    repository.sign_out(accounts.digest(secret))
    assert accounts.whose_cookie(repository, secret) is None


def test_a_wrong_name_and_a_wrong_password_are_told_alike(repository: Repository, ann: str) -> None:
    for name, password in ((ann, "wrong"), ("Nobody", PASSWORD), ("", ""), (ann, "")):
        with pytest.raises(Refused):
            accounts.sign_in(repository, name, password, "127.0.0.1")


def wrong(repository: Repository, name: str, address: str, told: str = "is wrong") -> None:
    with pytest.raises(Refused, match=told):
        accounts.sign_in(repository, name, "wrong", address)


@pytest.mark.parametrize("name", ["Ann", "Nobody"])
def test_who_guesses_wrong_waits_longer_and_longer(
    repository: Repository, ann: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A name that does not exist is told the same, and nothing is judged meanwhile: a hash would take its time."""
    clock = datetime.now(UTC)
    monkeypatch.setattr(stored_accounts, "now", lambda: clock)
    for _ in range(5):
        wrong(repository, name, "10.0.0.1")
    for minutes in (1, 2, 4, 8, 16, 32, 60, 60):
        with monkeypatch.context() as without:
            without.setattr(accounts, "HASHER", None)
            wrong(repository, name, "10.0.0.1", rf"Too many wrong passwords: try again in {minutes} min\.")
        clock += timedelta(minutes=minutes)
        wrong(repository, name, "10.0.0.1")
    clock += timedelta(hours=2, seconds=1)
    for _ in range(5):  # all is forgotten
        wrong(repository, name, "10.0.0.1")


def test_guesses_keep_nobody_else_out(repository: Repository, ann: str) -> None:
    session = accounts.sign_in(repository, ann, PASSWORD, "10.0.0.2")
    for _ in range(5):
        wrong(repository, ann, "10.0.0.1")
    wrong(repository, ann, "10.0.0.1", "Too many")
    assert accounts.whose_cookie(repository, session) == Person("Ann", "author")
    for _ in range(4):
        wrong(repository, ann, "10.0.0.2")
    accounts.sign_in(repository, ann, PASSWORD, "10.0.0.2")  # which forgives the four
    for _ in range(5):
        wrong(repository, ann, "10.0.0.2")
    wrong(repository, ann, "10.0.0.2", "Too many")


def test_parallel_guesses_are_counted_before_they_are_judged(repository: Repository, ann: str) -> None:
    def guess(number: int) -> str:
        with pytest.raises(Refused) as caught:
            accounts.sign_in(repository, ann, f"guess {number}", "10.0.0.1")
        return str(caught.value)

    with ThreadPoolExecutor(20) as pool:
        told = list(pool.map(guess, range(60)))
    assert sum("is wrong" in sentence for sentence in told) == 5


def test_sessions_expire_and_end_with_the_account_or_its_password(repository: Repository, ann: str) -> None:
    first, second = (accounts.sign_in(repository, ann, PASSWORD, "127.0.0.1") for _ in range(2))
    with repository._database.session() as session:
        past = datetime.now(UTC) - timedelta(seconds=1)
        session.execute(update(SignInRow).where(SignInRow.digest == accounts.digest(first)).values(expires_at=past))
    assert accounts.whose_cookie(repository, first) is None
    repository.change_user(ann, by="Bob", role="admin")
    assert accounts.whose_cookie(repository, second) == Person("Ann", "admin")
    accounts.change_password(repository, ann, PASSWORD * 2)
    assert accounts.whose_cookie(repository, second) is None
    third = accounts.sign_in(repository, ann, PASSWORD * 2, "127.0.0.1")
    repository.remove_user(ann, "Bob")
    assert accounts.whose_cookie(repository, third) is None


@pytest.mark.parametrize(
    ("name", "role", "password", "told"),
    [
        ("Bob", "author", "short", "The password has 5 characters: expected 10 to 256"),
        ("Bob", "boss", PASSWORD, "The role 'boss' is not known: expected one of viewer"),
        (" ", "author", PASSWORD, "The name '' cannot be used"),
        ("B\nob", "author", PASSWORD, "cannot be used"),
        ("Ann", "author", PASSWORD, "There is a user 'Ann' already"),
    ],
)
def test_what_makes_no_account(
    repository: Repository, ann: str, name: str, role: str, password: str, told: str
) -> None:
    with pytest.raises(InvalidSetting, match=told):
        accounts.add_user(repository, name, role, password)
    assert [user.name for user in repository.users()] == ["Ann"]


def test_a_token_is_shown_once_and_revoked(repository: Repository) -> None:
    secret = accounts.add_token(repository, "ci", "author", "Ann")
    assert accounts.whose_token(repository, secret) == Person("Ann/ci", "author", owner="Ann")
    assert [(token.name, token.role, token.owner) for token in repository.tokens()] == [("ci", "author", "Ann")]
    with pytest.raises(Taken, match="token"):
        accounts.add_token(repository, "CI ", "viewer")
    repository.revoke_token("ci", "Bob")
    assert accounts.whose_token(repository, secret) is None
    with pytest.raises(UnknownName, match="token"):
        repository.revoke_token("ci", "Bob")


def test_a_token_is_worth_no_more_than_its_owner_and_its_time(
    repository: Repository, ann: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = datetime.now(UTC)
    monkeypatch.setattr(stored_accounts, "now", lambda: clock)
    secret = accounts.add_token(repository, "ci", "author", ann, days=1)
    assert repository.tokens()[0].used_at is None
    assert accounts.whose_token(repository, secret) == Person("Ann/ci", "author", owner=ann)
    assert repository.tokens()[0].used_at == clock
    first, clock = clock, clock + timedelta(seconds=59)
    accounts.whose_token(repository, secret)
    assert repository.tokens()[0].used_at == first
    repository.change_user(ann, by="Bob", role="viewer")
    assert accounts.whose_token(repository, secret) == Person("Ann/ci", "viewer", owner=ann)
    clock += timedelta(days=1)
    assert accounts.whose_token(repository, secret) is None
    with repository._database.session() as session:  # as tokens were before they had limits
        session.execute(update(ApiTokenRow).values(role="admin", owner="", expires_at=None))
    assert accounts.whose_token(repository, secret) == Person("local user/ci", "admin", owner="")
    with repository._database.session() as session:
        session.execute(update(ApiTokenRow).values(owner=ann))
    repository.remove_user(ann, "Bob")
    assert accounts.whose_token(repository, secret) is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"role": "boss"}, "The role 'boss' is not known"),
        ({"days": 0.0}, "more than 0"),
        ({"days": float("nan")}, "more than 0"),
        ({"name": "Ann/ci"}, "a slash stands in the names of programs"),
        ({"name": " Local User"}, "used by the program itself"),
    ],
)
def test_what_makes_no_token(repository: Repository, ann: str, arguments: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        accounts.add_token(repository, **{"name": "ci", "role": "author"} | arguments)
    assert repository.tokens() == []


def test_a_program_takes_nobodys_name(repository: Repository, ann: str) -> None:
    bob = Person("Bob", "author")
    view = repository.save_view("1" * 32, "runs", "Mine", "sort=accuracy", bob)
    program = accounts.whose_token(repository, accounts.add_token(repository, "Bob", "author", ann))
    assert program == Person("Ann/Bob", "author", owner="Ann")
    assert not view.may_change(program)
    with pytest.raises(Refused):
        repository.rename_view(view.id, "Taken", program)
    assert accounts.sign_in_elsewhere(repository, "Bob", "author")
    with pytest.raises(Malformed):
        accounts.add_user(repository, "Ann/Bob", "admin", PASSWORD)
    assert repository.shared_names() == [
        "The token 'Bob' is called like the person 'Bob', and is 'Ann/Bob' from now on. What it did before stands "
        "under the person's name: look through its saved views and proposals."
    ]


def test_behind_a_proxy_two_spellings_are_one_person(repository: Repository, tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, access="proxy", proxy_roles="Ann=reviewer,*=viewer")
    assert [settings.role_behind_proxy(name) for name in ("Ann", "ann", "\uff21NN", "bob")] == [
        "reviewer", "reviewer", "reviewer", "viewer",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="each once"):
        Settings(home=tmp_path, proxy_roles="ann=viewer,Ann=admin")
    view = repository.save_view("1" * 32, "runs", "Mine", "sort=accuracy", Person("Ann", "author"))
    assert repository.rename_view(view.id, "Ours", Person("ann", "author")).name == "Ours"


def test_the_log_of_accounts_has_all_that_happened(repository: Repository) -> None:
    accounts.add_user(repository, "Ann", "author", PASSWORD, by="Cat")
    accounts.sign_in(repository, "Ann", PASSWORD, "127.0.0.1")
    repository.change_user("Ann", by="Cat", role="admin")
    accounts.change_password(repository, "Ann", PASSWORD * 2, by="Ann")
    accounts.add_token(repository, "ci", "viewer", "Ann")
    repository.revoke_token("ci", "Cat")
    accounts.add_token(repository, "cd", "author", "Ann")
    repository.remove_user("Ann", "Cat")
    told = [(event.who, event.act, event.subject, event.detail) for event in repository.account_log(100)]
    assert told[::-1] == [
        ("Cat", "person added", "Ann", "author"), ("Ann", "signed in", "Ann", ""),
        ("Cat", "role changed", "Ann", "author → admin"), ("Ann", "password changed", "Ann", ""),
        ("Ann", "token added", "ci", "viewer, of Ann"), ("Cat", "token revoked", "ci", "of Ann"),
        ("Ann", "token added", "cd", "author, of Ann"), ("Cat", "person removed", "Ann", ""),
        ("Cat", "token revoked", "cd", "of Ann"),
    ]  # fmt: skip
    assert PASSWORD not in str(told)


def test_each_mode_tells_whose_a_request_is(repository: Repository, ann: str, tmp_path: Path) -> None:
    cookie = accounts.sign_in(repository, ann, PASSWORD, "127.0.0.1")
    token = accounts.add_token(repository, "ci", "viewer")
    bearer, signed_in = f"Bearer {token}", f"other=1; {Settings(home=tmp_path).session_cookie}={cookie}"

    nobody_signs_in = accounts.identifier(Settings(home=tmp_path), repository)
    assert nobody_signs_in(scope()) == LOCAL

    password = accounts.identifier(Settings(home=tmp_path, access="password"), repository)
    assert password(scope()) is None
    assert password(scope(cookie=signed_in)) == Person("Ann", "author")
    assert password(scope(authorization=bearer)) == Person("local user/ci", "viewer", owner="local user")
    void = f"{Settings(home=tmp_path).session_cookie}=nothing"
    assert password(scope(authorization=f"Basic {token}", cookie=void)) is None
    assert password(scope(x_forwarded_user="Ann")) is None

    settings = Settings(
        home=tmp_path, access="proxy", proxy_header="X-User", proxy_addresses="10.0.0.7, 10.0.0.8",
        proxy_roles="ann=admin, *=viewer",
    )  # fmt: skip
    proxy = accounts.identifier(settings, repository)
    assert proxy(scope("10.0.0.8", x_user="ann")) == Person("ann", "admin")
    assert proxy(scope("10.0.0.7", x_user="bob")) == Person("bob", "viewer")
    assert proxy(scope("10.0.0.9", x_user="ann")) is None  # whoever goes around the proxy
    assert proxy(scope("10.0.0.7")) is None
    assert proxy(scope("10.0.0.7", cookie=signed_in)) is None
    twice = scope("10.0.0.7", x_user="ann")
    twice["headers"].append((b"x-user", b"bob"))
    assert proxy(twice) is None
    assert proxy(scope("10.0.0.9", authorization=bearer)) == Person("local user/ci", "viewer", owner="local user")


def test_roles_include_those_below(tmp_path: Path) -> None:
    require(Person("Cat", "admin"), "author", "This")
    with pytest.raises(Refused, match="reviewer"):
        require(Person("Dan", "author"), "reviewer", "This")
    with pytest.raises(ValueError, match="The roles 'ann=boss' cannot be read: expected names, each once"):
        Settings(home=tmp_path, proxy_roles="ann=boss")


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.4"])
def test_an_open_port_without_access_is_refused(tmp_path: Path, host: str) -> None:
    with pytest.raises(Misconfigured):
        Settings(home=tmp_path, host=host).check_access()
    for named in ({"access": "password"}, {"access": "proxy"}, {"unprotected": True}):
        Settings(home=tmp_path, host=host, **named).check_access()
    Settings(home=tmp_path).check_access()


def test_people_and_tokens_from_the_command_line(call: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\nshort\n{PASSWORD}?\n"))
    assert call("users", "list")[2].startswith("Nobody may sign in yet")
    assert call("users", "add", "Ann", "--role", "boss")[2].startswith("error: The role 'boss' is not known")
    assert call("users", "add", "Ann", "--role", "author")[1] == "Ann may sign in as author.\n"
    assert call("users", "add", "Bob")[2].startswith("error: The password has 5 characters")
    assert call("users", "role", "Ann", "admin")[1] == "Ann is admin now.\n"
    assert call("users", "password", "Ann")[0] == 0
    assert call("users", "list")[1].splitlines()[1].split()[:2] == ["Ann", "admin"]
    listed = json.loads(call("users", "list", "--json")[1])
    assert {name: value for name, value in listed.items() if name != "created_at"} == {
        "name": "Ann",
        "role": "admin",
        "signed_in_at": None,
        "disabled": False,
        "one_time": False,
    }
    assert datetime.fromisoformat(listed["created_at"]).tzinfo
    assert call("users", "disable", "Ann")[1] == "Ann is disabled.\n"
    assert call("users", "enable", "Ann")[1] == "Ann may sign in again.\n"
    assert len(call("users", "one-time", "Ann")[1].strip()) >= accounts.SHORTEST_PASSWORD
    assert call("users", "log", "--limit", "1")[1].split()[-5:] == ["local", "user", "one-time", "password", "Ann"]
    for limit in ("0", "10001"):
        status, _, told = call("users", "log", "--limit", limit)
        assert (status, "Invalid value for '--limit'" in told) == (2, True)
    assert call("users", "remove", "Ann")[0] == 0
    assert call("users", "remove", "Ann")[2].startswith("error: There is no user 'Ann'")
    status, secret, _ = call("tokens", "add", "ci")
    assert (status, secret[:4]) == (0, "fsd_")
    assert call("tokens", "list")[1].splitlines()[1].split()[:2] == ["ci", "viewer"]
    written = call("tokens", "list", "--json")[1]
    assert json.loads(written).keys() == {"name", "role", "owner", "created_at", "expires_at", "used_at"}
    assert accounts.digest(secret.strip()) not in written
    assert call("tokens", "revoke", "ci")[0] == 0
    assert call("tokens", "list")[2] == "There are no tokens.\n"


@pytest.mark.parametrize("odd", [f"{PASSWORD}\0", f"\udcff\udcfe{PASSWORD}"])
def test_a_password_that_no_form_can_send_is_refused(call: Any, monkeypatch: pytest.MonkeyPatch, odd: str) -> None:
    """Python reads bytes of a pipe that are not UTF-8 as halves of characters."""
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{odd}\n"))
    status, _, told = call("users", "add", "Ann")
    assert (status, told.startswith("error: The password holds")) == (2, True)


def test_on_a_terminal_a_password_is_typed_twice_and_not_echoed(tmp_path: Path, repository: Repository) -> None:
    main, terminal = pty.openpty()
    command = [sys.executable, "-m", "fsd_core", "users", "add", "Ann"]
    environment = os.environ | {"FSD_HOME": str(get_settings().home)}
    with subprocess.Popen(command, stdin=terminal, stdout=terminal, stderr=terminal, env=environment) as process:
        os.close(terminal)
        shown = b""
        for question in (b"Password: ", b"Repeat for confirmation: "):
            while question not in shown:
                shown += os.read(main, 1000)
            os.write(main, f"{PASSWORD}\n".encode())
        while b"Ann may sign in as viewer." not in shown:
            shown += os.read(main, 1000)
        assert process.wait() == 0
    os.close(main)
    assert PASSWORD.encode() not in shown
    assert sign_in(repository, "Ann")


def test_a_void_token_is_nobody_even_where_others_are_let_in(repository: Repository, ann: str, tmp_path: Path) -> None:
    cookie = accounts.sign_in(repository, ann, PASSWORD, "127.0.0.1")
    open_to_all = accounts.identifier(Settings(home=tmp_path, access="password", demo=True), repository)
    assert open_to_all(scope()) == VISITOR
    for more in ({}, {"cookie": f"{Settings(home=tmp_path).session_cookie}={cookie}"}):
        assert open_to_all(scope(authorization="Bearer fsd_revoked", **more)) is None
    assert open_to_all(scope(authorization="Bearer hf_of_a_hub")) == VISITOR  # a token of others says nothing here


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"proxy_addresses": "proxy.example"}, "The proxy's address 'proxy.example' is none"),
        ({"proxy_addresses": "10.0.0.7, 10.0.0.0/8"}, "The proxy's address '10.0.0.0/8' is none"),
        ({"proxy_header": "Cookie"}, "The header Cookie is of every request"),
        ({"proxy_header": "x-forwarded-for"}, "The header x-forwarded-for is of every request"),
        ({"access": "proxy", "proxy_addresses": " , "}, "names no proxy, so nobody could sign in"),
    ],
)
def test_what_is_said_of_a_proxy_is_checked_at_the_start(tmp_path: Path, values: dict[str, Any], told: str) -> None:
    with pytest.raises((InvalidSetting, ValueError), match=told):
        Settings(home=tmp_path, **values).check_access()


def test_an_address_of_a_proxy_is_one_however_it_is_written(tmp_path: Path) -> None:
    assert Settings(home=tmp_path, proxy_addresses="2001:0DB8:0::1").proxies == {"2001:db8::1"}


By = Callable[[Person], Ask]
CAT, ANN, EVE = Person("Cat", "admin"), Person("Ann", "author"), Person("Eve", "viewer")
NIGHTLY = Person("nightly", "admin", owner="Cat")


@pytest.fixture
def team(repository: Repository) -> Repository:
    for person in (CAT, ANN, EVE):
        accounts.add_user(repository, person.name, person.role, PASSWORD)
    return repository


@pytest.fixture
def by(team: Repository) -> By:
    return partial(Ask, Settings(access="password"), repository=team)


def sign_in(team: Repository, name: str, password: str = PASSWORD) -> str:
    return accounts.sign_in(team, name, password, "127.0.0.1")


def test_an_admin_adds_changes_disables_and_enables(team: Repository, by: By) -> None:
    password = people.add_person(by(CAT), "Dan", "viewer")
    assert len(password) >= accounts.SHORTEST_PASSWORD
    people.change_role(by(CAT), "Dan", "reviewer")
    session = sign_in(team, "Dan", password)
    token = people.make_token(by(Person("Dan", "reviewer")), "dans", "author", days=1)
    people.disable_person(by(CAT), "Dan")
    assert accounts.whose_cookie(team, session) is None
    assert accounts.whose_token(team, token) is None
    with pytest.raises(Refused):
        sign_in(team, "Dan", "wrong password")  # which is all that a stranger learns
    new = people.give_one_time_password(by(CAT), "Dan")
    with pytest.raises(Refused):
        sign_in(team, "Dan", new)
    people.enable_person(by(CAT), "Dan")
    assert accounts.whose_cookie(team, sign_in(team, "Dan", new)) == Person(
        "Dan", "reviewer", must_choose_password=True
    )
    assert accounts.whose_token(team, token) == Person("Dan/dans", "author", owner="Dan")
    dan = next(one for one in people.list_people(by(CAT)) if one.name == "Dan")
    assert (dan.disabled, dan.one_time, dan.signed_in_at is None) == (False, True, False)
    acts = [event.act for event in reversed(people.account_log(by(CAT), 50)) if "Dan" in (event.who, event.subject)]
    assert acts == [
        "person added", "role changed", "signed in", "token added", "person disabled", "sign-in failed",
        "one-time password", "person enabled", "signed in",
    ]  # fmt: skip


def test_a_one_time_password_is_good_for_one_sign_in_in_its_time(
    team: Repository, by: By, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = sign_in(team, "Ann")
    password = people.give_one_time_password(by(CAT), "Ann")
    assert accounts.whose_cookie(team, session) is None
    with pytest.raises(Refused):
        sign_in(team, "Ann")
    cookie = sign_in(team, "Ann", password)
    with pytest.raises(Refused):
        sign_in(team, "Ann", password)
    other = "another horse battery"
    accounts.change_own_password(team, "Ann", password, other, "127.0.0.1", cookie)
    assert accounts.whose_cookie(team, cookie) == ANN
    sign_in(team, "Ann", other)
    late = people.give_one_time_password(by(CAT), "Ann")
    clock = datetime.now(UTC) + accounts.ONE_TIME + timedelta(seconds=1)
    monkeypatch.setattr(stored_accounts, "now", lambda: clock)
    with pytest.raises(Refused):
        sign_in(team, "Ann", late)


def test_ones_own_password_takes_the_old_one_and_ends_other_sessions(team: Repository) -> None:
    change, other = accounts.change_own_password, "another horse battery"
    here, there = sign_in(team, "Ann"), sign_in(team, "Ann")
    for _ in range(4):
        with pytest.raises(Refused):
            change(team, "Ann", "wrong", other, "127.0.0.1", here)
    with pytest.raises(OutOfRange):
        change(team, "Ann", PASSWORD, "short", "127.0.0.1", here)
    change(team, "Ann", PASSWORD, other, "127.0.0.1", here)
    assert accounts.whose_cookie(team, here) == ANN
    assert accounts.whose_cookie(team, there) is None
    for _ in range(5):
        with pytest.raises(Refused):
            change(team, "Ann", "wrong", other, "127.0.0.1", here)
    with pytest.raises(Refused):
        change(team, "Ann", other, PASSWORD, "127.0.0.1", here)


def test_everybody_has_their_own_tokens_and_sees_their_own_log(by: By) -> None:
    people.make_token(by(ANN), "mine", "author")
    people.make_token(by(CAT), "deploy", "admin", LOCAL.name, days=90)
    assert {token.name: token.owner for token in people.list_tokens(by(CAT))} == {"deploy": "Cat", "mine": "Ann"}
    assert [token.name for token in people.list_tokens(by(ANN))] == ["mine"]
    assert {event.who for event in people.account_log(by(ANN), 50)} == {"Ann", LOCAL.name}
    with pytest.raises(Refused):
        people.make_token(by(ANN), "more", "reviewer")
    with pytest.raises(UnknownChoice, match="deploy"):
        people.revoke_token(by(ANN), "deploy")
    people.revoke_token(by(CAT), "mine")
    assert people.list_tokens(by(ANN)) == []
    (latest,) = people.account_log(by(CAT), 1)
    assert (latest.act, latest.detail) == ("token revoked", "of Ann")


def unasked() -> str:
    pytest.fail("A password is asked for that is not needed.")


ACTS: list[Callable[[By, Person], Any]] = [
    lambda by, who: people.list_people(by(who)),
    lambda by, who: people.add_person(by(who), "Dan", "viewer"),
    lambda by, who: people.give_one_time_password(by(who), "Eve"),
    lambda by, who: people.change_role(by(who), "Eve", "admin"),
    lambda by, who: people.add_person_with_password(by(who), "Dan", unasked),
    lambda by, who: people.change_password(by(who), "Eve", unasked),
    lambda by, who: people.disable_person(by(who), "Eve"),
    lambda by, who: people.remove_person(by(who), "Eve"),
    lambda by, who: people.list_tokens(by(who)),
    lambda by, who: people.account_log(by(who), 5),
    lambda by, who: people.make_token(by(who), "mine", "viewer", days=1),
    lambda by, who: people.revoke_token(by(who), "ci"),
]


def test_programs_strangers_and_others_are_refused(team: Repository, by: By) -> None:
    accounts.add_token(team, "ci", "viewer", "Cat")
    before = repr((people.account_log(by(CAT), 50), people.list_people(by(CAT)), people.list_tokens(by(CAT))))
    for act in ACTS:
        with pytest.raises(Refused, match="nightly"):
            act(by, NIGHTLY)
        for unknown in (VISITOR, LOCAL):
            with pytest.raises(Refused, match="sign in first"):
                act(by, unknown)
    for act in ACTS[:8]:
        with pytest.raises(Refused, match="author"):
            act(by, ANN)
    for own in (
        lambda: people.change_role(by(CAT), "cat", "viewer"),
        lambda: people.disable_person(by(CAT), "CAT"),
        lambda: people.give_one_time_password(by(CAT), "Cat"),
        lambda: people.change_password(by(CAT), "Cat", unasked),
        lambda: people.remove_person(by(CAT), "cAt"),
    ):
        with pytest.raises(Refused):
            own()
    with pytest.raises(UnknownName):
        people.disable_person(by(CAT), "Nobody")
    assert repr((people.account_log(by(CAT), 50), people.list_people(by(CAT)), people.list_tokens(by(CAT)))) == before


@pytest.mark.parametrize("access", ["none", "password", "huggingface", "proxy"])
def test_the_operator_does_all_of_it(team: Repository, access: str) -> None:
    ask = Ask(Settings.model_validate({"access": access}), repository=team, operator=True)
    assert people.add_person_with_password(ask, "Dan", lambda: PASSWORD) == "Dan may sign in as viewer."
    assert sign_in(team, "Dan")
    people.change_role(ask, "Dan", "reviewer")
    people.change_password(ask, "Dan", lambda: PASSWORD * 2)
    assert sign_in(team, "Dan", PASSWORD * 2)
    assert sign_in(team, "Dan", people.give_one_time_password(ask, "Dan"))
    people.make_token(ask, "dans", "reviewer", "Dan")
    people.disable_person(ask, "Dan")
    people.enable_person(ask, "Dan")
    assert [(one.name, one.role) for one in people.list_people(ask)][2] == ("Dan", "reviewer")
    assert [token.owner for token in people.list_tokens(ask)] == ["Dan"]
    people.revoke_token(ask, "dans")
    people.remove_person(ask, "Dan")
    assert {event.who for event in people.account_log(ask)} == {LOCAL.name, "Dan"}


def test_where_others_keep_the_accounts_that_is_said(repository: Repository) -> None:
    elsewhere = Settings(access="huggingface"), Settings(access="proxy", proxy_roles="ann=admin,*=viewer")
    accounts.sign_in_elsewhere(repository, "Eve", "viewer")
    for settings, source in zip(elsewhere, ("FSD_HF_ROLES", "FSD_PROXY_ROLES"), strict=True):
        by = partial(Ask, settings, repository=repository)
        for act in ACTS[1:6]:
            with pytest.raises(NotApplicable, match=source):
                act(by, CAT)
        people.make_token(by(CAT), settings.access, "viewer")
        assert "People" in [page.title for page in pages_of(settings)]
    hub, proxy = (partial(Ask, settings, repository=repository) for settings in elsewhere)
    people.disable_person(hub(CAT), "Eve")
    with pytest.raises(Refused):
        accounts.sign_in_elsewhere(repository, "Eve", "viewer")
    with pytest.raises(NotApplicable):
        people.enable_person(proxy(CAT), "Eve")
    html = roles_html(elsewhere[1])
    assert "X-Forwarded-User" in html
    assert "ann" in html
    assert "Eve" not in html
    assert "No tokens yet" in TOKENS.html([])
    assert {page.title for page in PAGES} - {page.title for page in pages_of(Settings())} == {"People"}


def test_behind_a_proxy_a_token_is_worth_no_more_than_its_owner_there(repository: Repository) -> None:
    secret = accounts.add_token(repository, "ci", "admin", "ann")
    settings = Settings(access="proxy", proxy_roles="ann=author,*=viewer")
    scope = {"type": "http", "headers": [(b"authorization", f"Bearer {secret}".encode())], "client": ("1.1.1.1", 1)}
    assert identifier(settings, repository)(scope) == Person("ann/ci", "author", owner="ann")


@pytest.fixture
def browser_of(team: Repository) -> Callable[[], TestClient]:
    """A browser that follows no redirects, at the pages for passwords."""
    app = FastAPI()
    identify = identifier(Settings(access="password"), team)
    app.add_middleware(RequireSignIn, identify=identify, key=KEY, login="/login")
    app.include_router(login_routes(team, Settings().session_cookie))
    app.include_router(logout_routes(team, "/login", Settings().session_cookie))
    return lambda: TestClient(app, follow_redirects=False)


def test_the_pages_for_passwords(team: Repository, by: By, browser_of: Callable[[], TestClient]) -> None:
    once, here, there = people.give_one_time_password(by(CAT), "Ann"), browser_of(), browser_of()
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
    token = people.make_token(by(ANN), "mine", "author")
    as_program = browser_of().post("/password", data=told, headers={"Authorization": f"Bearer {token}"})
    assert (as_program.status_code, "for people who have signed in" in as_program.text) == (403, True)

    left = here.post("/logout", data={"everywhere": "yes"}).headers
    assert (left["location"], left["clear-site-data"]) == ("/login", '"cache"')  # what "Back" would show
    for browser in (here, there):
        secret = browser.cookies.get(Settings().session_cookie) or ""
        assert accounts.whose_cookie(team, secret) is None
    assert people.account_log(by(CAT), 1)[0].act == "signed out everywhere"
    here.post("/login", data={"name": "Ann", "password": PASSWORD})
    here.post("/logout")
    here.post("/login", data={"name": "Nobody", "password": PASSWORD})
    assert [(one.act, one.subject, one.detail) for one in people.account_log(by(CAT), 3)] == [
        ("sign-in failed", "Nobody", "at testclient"), ("signed out", "Ann", ""), ("signed in", "Ann", ""),
    ]  # fmt: skip


def test_of_failed_sign_ins_the_latest_are_kept(team: Repository, by: By, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_accounts, "FAILURES_KEPT", 3)
    before = len(people.account_log(by(CAT), 1000))
    for i in range(6):
        team.sign_in_failed(f"n{i}", "1.1.1.1")
    assert [one.subject for one in people.account_log(by(CAT), 3)] == ["n5", "n4", "n3"]
    assert len(people.account_log(by(CAT), 1000)) == before + 3
