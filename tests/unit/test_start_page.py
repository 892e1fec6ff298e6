"""The start page: a picture that ships with the program, and the news of an installation, none when it is empty."""

from __future__ import annotations

import pytest

from dashboard.start import news_html, picture_html
from fsd_core.calibration.request import build_calibration
from fsd_core.models.model_pairs import calibration_of
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.tasks import get_task
from tests.tools.plausible import add_finished, sweep
from tests.unit.test_components import Reader

ANN, BOB = Person("Ann", "author"), Person("Bob", "reviewer")


def test_an_empty_installation_has_a_picture_and_no_news(repository: Repository) -> None:
    assert news_html(repository, 0) == ""
    measured = calibration_of("bundled")
    assert measured is not None
    picture = Reader(picture_html()).text
    assert f"FSD at js ≤ {measured.threshold:g} is {measured.speedup:.1f} × as fast as SD" in picture
    assert f"Measured on {measured.problems} prompts." in picture
    assert (measured.threshold, measured.speedup) in {point[:2] for point in measured.curve}
    assert [point[0] for point in measured.curve] == sorted(point[0] for point in measured.curve)


@pytest.mark.wide
def test_news_are_what_runs_what_waits_and_what_was_decided(repository: Repository) -> None:
    runs = repository.experiment(add_finished(repository, "Done")).runs
    repository.create_experiment(sweep("Under <way>"))
    repository.create_experiment(build_calibration(get_task("arithmetic"), name="Looking", margin=5.0, minutes=1.0))
    news = Reader(news_html(repository, 2)).text
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
    news = news_html(repository, 0)
    assert "approved for Sums" in Reader(news).text
    assert 'href="review?use=sums"' in news
    assert tuned.label in Reader(news).text
    assert "Waits for you" not in news
