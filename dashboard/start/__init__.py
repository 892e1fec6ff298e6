"""Start page: the setting to use, first on the pair that ships, then on one's own; what runs, waits and was decided."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from dashboard.tables.run_record import calibration_outcome, calibration_picture, calibration_text
from dashboard.ui.components import notice, show
from dashboard.ui.fields import label
from dashboard.ui.page import TradeOffPoint, trade_off
from dashboard.ui.templates import Html, ago, moment, render, texts_done
from dashboard.ui.view import Asked, Updates, View
from fsd_core.calibration.findings import SettingResult, TargetAccuracy
from fsd_core.calibration.summary import finalist_row, headline, use_text, within_text
from fsd_core.config.options import method
from fsd_core.errors import FsdError
from fsd_core.models.model_pairs import MODEL_PAIRS, calibration_of, pair_title
from fsd_core.review.history import WaitingCount
from fsd_core.review.review_service import ReviewService
from fsd_core.statistics.intervals import wilson
from fsd_core.texts import count, number_text

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.records import ExperimentView
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


class Answer(NamedTuple):
    """The setting to use, with what it rests on."""

    source: str
    """where and when it was measured"""
    headline: str
    figures: Sequence[tuple[str, str]]
    """each a number with its unit, and what it is a number of"""
    scope: str
    """prompts and models that it holds for"""
    picture: Html
    ways: Sequence[tuple[str, str]]
    """addresses with what they open, the first to be tried first"""
    experiment: str | None = None
    """id of the calibration; ``None`` for what ships with the program"""


def shipped_answer() -> Answer | None:
    """Return what was measured on the first pair that ships with its calibration."""
    found = next(((name, measured) for name in MODEL_PAIRS if (measured := calibration_of(name))), None)
    if found is None:
        return None
    pair, measured = found
    points = [
        TradeOffPoint(f"FSD, js ≤ {threshold:g}", speed, 100 * lost, is_chosen=threshold == measured.threshold)
        for threshold, speed, lost in measured.curve
    ]
    options = {"acceptance": "fsd-reducible", "divergence": "js", "threshold": measured.threshold}
    setting = method(options | {"draft_length": measured.draft_length}, label)
    sentence = use_text(setting.label, measured.speedup, within_text(_MARGIN))
    target = TargetAccuracy(measured.solved, measured.problems, wilson(measured.solved, measured.problems))
    result = SettingResult(
        setting, measured.problems, True, measured.difference, measured.at_least, None, measured.speedup, None,
        measured.over_target,
    )  # fmt: skip
    return Answer(
        "Measured on the pair that ships with FSD Lab",
        sentence,
        _figures(result, target),
        f"Speeds in tokens per second on a CPU, greedily, on {count(measured.problems, 'prompt')} of "
        f"{measured.task}; {pair_title(pair)}. Yours will differ.",
        trade_off([TradeOffPoint("SD", 1.0, 0.0, is_exact=True), *points], _MARGIN, sentence),
        [(f"playground?pair={pair}", "Try it on a prompt"), ("experiments", "Find it for your prompts")],
    )


def own_answer(repository: Repository, experiments: Iterable[ExperimentView]) -> Answer | None:
    """Return the verdict of the first calibration of the experiments that has one; ``None`` without any."""
    for e in experiments:
        if (found := calibration_outcome(repository, e)) is None:
            continue
        config, outcome = found
        it, setting, target = outcome.chosen, config.setting_of(outcome.chosen.decoding).id, outcome.target
        own = (
            f" (the target's own score is of all {target.prompts:,})" if target and target.prompts != it.prompts else ""
        )
        return Answer(
            f"Measured here, {moment(e.created_at)}",
            headline(config, outcome),
            _figures(it, outcome.target) if it.sure else [],
            f"By time per answer, on {count(it.prompts, 'fresh prompt')} of {config.task}{own}; "
            f"{pair_title(config.pair)}. Ranges are of 95 %.",
            calibration_picture(config, outcome),
            [
                (f"playground?setting={setting}", "Try it on a prompt"),
                (f"compare?experiment={e.id}", "Prompts and times behind it"),
                (f"runs?experiment={e.id}", "The calibration"),
            ],
            e.id,
        )
    return None


def _figures(result: SettingResult, target: TargetAccuracy | None) -> list[tuple[str, str]]:
    """Return the numbers of a setting that were measured."""
    rows, told = [], finalist_row(result)
    if result.over_exact is not None:
        between = f", {told.interval}" if told.interval else ""
        rows.append((f"{told.over_exact} ×", f"as fast as exact SD{between}"))
    if result.over_target is not None:
        rows.append((f"{number_text(result.over_target, 2)} ×", "as fast as the target alone"))
    if result.difference is not None:
        least = "" if result.at_least is None else f", at least {told.at_least}"
        solves = f"; the target solves {target.text}" if target else ""
        rows.append((f"{told.difference} points", f"of accuracy against the target{least}{solves}"))
    return rows


def answer_html(answer: Answer | None) -> Html:
    """Return the setting to use, or where one is found."""
    return render("start/start.html", "answer", answer)


def news_html(
    repository: Repository, experiments: Sequence[ExperimentView], waiting: int, shown: str | None = None
) -> Html:
    """Return current work, reviews that wait, and the last decisions; nothing on an empty installation. ``shown``: the
    calibration that the page tells of already."""
    under_way = [e for e in experiments if e.under_way]
    running = [News(f"runs?experiment={e.id}", e.name, f"{e.status}, {texts_done(e)}") for e in under_way[:_MOST]]
    waits = [News("review", f"{count(waiting, 'proposal')} under review")] if waiting else []
    found = (
        News(f"runs?experiment={e.id}", told, f"{e.name}, {ago(e.created_at)}")
        for e in experiments
        if not e.under_way and e.id != shown and (told := calibration_text(repository, e, headline))
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
        self.shipped = answer_html(shipped_answer())
        self.message = show()
        self.answer = show(self.shipped, elem_id="answer")
        self.news = show(elem_id="news")
        view = View(self.message, self.fail)
        view.listen(self.redraw, [], [self.answer, self.news])

    def redraw(self, asked: Asked) -> Updates:
        """Return the answer, current work, reviews that wait, and decisions, as far as they differ."""
        if asked.opening:
            asked.differs("answer", self.shipped)  # what the page was built with
        experiments = self.repository.experiments(limit=_LOOKED_AT)
        own = own_answer(self.repository, experiments)
        answer = answer_html(own) if own else self.shipped
        news = news_html(self.repository, experiments, self._waiting(asked.person), own.experiment if own else None)
        updates: Updates = {self.answer: answer} if asked.differs("answer", answer) else {}
        return updates | ({self.news: news} if asked.differs("news", news) else {})

    def fail(self, asked: Asked, error: FsdError) -> Updates:
        """Return an error above what every visitor is shown."""
        return {self.message: notice(str(error), "bad"), self.news: Html()}
