"""The list of experiments as HTML: progress of unfinished ones, results of finished ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.ui.actions import delete_button, work_button
from dashboard.ui.annotations import archive_button, tags_html
from dashboard.ui.components import Column, empty_state, link, mixed_mark, notice, pill, table, with_interval
from dashboard.ui.quantities import DASH, ago, duration, interval, percent, texts_done
from dashboard.ui.templates import Html, joined, render
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.formatting import count
from fsd_core.models.model_pairs import pair_title
from fsd_core.statistics.intervals import wilson
from fsd_core.storage.records import Deletion

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView

PER_PAGE = 10

_COLUMNS = (
    Column("Setting", "wide"), Column("Seed", "num"), Column("Prompts", "num"),
    Column("Accuracy", "num"), Column("Time per answer", "num"), Column(""),
)  # fmt: skip


def experiments_html(
    experiments: Sequence[ExperimentView],
    scores: Mapping[str, tuple[int, int]],
    calibrated: Callable[[ExperimentView], Html | None] = lambda experiment: None,
    resting: Callable[[ExperimentView], str] = lambda experiment: "",
) -> Html:
    """Return one card per experiment, the latest first.

    ``scores`` maps the id of an unfinished run to its prompts solved and done. ``calibrated`` returns what a
    calibration displays instead of its runs, or ``None`` for another experiment. ``resting`` names the uses that rest
    on an experiment.
    """
    if not experiments:
        return empty_state(
            "No experiment yet",
            "",
            ("./", "Or try one prompt first"),
        )
    return joined(_card(e, scores, calibrated(e), resting(e)) for e in experiments)


def _card(e: ExperimentView, scores: Mapping[str, tuple[int, int]], calibrated: Html | None, resting: str) -> Html:
    under_way = e.under_way
    parts = [_bar(e) if under_way else _failures(e.runs)]
    if calibrated is not None:
        parts.append(calibrated)
    elif under_way:
        parts.append(_runs_table(e.runs, scores))
    return render(
        "experiments/list.html",
        "card",
        e,
        tags=tags_html(e),
        parts=parts,
        about=f"{pair_title(e.config.pair)} · {e.config.task} · {_line(e, calibrated is not None)}",
        actions=_actions(e, resting, is_calibration=calibrated is not None),
    )


def _actions(e: ExperimentView, resting: str, *, is_calibration: bool) -> list[Html]:
    """Return the card's buttons. A calibration cannot be compared: its runs are parts of settings."""
    if e.under_way:
        return [work_button(e)]
    compare = (
        [] if is_calibration else [link(f"compare?experiment={e.id}", f"Compare these {count(len(e.runs), 'run')}")]
    )
    delete = delete_button("experiment", e.id, Deletion(e.name, len(e.runs), e.prompts_done), resting)
    return [*compare, work_button(e), archive_button("experiment", e), delete]


def _line(e: ExperimentView, is_calibration: bool) -> str:
    texts = texts_done(e)
    if is_calibration:
        return f"{texts}, " + ("waiting" if e.status == "queued" else f"begun {ago(e.created_at)}")
    if not e.under_way:
        return f"{texts}, {ago(e.created_at)}"
    return f"{texts}, {_remaining(time_left(e))}" if e.status == "running" else f"{texts}, waiting"


def _remaining(seconds: float | None) -> str:
    """Return the remaining time, so coarse that the page does not change every second."""
    if seconds is None:
        return "time left not known yet"
    if seconds < 10:
        return "a few seconds left"
    if seconds < 90:
        return f"about {5 * round(seconds / 5)} s left"
    if seconds < 5400:
        return f"about {round(seconds / 60)} min left"
    return f"about {seconds / 3600:.1f} h left"


def _bar(e: ExperimentView) -> Html:
    """Return the progress in prompts, or in minutes for a calibration, whose number of prompts is unknown."""
    done, total, label = e.prompts_done, e.prompts_total, "Texts written"
    if isinstance(e.config, CalibrationConfig):
        done, total, label = e.decoding_seconds, 60 * e.config.all_minutes, "Minutes spent"
    share = min(100, 100 * done / total) if total else 0
    return render("experiments/list.html", "bar", share, label)


def _runs_table(runs: Sequence[RunView], scores: Mapping[str, tuple[int, int]]) -> Html:
    return table(_COLUMNS, [_run(run, scores.get(run.id)) for run in runs], "Runs of the experiment")


def _run(run: RunView, score: tuple[int, int] | None) -> tuple[str, ...]:
    m = run.metrics or {}
    time = duration(m.get("seconds_per_answer"))
    mark = mixed_mark(run.speed_mixed if m.get("seconds_per_answer") else ())
    return (
        render("experiments/list.html", "setting", run), str(run.seed), f"{run.prompts_done}/{run.prompts_total}",
        _accuracy(m, score), joined([time, mark]), pill(run.status),
    )  # fmt: skip


def _accuracy(metrics: Mapping[str, Any], score: tuple[int, int] | None) -> str:
    """Return the accuracy of a run, or of its prompts so far, with its interval."""
    if metrics:
        value, low, high = (metrics.get(f"accuracy{end}") for end in ("", "_low", "_high"))
    elif score is not None:
        solved, done = score
        value, (low, high) = solved / done, wilson(solved, done)
    else:
        return DASH
    ends = interval(low, high, 100)
    return with_interval(percent(value, low, high), ends)


def _failures(runs: Sequence[RunView]) -> Html:
    """Return the errors of the failed runs, each once."""
    sentences = dict.fromkeys(f"{run.label}: {run.error}" for run in runs if run.status == "failed" and run.error)
    return joined(notice(text, "bad") for text in sentences)


def time_left(experiment: ExperimentView) -> float | None:
    """Return the seconds of work that remain for an experiment, or ``None`` until one prompt is done.

    Its runs take turns prompt by prompt, so the finished prompts are a fair sample of the remaining ones.
    """
    remaining = sum(run.prompts_total - run.prompts_done for run in experiment.runs if not run.ended)
    if not remaining:
        return 0.0
    return remaining * experiment.decoding_seconds / experiment.prompts_done if experiment.prompts_done else None
