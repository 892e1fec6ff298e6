"""Start page: the trade-off that ships with the program; later, what runs, what waits and what was found."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from dashboard.tables.run_record import calibration_text
from dashboard.ui.components import notice, show
from dashboard.ui.page import TradeOffPoint, trade_off
from dashboard.ui.templates import Html, ago, render, texts_done
from dashboard.ui.view import Asked, Updates, View
from fsd_core.calibration.summary import headline
from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import MODEL_PAIRS, calibration_of, pair_title
from fsd_core.review.history import WaitingCount
from fsd_core.review.review_service import ReviewService
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


_MARGIN = 2.0
"""points within which the shipped calibration calls a setting free"""
_MOST = 3
"""lines of each kind of news"""
_LOOKED_AT = 20
"""experiments among which news are looked for"""


class News(NamedTuple):
    """A line of news, and where it leads."""

    address: str
    text: str
    more: str = ""


def picture_html() -> Html:
    """Return accuracy against speed of the first pair that was calibrated, with a sentence."""
    for pair in MODEL_PAIRS:
        if (measured := calibration_of(pair)) is not None:
            points = [
                TradeOffPoint(
                    f"FSD, js ≤ {threshold:g}", speed, 100 * difference, is_chosen=threshold == measured.threshold
                )
                for threshold, speed, difference in measured.curve
            ]
            sentence = (
                f"{pair_title(pair)}: FSD at js ≤ {measured.threshold:g} is {measured.speedup:.1f} × as fast as SD and "
                "solves as many within 2 points."
            )
            drawn = trade_off([TradeOffPoint("SD", 1.0, 0.0, is_exact=True), *points], _MARGIN, sentence)
            return render("start/start.html", "picture", drawn, sentence, measured.problems)
    return Html()


def news_html(repository: Repository, waiting: int) -> Html:
    """Return current work, reviews that wait, and the last decisions; nothing on an empty installation."""
    experiments = repository.experiments(limit=_LOOKED_AT)
    under_way = [e for e in experiments if e.under_way]
    running = [News(f"runs?experiment={e.id}", e.name, f"{e.status}, {texts_done(e)}") for e in under_way[:_MOST]]
    waits = [News("review", f"{count(waiting, 'proposal')} under review")] if waiting else []
    found = (
        News(f"runs?experiment={e.id}", told, f"{e.name}, {ago(e.created_at)}")
        for e in experiments
        if not e.under_way and (told := calibration_text(repository, e, headline))
    )
    parts = {
        "Running": running, "Waits for you": waits, "Decided last": _decided(repository),
        "Found last": [*islice(found, _MOST)],
    }  # fmt: skip
    return render("start/start.html", "news", [(title, lines) for title, lines in parts.items() if lines])


def _decided(repository: Repository) -> list[News]:
    service = ReviewService(repository)
    uses = sorted(service.uses(), key=lambda use: use.sequence, reverse=True)
    approved = [(use, setting) for use in uses if (setting := use.named("approved"))][:_MOST]
    labels = service.labels([use for use, _ in approved])
    return [
        News(f"review?use={use.id}", labels.get(setting, setting), f"approved for {use.name}")
        for use, setting in approved
    ]


def build(repository: Repository, settings: Settings) -> None:
    """Add the page's components and events to the caller's Blocks context."""
    StartPage(repository)


class StartPage:
    """The page's components as attributes. Its methods return the page's content for a question."""

    def __init__(self, repository: Repository) -> None:
        self.repository, self._waiting = repository, WaitingCount(repository)
        self.message = show()
        show(render("start/start.html", "welcome", picture_html()))
        self.news = show(elem_id="news")
        view = View(self.message, self.fail)
        view.listen(self.redraw, [], [self.news])

    def redraw(self, asked: Asked) -> Updates:
        """Return current work, reviews that wait, and decisions, if they differ."""
        news = news_html(self.repository, self._waiting(asked.person))
        return {self.news: news} if asked.differs("news", news) else {}

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error above what every visitor is shown."""
        return {self.message: notice(str(error), "bad"), self.news: Html()}
