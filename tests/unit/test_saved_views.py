"""Saved views: one of a name on a page, changed by those who saved them, whole after an export and an import."""

from __future__ import annotations

from pathlib import Path

import pytest

from fsd_core.errors import DataDamaged, InvalidSetting, Refused, Taken, UnknownName
from fsd_core.roles import LOCAL, NOBODY, Person
from fsd_core.storage.catalogue import LONGEST_VIEW_QUERY
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools.plausible import new_repository

ANN, BOB, CAT = Person("Ann", "author"), Person("Bob", "author"), Person("Cat", "admin")
ID, OTHER = "ab" * 16, "cd" * 16
Home = tuple[Repository, str]


def home(folder: Path) -> Home:
    folder.mkdir()
    return new_repository(folder), f"sqlite:///{folder / 'fsd.db'}"


@pytest.fixture
def stored(tmp_path: Path) -> Repository:
    return home(tmp_path / "home")[0]


def names(repository: Repository, page: str | None = None) -> list[tuple[str, str]]:
    return [(view.name, view.query) for view in repository.saved_views(page)]


def test_a_view_is_kept_once_under_one_name_of_its_page(stored: Repository) -> None:
    for _ in range(2):  # the same act is sent twice
        view = stored.save_view(ID, "runs", " Nightly ", "?sort=accuracy&pair=bundled", ANN)
    assert (view.id, view.name, view.who) == (ID, "Nightly", "Ann")
    assert view.address == "runs?sort=accuracy&pair=bundled"
    replaced = stored.save_view(OTHER, "runs", "ｎｉｇｈｔＬＹ", "sort=oldest", ANN)
    assert (replaced.id, replaced.name, replaced.query) == (ID, "Nightly", "sort=oldest")
    assert replaced.at > view.at
    stored.save_view(OTHER, "compare", "nightly", "runs=a,b&baseline=a", BOB)
    assert names(stored) == [("nightly", "runs=a,b&baseline=a"), ("Nightly", "sort=oldest")]
    assert names(stored, "runs") == [("Nightly", "sort=oldest")]


def test_only_who_saved_a_view_and_admins_change_it(stored: Repository) -> None:
    stored.save_view(ID, "runs", "Nightly", "sort=accuracy", ANN)
    acts = (
        lambda who: stored.save_view(OTHER, "runs", "Nightly", "sort=oldest", who),
        lambda who: stored.rename_view(ID, "Mine", who),
        lambda who: stored.delete_view(ID, who),
    )
    for act in acts:
        for who in (BOB, NOBODY, Person("Ann", "viewer"), Person("Ann", "author", known=False)):
            with pytest.raises(Refused, match="Nightly"):
                act(who)
    assert names(stored) == [("Nightly", "sort=accuracy")]
    assert stored.save_view(OTHER, "runs", "Nightly", "sort=oldest", CAT).who == "Ann"
    assert stored.rename_view(ID, "Daily", LOCAL).name == "Daily"
    assert stored.rename_view(ID, "DAILY", ANN).name == "DAILY"
    stored.save_view(OTHER, "runs", "Weekly", "sort=newest", BOB)
    with pytest.raises(Taken, match="DAILY"):
        stored.rename_view(OTHER, "daily", BOB)
    stored.delete_view(ID, ANN)
    with pytest.raises(UnknownName, match="view"):
        stored.delete_view(ID, ANN)
    assert names(stored) == [("Weekly", "sort=newest")]


@pytest.mark.parametrize(
    ("page", "name", "query", "told"),
    [
        ("review", "x", "a=b", "The page 'review' has no saved views: expected runs or compare"),
        ("runs", "  ", "a=b", "The view needs a name"),
        ("runs", "x" * 81, "a=b", "expected 1 to 80 printable characters"),
        ("runs", "a\nb", "a=b", "expected 1 to 80 printable characters"),
        ("runs", "x", "", "There is nothing to keep yet"),
        ("runs", "x", "?sort=", "There is nothing to keep yet"),
        ("runs", "x", "sort", "The view's address cannot be read"),
        ("runs", "x", f"search={'y' * LONGEST_VIEW_QUERY}", "choose less, for 8,000 are kept"),
    ],
)
def test_what_is_no_view_is_refused(stored: Repository, page: str, name: str, query: str, told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        stored.save_view(ID, page, name, query, ANN)
    assert stored.saved_views() == []


def test_views_are_exported_and_imported(tmp_path: Path) -> None:
    (here, url), (there, other_url) = home(tmp_path / "here"), home(tmp_path / "there")
    here.save_view(ID, "runs", "Nightly", "sort=accuracy", ANN)
    here.save_view(OTHER, "runs", "Weekly", "sort=oldest", ANN)
    there.save_view("ef" * 16, "runs", "weekly", "pair=bundled", BOB)

    def move(file: str) -> None:
        export(url, tmp_path / file, tmp_path)
        database = open_database(other_url)
        import_file(database, tmp_path / file, tmp_path)
        database.close()

    move("first.zip")
    assert names(there) == [("Nightly", "sort=accuracy"), ("weekly", "pair=bundled")]
    here.rename_view(ID, "Daily", ANN)
    here.save_view(ID, "runs", "Daily", "sort=newest", ANN)
    move("second.zip")
    assert names(there) == [("Daily", "sort=newest"), ("weekly", "pair=bundled")]
    there.save_view(ID, "runs", "Daily", "sort=task", ANN)  # later than the file's
    move("third.zip")
    assert names(there)[0] == ("Daily", "sort=task")


def test_a_file_with_a_forged_view_is_refused(tmp_path: Path) -> None:
    (here, url), (there, other_url) = home(tmp_path / "here"), home(tmp_path / "there")
    here.save_view(ID, "runs", "Nightly", "sort=accuracy", ANN)
    with here._database.session() as session:
        session.connection().exec_driver_sql("UPDATE saved_views SET page = 'login'")
    export(url, tmp_path / "all.zip", tmp_path)
    database = open_database(other_url)
    with pytest.raises(DataDamaged, match="a value in it cannot be read"):
        import_file(database, tmp_path / "all.zip", tmp_path)
    database.close()
    assert there.saved_views() == []
