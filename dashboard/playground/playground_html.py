"""What the playground shows of one setting, as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dashboard.playground.setting_views import OutputPanel
from dashboard.ui.components import escape, notice, term, tokens_html
from dashboard.ui.quantities import DASH, percent, quantity
from dashboard.ui.worker_status import absence_notice
from fsd_core.storage.messages import StreamFigures

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.records import WorkerView

_ENDS = {"length": "stopped at the token limit", "context": "stopped: the context is full", "eos": "finished"}


def waiting_html(number: int) -> str:
    """The place of a setting's text before anything was asked for."""
    return (
        f'<section class="lane empty" aria-label="Setting {number}"><p class="fsd-faded">The text of setting {number} '
        "appears here. Choose Generate to begin.</p></section>"
    )


def worker_notice(worker: WorkerView | None, executor: Executor, status: str) -> str:
    """What a job of which nothing is written yet waits for."""
    if worker is None or not worker.alive:
        return absence_notice(worker, executor)
    if status == "running":
        return notice("The worker is loading the models.")
    busy = worker.activity not in ("", "idle")
    return notice("The worker will start after its current prompt." if busy else "Waiting for the worker.")


def lane_html(number: int, lane: OutputPanel) -> str:
    """A setting's label, its figures and its text so far."""
    label = escape(lane.decoding.label)
    if lane.error:
        body = notice(lane.error, "bad")
    elif lane.tokens:
        body = tokens_html(lane.tokens, f"Text of setting {number}")
    else:
        body = f'<p class="fsd-faded">{"The model wrote nothing." if lane.done else "…"}</p>'
    end = _ENDS.get(lane.stop_reason or "", "") if lane.done else ""
    return (
        f'<section class="lane" aria-label="Setting {number}" data-done="{"true" if lane.done else "false"}">'
        f'<header><h3>{label}</h3><span class="fsd-faded">{escape(end)}</span></header>{_figures(lane)}{body}</section>'
    )


def _figures(lane: OutputPanel) -> str:
    figures = lane.figures or StreamFigures.of(tokens=0, rounds=0, drafted=0, accepted=0, seconds=0.0)
    speed = figures.tokens_per_second
    values = (
        ("tokens/s", f"{speed:,.0f}" if speed else DASH),
        ("acceptance rate", percent(figures.acceptance_rate)),
        ("mean acceptance length", quantity(figures.mean_acceptance_length or None)),
        ("tokens", f"{figures.tokens:,}" if lane.figures else DASH),
    )
    inner = "".join(f"<div><dd>{value}</dd><dt>{term(name)}</dt></div>" for name, value in values)
    return f'<dl class="live">{inner}</dl>'
