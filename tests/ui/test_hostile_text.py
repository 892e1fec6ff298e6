"""Text that is a program stays text: it is planted in every column that holds text, then every page is opened."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect
from sqlalchemy import String, select, update

from dashboard.compare.compared_runs import compare
from dashboard.compare.report_parts import PARTS, frozen_comparison
from dashboard.web import PAGES
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.database.tables import Base, MeasurementSessionRow, RunRow
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.saved_views import LONGEST_VIEW_NAME, VIEW_PAGES
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import keep
from fsd_core.tasks.custom.reading import check
from tests.tools.chromium import BROWSER_PATIENCE
from tests.tools.folds import EVERY_FOLD
from tests.tools.plausible import add_finished
from tests.tools.settled import settled, watch
from tests.tools.site import Site, serving
from tests.tools.sizes import some
from tests.ui.test_playground import chunk
from tests.ui.test_sign_in import status

pytestmark = pytest.mark.ui

SCRIPT = "<script>alert(1)</script>"
HOSTILE = (
    f"\"'>{SCRIPT}<img src=x onerror=alert(2)><svg onload=alert(3)></svg><a href='javascript:alert(4)'>x</a>"
    "[x](javascript:alert(5)) ${alert(6)} {{alert(7)}} `alert(8)` \\input{x}</textarea></style></title>"
)
NAME = HOSTILE[:100]
PLANTED = "img[src='x'], svg[onload], a[href^='javascript:'], script:text-is('alert(1)')"
"""what a browser would make of it"""

# Columns whose words the program chooses itself, and columns that a hash or a key ties to others.
CHOSEN = {
    "kind", "status", "outcome", "stop_reason", "acceptance", "role", "pair", "task", "claim_token", "sha256", "digest",
    "password", "mlflow_run_id",
}  # fmt: skip
UNCHANGED = {"review_log", "users", "sign_ins", "api_tokens", "tasks", "reports", "saved_views"}
"""tables of which the log is filled act by act, and the others by a name, or a title, that is hostile itself"""


def plant(site: Site) -> dict[str, str]:
    """Fills the database, and every text in it. Returns what the addresses need."""
    experiment = add_finished(site.repository, HOSTILE)
    runs = site.repository.experiment(experiment).runs
    ann, bob = Person(NAME, "author"), Person(f"{NAME[:-1]}!", "admin")
    service = ReviewService(site.repository)
    use = service.describe(ann, NAME, HOSTILE, Requirements(margin=20)).id
    proposal = service.propose(ann, use, [runs[3].id], [runs[0].id], HOSTILE, Requirements(margin=20))
    service.comment(ann, service.review(proposal), HOSTILE, position=1)
    service.waive(bob, service.review(proposal), "margin", HOSTILE)
    review = service.review(proposal)
    service.submit_review(bob, review, "approve", HOSTILE, review.use.sequence)
    asked = PlaygroundJob.of("bundled", HOSTILE, 0, [run.decoding for run in runs[2:4]], NAME)
    job = site.repository.enqueue(asked)
    mine = CustomTask.of("mine", check(json.dumps({"prompt": HOSTILE}).encode()), HOSTILE)
    keep(site.repository, mine, NAME)
    site.repository.append_chunks(job, [chunk(0, list(HOSTILE)), chunk(1, [], error=HOSTILE)])
    claimed = site.repository.claim(("playground",), 60)
    assert claimed is not None
    assert claimed.claim_token is not None
    site.repository.finish_job(job, claimed.claim_token, "finished")
    comparison = compare(site.repository, [run.id for run in runs], None)
    report = job[::-1]
    site.repository.add_report(report, frozen_comparison(comparison, HOSTILE[:200], HOSTILE, list(PARTS)), NAME)
    for page in VIEW_PAGES:
        site.repository.save_view(page.ljust(32, "0"), page, NAME[:LONGEST_VIEW_NAME], f"runs={quote(HOSTILE)}", bob)
    site.repository.report_worker(1, HOSTILE, HOSTILE, HOSTILE)
    with site.repository._database.session() as session:
        for table in Base.metadata.sorted_tables:
            texts = {
                column.name: HOSTILE
                for column in table.columns
                if isinstance(column.type, String) and not (column.primary_key or column.foreign_keys or column.unique)
            }
            texts = {name: text for name, text in texts.items() if name not in CHOSEN}
            if texts and table.name not in UNCHANGED:
                session.execute(update(table).values(texts))
        for run in session.scalars(select(RunRow)):
            run.provenance = _hostile(run.provenance)
        for sitting in session.scalars(select(MeasurementSessionRow)):
            sitting.conditions = _hostile(sitting.conditions)
    return {"run": runs[3].id, "first": runs[0].id, "setting": runs[3].setting_id, "use": use, "proposal": proposal,
            "job": job, "report": report}  # fmt: skip


def _hostile(told: dict[str, Any] | None) -> dict[str, Any]:
    new = {name: HOSTILE if isinstance(value, str) else value for name, value in (told or {}).items()}
    return {name: _hostile(value) if isinstance(value, dict) else value for name, value in new.items()}


# Address, and whether planted text is to be seen there: a door that shows none would prove nothing.
DOORS = {
    "": True,
    "experiments": True,
    "compare?runs={first},{run}&baseline={first}" + EVERY_FOLD: True,
    "runs": True,
    "runs?search=" + quote(HOSTILE): True,
    "runs?run={run}": True,
    "runs?run={run}&prompts=wrong": True,
    "settings": True,
    "settings?setting={setting}": True,
    "review": True,
    "review?use={use}": True,
    "review?proposal={proposal}": True,
    "review?propose={setting}": True,
    "reports": True,
    "reports?report={report}": True,
    "reports?report=" + quote(HOSTILE): True,
    "people": True,
    "start": True,
    "theory": True,  # the name of who looks, at least
    "nosuch?" + quote(HOSTILE): False,
    "runs?run=" + quote(HOSTILE): True,
    "review?proposal=" + quote(HOSTILE): True,
    "settings?setting=" + quote(HOSTILE): True,
    "compare?runs=" + quote(HOSTILE): True,
}
VISITED = (
    "", "experiments", "compare?runs={first},{run}&baseline={first}" + EVERY_FOLD, "runs", "runs?run={run}", "settings",
    "settings?setting={setting}", "review", "review?use={use}", "review?proposal={proposal}",
    "review?propose={setting}", "reports", "reports?report={report}", "people", "start", "theory",
)  # fmt: skip
"""one visit of each page that the gate makes"""


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, dict[str, str]]]:
    """The application behind a proxy that names somebody of a hostile name."""
    named = {"FSD_ACCESS": "proxy", "FSD_PROXY_ROLES": "*=admin"}
    with serving(tmp_path_factory.mktemp("home"), **named) as site:
        yield site, plant(site)


@pytest.fixture(scope="module")
def named(browser: Browser, hostile: tuple[Site, dict[str, str]]) -> Iterator[BrowserContext]:
    """The browser of somebody of a hostile name, who has asked the Playground for something."""
    with closing(browser.new_context(extra_http_headers={"X-Forwarded-User": NAME})) as context:
        context.set_default_timeout(BROWSER_PATIENCE)
        context.add_init_script(f"localStorage.setItem('fsd-remembered /', {json.dumps({'job': hostile[1]['job']})!r})")
        watch(context)
        yield context


@pytest.fixture
def watched(named: BrowserContext) -> Iterator[Page]:
    """A window in which whatever runs, or is fetched from elsewhere, fails the test."""
    page = named.new_page()
    problems: list[str] = []
    page.on("dialog", lambda dialog: (problems.append(f"ran: {dialog.message}"), dialog.dismiss()))
    page.on("pageerror", lambda error: problems.append(f"script error: {error}"))
    page.on("console", lambda m: problems.append(m.text) if "Content Security Policy" in m.text else None)
    page.on("request", lambda r: problems.append(f"fetched {r.url}") if r.url.endswith("/x") else None)
    yield page
    page.close()
    assert not problems, problems


def test_every_page_is_among_the_doors() -> None:
    assert {page.path for page in PAGES} <= set(DOORS) | {door.partition("?")[0] for door in DOORS}


@pytest.mark.parametrize("door", some(DOORS, *VISITED))
def test_no_page_runs_what_is_planted(watched: Page, hostile: tuple[Site, dict[str, str]], door: str) -> None:
    site, ids = hostile
    path, mark, query = door.partition("?")
    watched.goto(f"{site.url}/{path}{mark}{query.format(**ids) if '%' not in query else query}")
    if DOORS[door]:
        expect(watched.locator(".fsd-person form")).to_contain_text(SCRIPT)
    settled(watched)  # with what the page fetches after its head
    assert watched.locator(PLANTED).count() == 0
    if path in ("experiments", "compare", "runs", "settings", "review") and "%" not in query:
        shown = watched.locator("main, .gradio-container").first  # who is signed in is told by the head of each page
        assert shown.inner_text().count(SCRIPT) > 1


@pytest.mark.parametrize("extension", ["csv", "html", "tex"])
def test_no_file_runs_what_is_planted(
    watched: Page, hostile: tuple[Site, dict[str, str]], tmp_path: Path, extension: str
) -> None:
    site, ids = hostile
    address = f"/export/comparison.{extension}?runs={ids['first']},{ids['run']}&baseline={ids['first']}"
    code, text = status(site, address, X_Forwarded_User="chief")
    assert code == 200
    if extension == "tex":
        assert "alert" in text
        assert "\\input{x}" not in text
        assert "$" not in text.replace("\\$", "").replace("$-$", "")
        return
    if extension == "csv":  # what a spreadsheet would take for a formula begins otherwise
        assert SCRIPT in text.replace('""', '"')
        assert not any(cell[:1] in "=+@" for line in text.splitlines() for cell in line.split(",") if cell)
        return
    file = tmp_path / "report.html"
    file.write_text(text, encoding="utf-8")
    watched.goto(file.as_uri())
    expect(watched.locator(".js-plotly-plot .main-svg").first).to_be_visible()
    settled(watched)
    assert watched.locator(PLANTED).count() == 0
    assert SCRIPT in watched.locator("main").inner_text()
