"""What the application shows to whom nobody knows yet: its icon, what a link to it shows, and where names lead."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from PIL import Image
from sqlalchemy import text

from dashboard.ui.view import person_mark
from dashboard.web import build_app, pages_of
from fsd_core.roles import LOCAL
from fsd_core.settings import Settings
from fsd_core.storage.repository import Repository
from tests.tools.built import built

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
        assert re.findall("<title>(.*?)</title>", html) == [f"{page.title} – FSD Lab"]
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
def test_the_playground_has_its_name(served: Served, root: str) -> None:
    client = served(root_path=root)
    for path in ("/playground", "/playground/"):
        for headers in (PERSON, {}):  # a person and a program
            answer = client.get(f"{path}?prompt=a%20b", headers=headers)
            assert (answer.status_code, answer.headers["location"]) == (308, f"{root}/?prompt=a%20b")
    assert client.head("/playground").status_code == 308
    assert client.post("/playground").status_code == 404
    assert client.get("/playgrounds", headers=PERSON).status_code == 404


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
