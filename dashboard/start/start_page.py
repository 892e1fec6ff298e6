"""Start page: what the program is for and the two ways in; later, what runs, what waits and what was decided."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.start.start_html import news_html, picture_html
from dashboard.ui.components import notice, show
from dashboard.ui.question import Asked, Updates
from dashboard.ui.templates import Html, render
from dashboard.ui.view import View
from fsd_core.errors import FsdError
from fsd_core.review.reviewers import WaitingCount

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository


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
