"""What a Space sets by itself, down to the roles of people whom Hugging Face names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from dashboard.playground.job_panels import MOST_WAITING, Visitors
from dashboard.web import visitor_sign_in_link
from fsd_core import accounts
from fsd_core.accounts import Profile, role_of
from fsd_core.config import DecodingConfig
from fsd_core.errors import Malformed, Misconfigured, Refused, Taken
from fsd_core.models.model_pairs import SMOLLM2
from fsd_core.roles import GUEST, LOCAL, VISITOR, Person, require
from fsd_core.settings import OAuthApp, Settings, Space, defaults, here
from fsd_core.storage.repository import Repository
from tests.tools.tracking_examples import playground_job

ROOT = Path(__file__).parents[2]
OAUTH = {"OAUTH_CLIENT_ID": "a", "OAUTH_CLIENT_SECRET": "b", "OPENID_PROVIDER_URL": "https://huggingface.co"}
NOWHERE = Path(__file__) / "data"  # below a file nobody makes one, whoever they are

# https://huggingface.co/docs/hub/spaces-config-reference, of what a Gradio Space may say
REFERENCE = {
    "title": str, "emoji": str, "colorFrom": str, "colorTo": str, "sdk": str, "sdk_version": str,
    "python_version": str, "suggested_hardware": str, "app_file": str, "base_path": str, "fullWidth": bool,
    "header": str, "short_description": str, "models": list, "datasets": list, "tags": list, "thumbnail": str,
    "pinned": bool, "hf_oauth": bool, "hf_oauth_scopes": list, "hf_oauth_expiration_minutes": int,
    "hf_oauth_authorized_org": (str, list), "disable_embedding": bool, "startup_duration_timeout": str,
    "custom_headers": dict, "preload_from_hub": list, "license": str,
}  # fmt: skip
COLOURS = {"red", "yellow", "green", "blue", "indigo", "purple", "pink", "gray"}


def test_the_front_matter_says_what_spaces_know() -> None:
    _, text, _ = (ROOT / "README.md").read_text(encoding="utf-8").split("---\n", 2)
    told = yaml.safe_load(text)
    assert {name: type(value) for name, value in told.items() if not isinstance(value, REFERENCE.get(name, ()))} == {}
    assert {told["colorFrom"], told["colorTo"]} <= COLOURS
    assert (told["sdk"], told["header"], told["hf_oauth"]) == ("gradio", "mini", True)
    assert (ROOT / told["app_file"]).is_file()
    assert len(told["short_description"]) <= 60
    assert re.fullmatch(r"\d+(m|h)", told["startup_duration_timeout"])
    requirements = (ROOT / "requirements.txt").read_text()
    assert re.search(rf"^gradio(\[.*\])?=={re.escape(told['sdk_version'])}$", requirements, re.M)
    assert told["models"] == [SMOLLM2.repo]
    for line in told["preload_from_hub"]:
        repo, files = line.split()
        assert repo == SMOLLM2.repo
        assert "model.safetensors" in files.split(",")


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"SPACES_ZERO_GPU": "true"}, {"FSD_DEMO": "true", "FSD_EXECUTOR": "in-process"}),
        ({"SPACES_ZERO_GPU": "True", "FSD_EXECUTOR": "worker"}, {"FSD_DEMO": "true"}),
        ({"SPACES_ZERO_GPU": "no"}, {"FSD_DEMO": "true"}),
        ({}, {"FSD_DEMO": "true"}),  # as a duplicate without secrets
        (OAUTH, {"FSD_DEMO": "true", "FSD_ACCESS": "huggingface"}),
        (OAUTH | {"OAUTH_CLIENT_SECRET": ""}, {"FSD_DEMO": "true"}),
        (OAUTH | {"FSD_ACCESS": "password"}, {}),
        ({"FSD_UNPROTECTED": "true"}, {}),
        ({"FSD_ACCESS": ""}, {"FSD_DEMO": "true"}),
    ],
)
def test_a_space_is_a_public_demo_unless_its_owner_says_who_may_come(
    environment: dict[str, str], expected: dict[str, str]
) -> None:
    assert defaults(environment, NOWHERE) == expected


def test_a_bucket_holds_the_home_or_copies_of_it(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    own = {"FSD_ACCESS": "password"}
    assert defaults(own, tmp_path) == {"FSD_HOME": str(tmp_path / "fsd-lab")}
    assert defaults(own, tmp_path, lambda folder: "it has no locks") == {"FSD_SNAPSHOTS": str(tmp_path / "fsd-lab")}
    assert "because it has no locks" in caplog.text
    for named in ("FSD_HOME", "FSD_SNAPSHOTS"):
        assert defaults(own | {named: "/elsewhere"}, tmp_path) == {}


def test_a_space_without_a_bucket_forgets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not Settings(home=tmp_path).is_ephemeral
    monkeypatch.setenv("SPACE_ID", "team/lab")
    assert Settings(home=tmp_path).is_ephemeral
    assert not Settings(home=Path("/data/fsd-lab")).is_ephemeral
    assert not Settings(home=tmp_path, snapshots=Path("/data/fsd-lab")).is_ephemeral


def test_in_a_demo_somebody_unknown_is_a_visitor(repository: Repository, tmp_path: Path) -> None:
    nobody = {"type": "http", "headers": []}
    assert accounts.identifier(Settings(home=tmp_path), repository)(nobody) == LOCAL
    for access in ("none", "password", "proxy", "huggingface"):
        settings = Settings.model_validate({"home": tmp_path, "access": access, "demo": True, "host": "0.0.0.0"})
        assert accounts.identifier(settings, repository)(nobody) == (GUEST if access == "none" else VISITOR)
        if access != "huggingface":
            settings.check_access()
    accounts.add_user(repository, "Ann", "admin", "correct horse battery")
    cookie = accounts.sign_in(repository, "Ann", "correct horse battery", "127.0.0.1")
    demo = Settings(home=tmp_path, access="password", demo=True)
    known = {"type": "http", "headers": [(b"cookie", f"{demo.session_cookie}={cookie}".encode())]}
    assert accounts.identifier(demo, repository)(known) == Person("Ann", "admin")
    assert 'href="/login?next=/runs"' in visitor_sign_in_link(demo, "/runs")
    for closed in (Settings(home=tmp_path, access="password"), Settings(home=tmp_path, demo=True)):
        assert visitor_sign_in_link(closed, "/runs") == ""


def test_visitors_are_held_to_limits_and_members_are_not(repository: Repository) -> None:
    visitors, one = Visitors(repository), [DecodingConfig(max_new_tokens=128)]
    long = [DecodingConfig(max_new_tokens=129)]

    def begin(person: Person, visit: str, pair: str, decodings: list[DecodingConfig]) -> str:
        jobs: list[str] = []
        visitors.begin(
            person, visit, pair, decodings, lambda: jobs.append(repository.enqueue(playground_job())) or jobs[0]
        )
        return jobs[0]

    for person in (VISITOR, GUEST, Person("eve", "viewer")):
        repository.request_cancel(begin(person, "a", "bundled", one * 2))
        with pytest.raises(Refused):
            begin(person, "a", "llama3.3-70b", one)
        with pytest.raises(Refused):
            begin(person, "a", "bundled", one * 3)
        with pytest.raises(Refused, match="128"):
            begin(person, "a", "bundled", one + long)
    member = Person("ann", "author")
    repository.request_cancel(begin(member, "a", "llama3.3-70b", long * 4))

    job = begin(VISITOR, "a", "bundled", one)
    with pytest.raises(Refused):
        begin(VISITOR, "a", "bundled", one)
    repository.request_cancel(begin(VISITOR, "b", "bundled", one))  # somebody else's visit
    repository.request_cancel(job)
    repository.request_cancel(begin(VISITOR, "a", "bundled", one))
    for _ in range(MOST_WAITING):
        repository.enqueue(playground_job())
    with pytest.raises(Refused):
        begin(VISITOR, "c", "bundled", one)
    begin(member, "c", "bundled", one)


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
