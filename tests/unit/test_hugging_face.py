"""Roles of people whom Hugging Face names, and the Space that a process runs in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fsd_core import accounts
from fsd_core.accounts import Profile, role_of
from fsd_core.errors import Malformed, Misconfigured, Refused, Taken
from fsd_core.roles import Person, require
from fsd_core.settings import OAuthApp, Settings, Space, here
from fsd_core.storage.repository import Repository

LAB = Space("Ann/lab", "Ann", "ann-lab.hf.space")
TEAMS = Space("team/lab", "team", "team-lab.hf.space")
ROLES = "bob=reviewer, org:team=author, org:team/admin=admin, org:banned=viewer, *=viewer"


@pytest.mark.parametrize(
    ("name", "organisations", "roles", "space", "role"),
    [
        ("bob", {}, ROLES, None, "reviewer"),
        ("BOB", {"team": "admin"}, ROLES, None, "reviewer"),  # a name goes before organisations
        ("cat", {"Team": "write"}, ROLES, None, "author"),
        ("cat", {"team": ""}, ROLES, None, "author"),  # the role in it is not told
        ("cat", {"team": "admin", "banned": "admin"}, ROLES, None, "admin"),  # the highest
        ("cat", {"others": "admin"}, ROLES, None, "viewer"),
        ("cat", {}, "", None, "viewer"),
        ("cat", {}, "*=author", None, "author"),
        ("team", {}, ROLES, None, "viewer"),  # a person who is called as an organisation is
        ("ann", {}, "*=viewer", LAB, "admin"),
        ("ann", {}, "ann=viewer", LAB, "viewer"),  # even their own Space
        ("cat", {"ann": "admin"}, "*=viewer", LAB, "admin"),
        ("cat", {"team": "admin"}, "*=viewer", TEAMS, "admin"),
        ("cat", {"team": "write"}, "*=viewer", TEAMS, "viewer"),
        ("cat", {"team": ""}, "*=viewer", TEAMS, "viewer"),
    ],
)
def test_roles_by_name_organisation_and_space(
    name: str, organisations: dict[str, str], roles: str, space: Space | None, role: str
) -> None:
    assert role_of(Profile(name, organisations), roles, space) == role


@pytest.mark.parametrize("door", ["securityRestrictions", "pendingSSO", "missingMFA"])
def test_an_organisation_whose_door_is_not_passed_does_not_count(door: str) -> None:
    orgs = [
        {"preferred_username": "team", "roleInOrg": "admin", door: ["sso"]},
        {"preferred_username": "other"},
        "x",
        {"preferred_username": "team/admin"},
    ]
    assert Profile.read({"preferred_username": "cat", "orgs": orgs}) == Profile("cat", {"other": ""})


@pytest.mark.parametrize(
    "told",
    [
        {},
        {"preferred_username": ""},
        {"preferred_username": 3},
        {"name": "Ann"},
        *({"preferred_username": x} for x in ("org:team", "*", "a/b", "a b")),
    ],
)
def test_an_answer_that_names_nobody_is_refused(told: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="no preferred_username"):
        Profile.read(told)


@pytest.mark.parametrize("roles", ["ann=boss", "=admin", "org:=admin", "org:a/boss=admin", "ann/admin=admin", "ann"])
def test_roles_that_cannot_be_read_are_told(tmp_path: Path, roles: str) -> None:
    with pytest.raises(ValueError, match="cannot be read: expected"):
        Settings(home=tmp_path, hf_roles=roles)


def test_what_the_environment_lacks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OAUTH_CLIENT_ID", "OAUTH_CLIENT_SECRET", "OPENID_PROVIDER_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OAUTH_CLIENT_ID", "x")
    settings = Settings(home=tmp_path, access="huggingface", host="0.0.0.0")
    with pytest.raises(Misconfigured):
        settings.check_access()
    monkeypatch.setenv("OAUTH_CLIENT_SECRET", "y")
    monkeypatch.setenv("OPENID_PROVIDER_URL", "https://huggingface.co/")
    settings.check_access()
    assert OAuthApp.of() == OAuthApp("x", "y", "https://huggingface.co", "openid profile")


def test_where_a_space_is() -> None:
    assert here({}) is None
    assert here({"SPACE_ID": "Team/My_Lab.2"}) == Space("Team/My_Lab.2", "Team", "team-my-lab-2.hf.space")
    known = {"SPACE_ID": "Team/lab", "SPACE_HOST": "lab.example.org, team-lab.hf.space", "SPACE_AUTHOR_NAME": "team"}
    assert here(known) == Space("Team/lab", "team", "lab.example.org")
    assert LAB.url == "https://ann-lab.hf.space"


def test_somebody_of_hugging_face_has_no_password_here(repository: Repository) -> None:
    secret = accounts.sign_in_elsewhere(repository, "ann", "author")
    assert accounts.whose_cookie(repository, secret) == Person("ann", "author")
    for password in ("", "correct horse battery"):
        with pytest.raises(Refused):
            accounts.sign_in(repository, "ann", password, "127.0.0.1")
    accounts.sign_in_elsewhere(repository, "ann", "viewer")
    assert accounts.whose_cookie(repository, secret) == Person("ann", "viewer")
    accounts.add_user(repository, "bob", "admin", "correct horse battery")
    with pytest.raises(Taken, match="bob"):
        accounts.sign_in_elsewhere(repository, "bob", "viewer")
    for name in ("", "x" * 101, "a\nb"):
        with pytest.raises(Malformed):
            accounts.sign_in_elsewhere(repository, name, "viewer")


def test_who_has_not_signed_in_is_told_to() -> None:
    with pytest.raises(Refused, match="author"):
        require(Person("visitor", "viewer", known=False), "author", "This")
