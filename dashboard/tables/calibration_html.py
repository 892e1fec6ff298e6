"""A calibration as HTML: its progress or its result."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from dashboard.ui.actions import button
from dashboard.ui.components import Column, notice, table
from dashboard.ui.templates import Html, joined, render
from dashboard.ui.trade_off import TradeOffPoint, trade_off
from fsd_core.calibration.finalist_table import FINALIST_COLUMNS, finalist_row
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.status import latest_status
from fsd_core.calibration.summary import goal_text, headline, so_far, verdict, whole_minutes
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import FsdError
from fsd_core.formatting import count

if TYPE_CHECKING:
    from fsd_core.calibration.findings import SettingResult
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView

_COLUMNS = tuple(Column(title, "num" if index else "wide") for index, title in enumerate(FINALIST_COLUMNS))


def calibration_html(repository: Repository, e: ExperimentView) -> Html | None:
    """Return the progress or the result of a calibration, or ``None`` for another experiment."""
    config = e.config
    if not isinstance(config, CalibrationConfig):
        return None
    spent = f"{e.decoding_seconds / 60:.1f} of {config.all_minutes:g} min of decoding"
    try:
        outcome = latest_status(repository, e)
    except FsdError as error:
        return notice(str(error), "bad")
    if not isinstance(outcome, Outcome):
        tried = f"The target and {count(outcome.tried - 1, 'setting')}"
        activity = f"{tried} on prompts {outcome.start + 1} to {outcome.end}"
        if outcome.lengths_open:
            activity = f"Replay chooses the draft lengths from {outcome.end} prompts that are recorded"
        goal = f"Wanted: {goal_text(config)}. {activity}; {spent}."
        return render("tables/calibration.html", "under_way", goal, so_far(config, outcome))
    setting = config.setting_of(outcome.chosen.decoding).id
    links = [(f"settings?setting={setting}", "The setting, to take along")] if outcome.chosen.sure else []
    if outcome.chosen.sure and outcome.chosen.prompts:
        label = "exact SD" if outcome.chosen.decoding.acceptance.is_exact else "this setting"
        links.insert(0, (f"review?propose={setting}&calibration={e.id}", f"Propose {label}"))
    further = []
    if outcome.more and not e.under_way:
        further = [button("go-on", "experiment", e.id, f"Continue for {whole_minutes(outcome.more.minutes)} min")]
    if len(outcome.timed) > 2 and not e.under_way:
        further.append(button("time-again", "experiment", e.id, "Time the finalists again"))
    rows = [_row(finalist) for finalist in outcome.finalists]
    return render(
        "tables/calibration.html",
        "found",
        headline(config, outcome),
        _picture(config, outcome),
        verdict(config, outcome),
        links=links,
        further=joined(further),
        finalists=table(_COLUMNS, rows, "Finalists of the calibration") if rows else "",
        foretold=_predicted_link(e),
        spent=spent,
    )


def calibration_text(
    repository: Repository, e: ExperimentView, told: Callable[[CalibrationConfig, Outcome], str]
) -> str:
    """Return what is told of a calibration that has ended: its verdict or its headline. Empty until then, for other
    experiments, and where its card says why."""
    if not isinstance(e.config, CalibrationConfig):
        return ""
    try:
        outcome = latest_status(repository, e)
    except FsdError:
        return ""
    return told(e.config, outcome) if isinstance(outcome, Outcome) else ""


def _picture(config: CalibrationConfig, outcome: Outcome) -> Html:
    """Return accuracy against speed of the finalists, exact SD and what is chosen; nothing where nothing is scored."""
    results = {result.decoding: result for result in (*outcome.finalists, outcome.chosen)}
    points = [point for result in results.values() if (point := _point(result, result is outcome.chosen))]
    if not any(point.is_exact for point in points):
        points.append(TradeOffPoint("SD", 1.0, 0.0, is_exact=True))
    margin = config.margin if config.goal == "accuracy" else None
    return trade_off(points, margin, f"Accuracy against speed. {headline(config, outcome)}") if results else Html()


def _point(result: SettingResult, is_chosen: bool) -> TradeOffPoint | None:
    """Return a finalist's place on the picture; ``None`` if its speed or its accuracy was not measured."""
    if result.over_exact is None or result.difference is None:
        return None
    ends, least, is_exact = result.over_exact_interval, result.at_least, result.decoding.acceptance.is_exact
    return TradeOffPoint(
        result.decoding.label, result.over_exact, 100 * result.difference,
        ends.low if ends else None, ends.high if ends else None,
        None if least is None or is_exact else 100 * least, is_chosen, is_exact,
    )  # fmt: skip


def _predicted_link(e: ExperimentView) -> str:
    """Return the address that compares the runs predicted by replay with the target alone, or an empty string."""
    predicted = [run.id for run in e.runs if run.predicted]
    if not predicted:
        return ""
    return f"compare?runs={','.join([e.runs[0].id, *predicted])}&baseline={e.runs[0].id}&open=matched-points#predicted"


def _row(result: SettingResult) -> tuple[str, ...]:
    row = finalist_row(result)
    return (
        render("tables/measured.html", "figure", row.label, row.certainty),
        row.prompts,
        row.difference,
        row.at_least,
        row.accepted,
        render("tables/calibration.html", "over_exact", row.over_exact, row.interval),
    )
