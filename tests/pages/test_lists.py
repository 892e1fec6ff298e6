"""Every list of the pages is one: a search, orders by headings, pages, and an address that has all of it."""

from __future__ import annotations

from typing import Any

import pytest

from dashboard.compare.compared_runs import compare
from fsd_core import accounts
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_plugins.reports.section import frozen_comparison
from tests.tools.plausible import add_finished, sweep
from tests.tools.shown_page import Application, ShownPage

ANN, CAT = Person("Ann", "author"), Person("Cat", "admin")
SEVERAL = 60
"""items, which are two pages of a list"""


@pytest.fixture
def use(repository: Repository) -> str:
    """The id of a use that was changed often."""
    service = ReviewService(repository)
    use = service.describe(ANN, "Sums", "", Requirements(margin=1))
    for n in range(SEVERAL):
        use = service.use(use.id)
        service.change_use(CAT, use.id, {"description": f"No. {n}"}, use.sequence, f"{n:032x}")
    return use.id


def reports(repository: Repository, *saved: tuple[str, str]) -> None:
    """Save reports, each of a title and whose it is."""
    runs = [run.id for run in repository.runs()]
    content = frozen_comparison(compare(repository, runs, None), "Any", "", [])
    for title, who in saved:
        id = f"{repository.count_reports():032d}"
        repository.add_report(id, content.model_copy(update={"title": title}), who)


def sorted_by(page: ShownPage) -> dict[str, Any]:
    """The headings that say that the list is sorted by them, with how it is."""
    return {
        one.text.split()[0]: one.attributes["aria-sort"] for one in page.elements("th") if "aria-sort" in one.attributes
    }


def sort(page: ShownPage, heading: str) -> None:
    """Click the button of a heading."""
    (button,) = (
        one for one in page.elements("button")
        if str(one.attributes.get("aria-label", "")).startswith(f"Sort: {heading}")
    )  # fmt: skip
    page.do(str(button.attributes["data-act"]), {"kind": "order", "id": button.attributes["data-id"]})


def test_settings_are_searched_and_sorted_and_the_address_says_so(
    application: Application, repository: Repository
) -> None:
    page = application.open("settings", ANN)
    labels = page.rows("Settings")
    assert len(labels) == 7
    assert sorted_by(page) == {"Measured": "descending"}
    sort(page, "Setting")
    ordered = [one.label for one in repository.settings(order_by="label", descending=False)]
    assert ordered == sorted(ordered)
    rows = page.rows("Settings")
    assert all(row.startswith(label) for row, label in zip(rows, ordered, strict=True))
    assert (sorted_by(page), page.address) == ({"Setting": "ascending"}, {"sort": "setting"})
    sort(page, "Setting")
    assert page.rows("Settings") == rows[::-1]
    assert (sorted_by(page), page.address) == ({"Setting": "descending"}, {"sort": "setting-reversed"})
    page.type("Search", "sd")
    found = page.rows("Settings")
    assert 0 < len(found) < 7
    again = application.open("settings?search=sd&sort=setting-reversed", ANN)
    assert (again.rows("Settings"), again.field("Search")) == (found, "sd")
    page.type("Search", "nothing is called so")
    assert "No setting matches" in page.text
    assert "settings" in page.links()


def test_reports_are_searched_and_sorted_and_come_in_pages(application: Application, repository: Repository) -> None:
    reports(repository, ("Apples", "Bob"), ("berries", "Ann"), *((f"Series {n:02}", "Cat") for n in range(SEVERAL)))
    page = application.open("reports", ANN)
    assert sorted_by(page) == {"Saved": "descending"}
    sort(page, "Report")
    assert [row.split()[0] for row in page.rows("Reports")[:3]] == ["Apples", "berries", "Series"]
    assert "1 to 50 of 62 reports" in page.text
    page.press("Next")
    assert "51 to 62 of 62 reports" in page.text
    sort(page, "By")
    assert "1 to 50 of 62 reports" in page.text
    assert page.rows("Reports")[0].startswith("berries")
    page.type("Search", "BERR ann")
    (row,) = page.rows("Reports")
    assert row.startswith("berries")
    assert page.address == {"search": "BERR ann", "sort": "by"}
    page.type("Search", "100%")
    assert "No report matches" in page.text
    assert application.open("reports?search=series+07", ANN).rows("Reports")[0].startswith("Series 07")


def test_people_are_searched_and_sorted_by_admins(application: Application, empty: Repository) -> None:
    for name, role in (("Cat", "admin"), ("ann", "author"), ("Bob", "viewer")):
        accounts.add_user(empty, name, role, "long enough a password")
    empty.set_disabled("Bob", True, "Cat")
    page = application.open("people", CAT)
    assert [row.split()[0] for row in page.rows("People")] == ["ann", "Bob", "Cat"]
    sort(page, "Role")
    assert [row.split()[0] for row in page.rows("People")] == ["Cat", "ann", "Bob"]
    assert (sorted_by(page), page.address) == ({"Role": "ascending"}, {"sort": "role"})
    page.type("Search", "disabled")
    (bob,) = page.rows("People")
    assert bob.startswith("Bob")
    page.type("Search", "enable")
    assert "No account matches" in page.text
    assert application.open("people?sort=role", ANN).rows("People") == []


def test_the_log_of_a_use_is_searched_and_sorted_and_comes_in_pages(
    application: Application, repository: Repository, use: str
) -> None:
    page = application.open(f"review?use={use}", ANN)
    decided = page.rows("What was decided")
    assert len(decided) == 50
    assert "Cat" in decided[0]
    assert f"1 to 50 of {SEVERAL + 1} events" in page.text
    page.press("Next")
    assert "Ann" in page.rows("What was decided")[-1]
    sort(page, "Who")
    assert "Ann" in page.rows("What was decided")[0]
    page.type("Search", "ann described")
    assert len(page.rows("What was decided")) == 1
    assert page.address == {"use": use, "search": "ann described", "sort": "who"}
    again = application.open(f"review?use={use}&search=ann+described&sort=who", ANN)
    assert again.rows("What was decided") == page.rows("What was decided")


@pytest.mark.parametrize("path", ["runs", "settings", "reports", "people"])
def test_an_order_that_is_not_offered_is_refused_and_in_an_address_the_usual_one(
    application: Application, repository: Repository, path: str
) -> None:
    accounts.add_user(repository, "Cat", "admin", "long enough a password")
    reports(repository, ("Mine", "Ann"))
    page = application.open(path, CAT)
    usual = sorted_by(page)
    assert usual
    page.do("sort", {"id": "magic"})
    assert f"{path.capitalize()} cannot be sorted like that" in page.text
    assert sorted_by(page) == usual
    assert sorted_by(application.open(f"{path}?sort=magic", CAT)) == usual


def test_a_list_is_turned_after_a_filter_that_all_match(application: Application, repository: Repository) -> None:
    repository.create_experiment(sweep("Series", limit=1, seeds=tuple(range(7))), enqueue=False)
    page = application.open("runs", ANN)
    page.choose("Pair", "Bundled arithmetic pair")
    page.press("Next")
    assert "51 to 56 of 56 runs" in page.text


def test_an_experiment_s_runs_are_ticked_as_those_of_the_list_and_no_button_sorts_that(
    application: Application, repository: Repository
) -> None:
    page = application.open(f"runs?experiment={add_finished(repository, limit=3)}", ANN)
    assert page.rows("Runs")
    assert "Select runs to compare them" in page.text
    assert "Select runs to compare them" in application.open("runs", ANN).part("runs")
    assert [one for one in page.elements("button") if one.attributes.get("data-act") == "sort"] == []
