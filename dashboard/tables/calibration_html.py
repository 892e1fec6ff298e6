"""A calibration as HTML: how far it is, or what it found."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dashboard.ui.actions import button
from dashboard.ui.components import Column, notice, table
from dashboard.ui.quantities import DASH
from dashboard.ui.templates import Html, render
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.status import standing
from fsd_core.calibration.summary import goal_words, so_far, verdict, whole_minutes
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import FsdError
from fsd_core.formatting import number

if TYPE_CHECKING:
    from fsd_core.calibration.findings import SettingResult
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import ExperimentView

_COLUMNS = (
    Column("Finalist", "wide"), Column("Fresh prompts", "num"), Column("Points lost or won", "num"),
    Column("At least", "num"), Column("Accepted, %", "num"), Column("× SD", "num"),
)  # fmt: skip


def calibration_html(repository: Repository, e: ExperimentView) -> Html | None:
    """How far a calibration is, or what it found; ``None`` for another experiment."""
    config = e.config
    if not isinstance(config, CalibrationConfig):
        return None
    spent = f"{e.decoding_seconds / 60:.1f} of {config.all_minutes:g} min of decoding"
    try:
        seen = tuple((run.status, (run.metrics or {}).get("accuracy")) for run in e.runs)
        outcome = _standing(repository, e.id, seen, config.all_minutes)
    except FsdError as error:
        return notice(str(error), "bad")
    if not isinstance(outcome, Outcome):
        doing = f"{len(outcome.decodings)} settings on prompts {outcome.start + 1} to {outcome.end}"
        if outcome.lengths_open:
            doing = f"Replay chooses the draft lengths from {outcome.end} prompts that are recorded"
        wanted = f"Wanted: {goal_words(config)}. {doing}; {spent}."
        return render("tables/calibration.html", "under_way", wanted, so_far(config, outcome))
    setting = SettingConfig(pair=config.pair, decoding=outcome.chosen.decoding).id
    links = [(f"settings?setting={setting}", "The setting, to take along")] if outcome.chosen.sure else []
    if outcome.chosen.sure and outcome.chosen.prompts:
        chosen = "exact SD" if outcome.chosen.decoding.acceptance.lossless else "this setting"
        links.insert(0, (f"review?propose={setting}&calibration={e.id}", f"Propose {chosen}"))
    further = Html()
    if outcome.more and not e.under_way:
        further = button("go-on", "experiment", e.id, f"Continue for {whole_minutes(outcome.more.minutes)} min")
    rows = [_row(one) for one in outcome.finalists]
    return render(
        "tables/calibration.html",
        "found",
        verdict(config, outcome),
        links=links,
        further=further,
        finalists=table(_COLUMNS, rows, "Finalists of the calibration") if rows else "",
        foretold=_foretold(e),
        spent=spent,
    )


def _foretold(e: ExperimentView) -> str:
    """The address of the runs of which replay had predicted something, beside the target alone; empty without any."""
    foretold = [run.id for run in e.runs if run.predicted]
    if not foretold:
        return ""
    return f"compare?runs={','.join([e.runs[0].id, *foretold])}&baseline={e.runs[0].id}#predicted"


def _row(one: SettingResult) -> tuple[str, ...]:
    ends = one.over_exact_interval
    span = f"{ends.low:.2f} to {ends.high:.2f}" if ends else ""
    least = DASH if one.at_least is None else number(100 * one.at_least, 1, signed=True)
    seen = DASH if math.isnan(one.difference) else number(100 * one.difference, 1, signed=True)
    return (
        render("tables/measured.html", "figure", one.decoding.label, "sure" if one.sure else "not sure"),
        str(one.prompts),
        seen,
        least,
        f"{100 * one.acceptance:.0f}",
        render("tables/calibration.html", "over_exact", f"{one.over_exact:.2f}", span),
    )


@lru_cache(64)
def _standing(repository: Repository, id: str, seen: tuple[tuple[str, float | None], ...], minutes: float) -> Any:
    """Read anew when a run has ended, or was scored anew, which ``seen`` tells, and when there are other ``minutes``;
    not at every prompt and every look."""
    experiment = repository.experiment(id)
    assert isinstance(experiment.config, CalibrationConfig)
    return standing(repository, experiment.config, experiment.runs)
