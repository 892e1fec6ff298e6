"""A calibration as HTML: how far it is, or what it found."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from dashboard.ui.actions import button
from dashboard.ui.components import Column, escape, notice, table
from dashboard.ui.quantities import DASH
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


def calibration_html(repository: Repository, e: ExperimentView) -> str | None:
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
        already = f"<p>{escape(sure)}.</p>" if (sure := so_far(config, outcome)) else ""
        return f"<p>{escape(f'Wanted: {goal_words(config)}. {doing}; {spent}.')}</p>{already}"
    setting = escape(SettingConfig(pair=config.pair, decoding=outcome.chosen.decoding).id)
    links = [f'<a href="settings?setting={setting}">The setting, to take along</a>'] if outcome.chosen.sure else []
    if outcome.chosen.sure and outcome.chosen.prompts:
        chosen = "exact SD" if outcome.chosen.decoding.acceptance.lossless else "this setting"
        links.insert(0, f'<a href="review?propose={setting}&calibration={escape(e.id)}">Propose {chosen}</a>')
    further = ""
    if outcome.more and not e.under_way:
        further = button("go-on", "experiment", e.id, f"Continue for {whole_minutes(outcome.more.minutes)} min")
    found = f'<p class="exp-verdict">{escape(verdict(config, outcome))}</p><p>{" · ".join(links)} {further}</p>'
    rows = [_row(one) for one in outcome.finalists]
    finalists = table(_COLUMNS, rows, "Finalists of the calibration") if rows else ""
    return found + finalists + _foretold(e) + f"<p>{escape(spent)}</p>"


def _foretold(e: ExperimentView) -> str:
    """A link to the runs of which replay had predicted something, beside the target alone; nothing without any."""
    foretold = [run.id for run in e.runs if run.predicted]
    if not foretold:
        return ""
    first = f"compare?runs={','.join([e.runs[0].id, *foretold])}&baseline={e.runs[0].id}#predicted"
    return f'<p><a href="{escape(first)}">What replay predicted, beside what was measured</a></p>'


def _row(one: SettingResult) -> tuple[str, ...]:
    ends = one.over_exact_interval
    span = f'<span class="range">{ends.low:.2f} to {ends.high:.2f}</span>' if ends else ""
    least = DASH if one.at_least is None else number(100 * one.at_least, 1, signed=True)
    seen = DASH if math.isnan(one.difference) else number(100 * one.difference, 1, signed=True)
    return (
        f'{escape(one.decoding.label)}<br><small>{"sure" if one.sure else "not sure"}</small>', str(one.prompts), seen,
        least, f"{100 * one.acceptance:.0f}", f"{one.over_exact:.2f}{span}",
    )  # fmt: skip


@lru_cache(64)
def _standing(repository: Repository, id: str, seen: tuple[tuple[str, float | None], ...], minutes: float) -> Any:
    """Read anew when a run has ended, or was scored anew, which ``seen`` tells, and when there are other ``minutes``;
    not at every prompt and every look."""
    experiment = repository.experiment(id)
    assert isinstance(experiment.config, CalibrationConfig)
    return standing(repository, experiment.config, experiment.runs)
