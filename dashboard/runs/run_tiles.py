"""The figures of one run: its tiles, and the table of its categories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dashboard.runs.elsewhere_html import known_tiles
from dashboard.runs.run_list import mixed_of
from dashboard.ui.components import Column, Tile, empty_state, rough, section, table, tiles
from dashboard.ui.metric_text import estimate, figure
from dashboard.ui.quantities import DASH, duration, durations, interval, percent, quantity
from dashboard.ui.templates import Html, joined
from fsd_core.analysis.cells import only_model
from fsd_core.formatting import count
from fsd_core.metrics import METRICS

if TYPE_CHECKING:
    from fsd_core.storage.records import RunView

_CATEGORY_COLUMNS = (
    Column("Category"), Column("Prompts", "num"), Column("Accuracy", "num"), Column("Acceptance rate", "num"),
    Column("Mean acceptance length", "num"), Column("Throughput", "num"), Column("Answer length", "num"),
)  # fmt: skip


def tiles_html(run: RunView) -> Html:
    """Return the four figures that say most of the run, each with its interval."""
    m = run.metrics
    if not m:
        texts = {
            "queued": "It is waiting for the worker.",
            "running": "Prompts appear below as they finish.",
            "stopped": "It was interrupted: resume it above, and it goes on at its next prompt.",
        }
        ended = "The run ended before its results were computed: resume it above, or look at others."
        return empty_state("No results yet", texts.get(run.status, ended), ("runs", "See all runs"))
    if run.measured_elsewhere:
        return known_tiles(m)
    return tiles(
        (
            Tile("Accuracy", figure(m, "accuracy"), _outcomes(m)),
            Tile(
                "Time per answer",
                figure(m, "seconds_per_answer", "s"),
                _to_target(m, "seconds_per_answer"),
                mixed_of(run, "seconds_per_answer"),
            ),
            Tile("Acceptance rate", figure(m, "acceptance_rate"), _ends(m, "acceptance_rate", 100)),
            Tile("Answer length", figure(m, "mean_tokens", "tokens"), _to_target(m, "mean_tokens")),
        )
    )


def further_tiles_html(run: RunView) -> Html:
    """Return the other figures of the run, or nothing before it has any."""
    m = run.metrics
    if not m or run.measured_elsewhere:
        return Html()
    return tiles(
        (
            Tile(
                "Throughput",
                figure(m, "tokens_per_second", "tok/s"),
                _ends(m, "tokens_per_second"),
                mixed_of(run, "tokens_per_second"),
            ),
            Tile(
                "Mean acceptance length",
                figure(m, "mean_acceptance_length"),
                "; ".join(filter(None, ("tokens per target forward", _ends(m, "mean_acceptance_length")))),
            ),
            Tile(
                "Acceptance length by request",
                figure(m, "mean_acceptance_length_by_request"),
                "; ".join(filter(None, ("mean over requests", _ends(m, "mean_acceptance_length_by_request")))),
            ),
            *_thoughts(m),
            Tile("Target passes", figure(m, "target_passes"), _to_target(m, "target_passes") or "per answer")
            if only_model(run) == "target"
            else Tile("Target passes", DASH, "a draft alone asks no target"),
            Tile("Runaways", figure(m, "runaway_rate"), "answers stopped by the limit"),
            Tile(
                "Time per solved task",
                duration(m.get("seconds_per_solved_task")),
                f"of {duration(m.get('seconds'))}",
                mixed_of(run, "seconds_per_solved_task"),
            ),
            *_taken(m),
            Tile(
                "NLL per token",
                figure(m, "negative_log_likelihood", "nats"),
                f"under the {only_model(run)}",
            ),
            Tile("Lenient tokens", f"{m.get('fuzzy_tokens', 0):,}", f"of {count(m.get('tokens', 0), 'token')}"),
            Tile(
                "Time to first token",
                duration(m.get("time_to_first_token")),
                "median",
                mixed_of(run, "time_to_first_token"),
            ),
        )
    )


def _taken(metrics: dict[str, Any]) -> list[Tile]:
    share = metrics.get("taken_share")
    return [] if share is None else [Tile("Taken by other programs", percent(share, digits=0), "of the decoding time")]


def _thoughts(metrics: dict[str, Any]) -> list[Tile]:
    if not metrics.get("mean_thought_tokens"):
        return []
    length = figure(metrics, "mean_thought_tokens", "tokens")
    return [Tile("Thought length", length, "of the answer length")]


def categories_html(categories: Mapping[str, dict[str, Any]]) -> Html:
    """Return the figures of each category of prompts, if there are several. ``categories``: metrics by name."""
    if not categories:
        return Html()
    rows = [
        (
            name,
            f"{m['n']:,}",
            _with_ends(figure(m, "accuracy"), _ends(m, "accuracy", 100)),
            _with_ends(figure(m, "acceptance_rate"), _ends(m, "acceptance_rate", 100)),
            _with_ends(figure(m, "mean_acceptance_length"), _ends(m, "mean_acceptance_length")),
            figure(m, "tokens_per_second", "tok/s"),
            figure(m, "mean_tokens", "tokens"),
        )
        for name, m in categories.items()
    ]
    return joined([section("By category"), table(_CATEGORY_COLUMNS, rows, "Figures by category of prompt")])


def _with_ends(text: Html, ends: str) -> Html:
    return joined([text, f" ({ends})" if ends else ""])


def _ends(metrics: dict[str, Any], key: str, scale: float = 1.0) -> str:
    _, low, high = estimate(metrics, key)
    ends = durations(low, high) if METRICS[key].unit == "s" else interval(low, high, scale)
    return f"95 %: {ends}" if ends else ""


def _to_target(metrics: dict[str, Any], key: str) -> str:
    """Return the ratio to the target alone of the same experiment, or else the metric's own interval."""
    metric = METRICS[key]
    name = metric.delta_key if metric.as_speedup else key
    value, low, high = estimate(metrics, f"{name}_versus_target")
    if value is None:
        return _ends(metrics, key)
    ends = interval(low, high)
    than = "as fast as the target" if metric.as_speedup else "the target's"
    return joined([rough(f"{quantity(value, low, high)}× {than}", low is None), f" ({ends})" if ends else ""])


def _outcomes(metrics: dict[str, Any]) -> str:
    ends = _ends(metrics, "accuracy", 100)
    counts = [f"{metrics[name]} {name}" for name in ("truncated", "failed", "unread") if metrics.get(name)]
    if metrics.get("published_differs"):
        counts.append(f"{metrics['published_correct']} correct by the benchmark's published filter")
    return "; ".join(part for part in [ends, *counts] if part)
