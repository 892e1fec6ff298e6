"""One setting of the playground as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.playground.setting_views import OutputPanel
from dashboard.tables.prompt_pairs import DiffPiece
from dashboard.ui.algorithms import forgiven
from dashboard.ui.components import notice, term, tokens_html
from dashboard.ui.quantities import DASH, percent, quantity
from dashboard.ui.templates import Html, render
from dashboard.ui.worker_status import absence_notice
from fsd_core.models.model_pairs import pair_title
from fsd_core.storage.playground_chunks import StreamFigures

if TYPE_CHECKING:
    from fsd_core.settings import Executor
    from fsd_core.storage.records import WorkerView

_ENDS = {"length": "stopped at the token limit", "context": "stopped: the context is full", "eos": "finished"}


def waiting_html(number: int) -> Html:
    """Return the placeholder of a setting's text before the first request."""
    return render("playground/playground.html", "waiting", number)


def worker_notice(worker: WorkerView | None, executor: Executor, status: str) -> Html:
    """Return the reason why a job has no output yet."""
    if worker is None or not worker.alive:
        return absence_notice(worker, executor)
    if status == "running":
        return notice("The worker is loading the models.")
    busy = worker.activity not in ("", "idle")
    return notice("The worker will start after its current prompt." if busy else "Waiting for the worker.")


def followed_html(job: str) -> Html:
    """Return the id of the job that the page shows, for its scripts."""
    return render("playground/playground.html", "followed", job)


def output_panel_html(number: int, panel: OutputPanel, pair: str, pieces: Sequence[DiffPiece] = ()) -> Html:
    """Return a setting's label, its pair, its figures and its text so far. ``pieces`` mark where it differs."""
    decoding = panel.decoding
    tokens = tokens_html(
        panel.tokens, f"Text of setting {number}", rule=forgiven(decoding), greedy=decoding.sampling.greedy,
        pieces=[(piece.text, piece.changed) for piece in pieces],
    )  # fmt: skip
    return render(
        "playground/playground.html",
        "output",
        number,
        panel=panel,
        pair=pair_title(pair),
        tokens=tokens if panel.tokens else "",
        end=_ENDS.get(panel.stop_reason or "", "") if panel.done else "",
        figures=_figures(panel),
        pace=_pace(panel),
    )


def _pace(panel: OutputPanel) -> str:
    """Return the speed beside that of the target alone, or nothing for that one itself."""
    figures = panel.figures
    if figures is None or figures.speed_up is None or panel.decoding.acceptance.kind == "autoregressive":
        return ""
    alone = figures.target_tokens_per_second
    return f"{figures.speed_up:.2f}× as fast as the target alone, which writes {alone:,.0f} tokens/s"


def _figures(panel: OutputPanel) -> list[tuple[str, Html]]:
    """Return values and their names."""
    figures = panel.figures or StreamFigures.of(tokens=0, rounds=0, drafted=0, accepted=0, seconds=0.0)
    speed = figures.tokens_per_second
    return [
        (f"{speed:,.0f}" if speed else DASH, term("tokens/s")),
        (percent(figures.acceptance_rate), term("acceptance rate")),
        (quantity(figures.mean_acceptance_length or None), term("mean acceptance length")),
        (f"{figures.tokens:,}" if panel.figures else DASH, term("tokens")),
    ]


def compared_html(sentences: Sequence[str], job: str, *, marked: bool) -> Html:
    """Return how the settings of a job compare and what that is worth, or nothing if they cannot be compared.

    ``marked``: whether differences are marked in the texts.
    """
    return render("playground/playground.html", "compared", sentences, job=job, marked=marked)


def added_html(task: str, prompts: int, job: str) -> Html:
    """Return that a task has a prompt, and a link that measures the job's settings on the task."""
    return render("playground/playground.html", "added", task, prompts=prompts, job=job)
