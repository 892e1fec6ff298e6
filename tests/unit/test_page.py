"""The frame of the pages: their head, the start page and its picture of accuracy against speed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from html import unescape
from pathlib import Path
from xml.etree import ElementTree

import pytest
from sqlalchemy import update

from dashboard.playground.job_panels import worker_notice
from dashboard.start import answer_html, news_html, own_answer, shipped_answer
from dashboard.tables.run_record import spent_text
from dashboard.ui.page import Page, TradeOffPoint, absence_notice, navigation, trade_off, worker_status
from dashboard.web import PAGES
from fsd_core.calibration.request import build_calibration
from fsd_core.errors import InvalidSetting
from fsd_core.models.model_pairs import calibration_of
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings
from fsd_core.storage.opening import Database, open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import WorkerRow
from fsd_core.tasks import get_task
from tests.tools.plausible import add_finished, sweep
from tests.tools.tracking_examples import playground_job
from tests.unit.test_components import Reader


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    upgrade(database_url)
    database = open_database(database_url)
    yield database
    database.close()


def test_the_worker_is_told_as_it_is(database: Database) -> None:
    repository = Repository(database)
    assert "worker is not running" in worker_status(repository, "worker")
    repository.report_worker(1, "host", "cpu", "idle")
    assert "<b>worker ready</b><span>cpu</span>" in worker_status(repository, "worker")
    repository.enqueue(playground_job())
    repository.report_worker(1, "host", "cuda", "SD <b>: prompt 3 of 50")
    assert "SD &lt;b&gt;: prompt 3 of 50 · cuda · 1 waiting" in worker_status(repository, "worker")

    with database.session() as session:
        session.execute(update(WorkerRow).values(heartbeat_at=datetime.now(UTC) - timedelta(seconds=30)))
    assert "worker is not running" in worker_status(repository, "worker")


def test_what_is_missing_is_named_as_the_installation_has_it(database: Database) -> None:
    repository = Repository(database)
    assert 'title="Start it with: python -m fsd_core worker."' in worker_status(repository, "worker")
    for told in (
        worker_status(repository, "in-process"),
        absence_notice(None, "in-process", waiting=True),
        worker_notice(None, "in-process", "queued"),
    ):
        plain = unescape(told)
        assert "app's computing thread is not running" in plain
        assert "The app begins it anew every few seconds. If this stays, the app's log says why" in plain
        assert "worker" not in plain.replace("fsd-worker", "")
    assert "continue where they stopped" in absence_notice(None, "in-process", waiting=True)
    repository.report_worker(1, "host", "cpu", "idle")
    assert absence_notice(repository.worker(), "in-process") == ""


def test_a_database_that_is_damaged_is_told_and_does_not_raise(database: Database, home: Path) -> None:
    (home / "fsd.db").write_bytes(b"not a database" * 999)
    assert "database unavailable" in worker_status(Repository(database), "worker")


@pytest.mark.parametrize("page", PAGES)
def test_the_page_that_is_open_is_marked(page: Page) -> None:
    assert ('class="fsd-brand" href="./" aria-current' in navigation(PAGES, page)) == (page.title == "Start")
    assert (f'aria-current="page">{page.title}<' in navigation(PAGES, page)) == page.in_bar
    assert navigation(PAGES, page).count("aria-current") == 1


def test_hosts_are_the_machines_own_and_those_that_are_named() -> None:
    own = ["localhost", "127.0.0.1", "[::1]"]
    assert Settings(host="0.0.0.0").hosts == own
    assert Settings(host="10.0.0.7", allowed_hosts="lab.example.org, *.lan").hosts == [
        *own, "10.0.0.7", "lab.example.org", "*.lan",
    ]  # fmt: skip
    assert Settings(allowed_hosts="*").hosts == [*own, "*"]


@pytest.mark.parametrize("names", ["a*b", "http://x", "a b"])
def test_host_names_that_are_none_are_refused(names: str) -> None:
    with pytest.raises((InvalidSetting, ValueError), match="host names"):
        Settings(allowed_hosts=names)


ANN, BOB = Person("Ann", "author"), Person("Bob", "reviewer")


def test_an_empty_installation_has_the_answer_that_ships_and_no_news(repository: Repository) -> None:
    assert news_html(repository, repository.experiments(), 0) == ""
    assert own_answer(repository, repository.experiments()) is None
    measured, answer = calibration_of("bundled"), shipped_answer()
    assert measured is not None
    assert answer is not None
    # Computed again from the file, by hand: 596.8 / 267.1 and 596.8 / 163.6 tokens a second; 592 of 600 by either.
    assert answer.headline == (
        "Use FSD reducible · js ≤ 0.1 · γ 16: 2.2 × as fast as exact SD, within 2 points of the target's accuracy."
    )
    assert [number for number, _ in answer.figures] == ["2.23 ×", "3.65 ×", "0.0 points"]
    assert answer.figures[2][1] == (
        "of accuracy against the target, at least −0.9; the target solves 592 of 600 prompts (99 %, 97 to 99)"
    )
    assert "600 prompts of arithmetic" in answer.scope
    assert answer.ways[0] == ("playground?pair=bundled", "Try it on a prompt")
    shown = Reader(answer_html(answer)).text
    for told in (answer.source, answer.headline, *(text for figure in answer.figures for text in figure)):
        assert told in shown
    assert (measured.threshold, measured.speedup) in {point[:2] for point in measured.curve}
    assert [point[0] for point in measured.curve] == sorted(point[0] for point in measured.curve)


def test_the_time_of_a_calibration_bounds_what_is_begun() -> None:
    assert spent_text(2.94, 3.0) == "2.9 of 3 min of decoding"
    assert spent_text(4.9, 3.0) == "all of 3 min of decoding, and 1.9 more to end what had begun"


@pytest.mark.wide
def test_news_are_what_runs_what_waits_and_what_was_decided(repository: Repository) -> None:
    runs = repository.experiment(add_finished(repository, "Done")).runs
    repository.create_experiment(sweep("Under <way>"))
    repository.create_experiment(build_calibration(get_task("arithmetic"), name="Looking", margin=5.0, minutes=1.0))
    news = Reader(news_html(repository, repository.experiments(), 2)).text
    assert "Under <way>" in news
    assert "queued, 0 of 168 texts" in news
    assert "Lookingqueued, 0 texts written" in news  # of how many is unknown
    assert "2 proposals under review" in news
    assert "Decided last" not in news
    assert "Done" not in news, "a list that was measured decides nothing"

    service = ReviewService(repository)
    service.describe(ANN, "Sums", requirements=Requirements(margin=20))
    tuned = next(run for run in runs if run.decoding.threshold == 0.05)
    proposal = service.propose(ANN, "sums", [tuned.id], [runs[0].id], "Fast.")
    review = service.review(proposal)
    service.submit_review(BOB, review, "approve", "", review.use.sequence)
    news = news_html(repository, repository.experiments(), 0)
    assert "approved for Sums" in Reader(news).text
    assert 'href="review?use=sums"' in news
    assert tuned.label in Reader(news).text
    assert "Waits for you" not in news


SD = TradeOffPoint("SD", 1.0, 0.0, is_exact=True)
CHOSEN = TradeOffPoint("<b>js ≤ 0.1</b>", 2.23, -0.4, 2.0, 2.5, -1.6, is_chosen=True)
FAST = TradeOffPoint("js ≤ 0.4", 2.6, -31.0)


def drawn(*points: TradeOffPoint, margin: float | None = 2.0) -> ElementTree.Element:
    return ElementTree.fromstring(trade_off(points, margin, 'Say "this"'))


def places(picture: ElementTree.Element) -> list[tuple[str, float, float]]:
    """Style and place of each point, as they are drawn."""
    return [
        (group.get("class", ""), float(circle.get("cx", "")), float(circle.get("cy", "")))
        for group in picture.iter("g")
        for circle in group.iter("circle")
    ]


def test_faster_is_further_right_and_what_is_lost_lies_lower() -> None:
    picture = drawn(CHOSEN, FAST, SD)
    assert picture.get("aria-label") == 'Say "this"'
    at = {style: (x, y) for style, x, y in places(picture)}
    assert at["exact"][0] < at["chosen"][0] < at["tried"][0]
    assert at["exact"][1] < at["chosen"][1] < at["tried"][1]
    assert all(44 <= x <= 460 and 44 <= y <= 194 for _, x, y in places(picture))
    assert places(picture)[-1][0] == "chosen", "nothing is drawn over it"
    texts = [text.text for text in picture.iter("text")]
    assert {"SD", "<b>js ≤ 0.1</b>", "2 points may be lost", "0"} <= {*texts}
    assert "js ≤ 0.4" not in texts, "what was only tried has its name as a hint"
    titles = [title.text for title in picture.iter("title")]
    assert "js ≤ 0.4: 2.60 × as fast as SD, −31 points" in titles


def test_a_figure_that_is_missing_is_not_drawn() -> None:
    assert trade_off([TradeOffPoint("unscored", 2.0, math.nan), TradeOffPoint("untimed", math.nan, 0.0)], 2, "") == ""
    assert len(places(drawn(SD, TradeOffPoint("unscored", 2.0, math.nan)))) == 1


def test_a_single_point_has_axes_and_no_margin_where_none_is_promised() -> None:
    picture = drawn(SD, margin=None)
    assert len(places(picture)) == 1
    assert not [line for line in picture.iter("line") if line.get("class") == "margin"]
    ticks = [text.text for text in picture.iter("text") if text.get("class") == "tick"]
    assert len(ticks) == len({*ticks}) >= 4
