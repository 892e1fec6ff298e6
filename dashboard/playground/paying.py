"""Whether speculation pays: what was measured of a pair before, and what one prompt showed after."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.quantities import percent, quantity
from fsd_core.formatting import count

if TYPE_CHECKING:
    from dashboard.playground.setting_views import OutputPanel
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import RunView

ADVICE = "speculation does not pay {where}; try math, or copying (prompt lookup)."
_LATEST = 40
"""runs of a pair that are looked through"""


def slow_pair(repository: Repository, pair: str) -> str:
    """Return what measured runs say of a pair whose exact SD is slower than the target alone on every task, or
    nothing."""
    runs = repository.runs(pair=pair, limit=_LATEST, calibration_rounds=False)
    best = max(filter(_speed_of, runs), key=_speed_of, default=None)
    if best is None or (best.metrics or {})["speedup_versus_target_high"] >= 1:
        return ""
    metrics = best.metrics or {}
    speed = quantity(*(metrics[f"speedup_versus_target{end}"] for end in ("", "_low", "_high")))
    accepted = percent(metrics["acceptance_rate"], digits=0)
    return (
        f"Measured here on {count(best.prompts_done, 'prompt')} of {best.task}: {accepted} accepted, {speed} × as fast "
        f"as the target alone. {ADVICE.format(where='there').capitalize()}"
    )


def slow_prompt(panels: Sequence[OutputPanel]) -> str:
    """Return that no drafting setting was faster than the target alone on a prompt, with the share that was accepted
    of the fastest, or nothing."""
    figures = [panel.figures for panel in panels if panel.figures and panel.figures.acceptance_rate is not None]
    timed = [(figure.speed_up, figure) for figure in figures if figure.speed_up is not None and not figure.held_up]
    if not timed or len(timed) < len(figures) or max(speed for speed, _ in timed) >= 1:
        return ""
    _, best = max(timed, key=lambda pair: pair[0])
    return f"On this prompt {percent(best.acceptance_rate, digits=0)} accepted: {ADVICE.format(where='here')}"


def _speed_of(run: RunView) -> float:
    """Return how many times as fast as the target alone a run of exact SD was; 0 if that is unknown."""
    metrics = run.metrics or {}
    known = all(metrics.get(name) is not None for name in ("speedup_versus_target_high", "acceptance_rate"))
    return metrics["speedup_versus_target"] if known and run.decoding.acceptance.is_exact else 0.0
