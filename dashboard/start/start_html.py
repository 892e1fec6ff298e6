"""The start page as HTML: the trade-off that ships with the program, and the news of an installation."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from dashboard.tables.calibration_html import calibration_text
from dashboard.ui.quantities import ago, texts_done
from dashboard.ui.templates import Html, render
from dashboard.ui.trade_off import TradeOffPoint, trade_off
from fsd_core.calibration.summary import headline
from fsd_core.formatting import count
from fsd_core.models.calibrations import calibration_of
from fsd_core.models.model_pairs import MODEL_PAIRS, pair_title
from fsd_core.review.review_service import ReviewService

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

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
