"""One run as HTML: its setting, its results, its provenance, and its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dashboard.runs.elsewhere_html import known_tiles
from dashboard.runs.run_list import mixed_of
from dashboard.tables.run_settings import settings_table
from dashboard.tables.task_version import lines_link
from dashboard.ui.actions import button, delete_button
from dashboard.ui.annotations import archive_button
from dashboard.ui.components import (
    Column,
    Tile,
    empty_state,
    facts,
    legend,
    notice,
    page_note,
    pill,
    rough,
    section,
    table,
    tiles,
    tokens_html,
)
from dashboard.ui.metric_text import estimate, figure
from dashboard.ui.quantities import DASH, duration, interval, moment, percent, quantity
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.analysis.cells import only_model
from fsd_core.conditions import MIXED_MARK, phrases, sessions_sentence, which
from fsd_core.engines.engine_summary import engine_sentences, latency_sentence
from fsd_core.formatting import count
from fsd_core.metrics import METRICS
from fsd_core.models.model_pairs import pair_title
from fsd_core.storage.records import Deletion
from fsd_core.tracking.mlflow_links import run_url

if TYPE_CHECKING:
    from fsd_core.analysis.slowdown import Slowdown
    from fsd_core.storage.messages import EmittedToken
    from fsd_core.storage.records import GenerationView, RunView

_PROMPT_COLUMNS = (
    Column("#", "num"), Column("Prompt", "wide"), Column("Outcome"), Column("Answer"), Column("Expected"),
    Column("Tokens", "num"), Column("Acceptance rate", "num"), Column("Time", "num"),
)  # fmt: skip

_CATEGORY_COLUMNS = (
    Column("Category"), Column("Prompts", "num"), Column("Accuracy", "num"), Column("Acceptance rate", "num"),
    Column("Mean acceptance length", "num"), Column("Throughput", "num"), Column("Answer length", "num"),
)  # fmt: skip

CHOOSE_PROMPT = script("runs/choose_prompt.js")


def header_html(run: RunView, mlflow: str | None, resting: str = "") -> Html:
    """Return the link back, the setting, the run's status, and the links elsewhere. ``resting`` names the uses that
    rest on it."""
    about = [f"{run.task}, {run.prompts_done} of {count(run.prompts_total, 'prompt')}", f"seed {run.seed}"]
    about.append(pair_title(run.pair))
    return render(
        "runs/run.html",
        "header",
        run,
        about=" · ".join(about),
        in_mlflow=run_url(mlflow, None, run.mlflow_run_id) if mlflow and run.mlflow_run_id else "",
        not_yet=run.ended and mlflow is not None,
        actions=[lines_link(run.task, "Prompts of the task"), *_actions(run, resting)],
    )


def _actions(run: RunView, resting: str) -> list[Html]:
    if run.under_way:
        return [archive_button("run", run)]
    resume = [button("resume", "run", run.id, "Resume")] if run.has_more_to_do else []
    delete = delete_button("run", run.id, Deletion(run.label, 1, run.prompts_done), resting)
    return [*resume, archive_button("run", run), delete]


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


def slower_html(slowdown: Slowdown) -> Html:
    """Return why the run is slower than the target alone."""
    return notice(f"Slower than the target alone. {slowdown.sentence()}", "warn")


def sittings_html(run: RunView, positions: Mapping[int, Sequence[int]]) -> Html:
    """Return which prompts were measured under which conditions, if these differ.

    ``positions`` maps the id of a measurement session to the positions of its prompts.
    """
    text = sessions_sentence(
        [(session.conditions, positions.get(session.id, ())) for session in run.measurement_sessions]
    )
    return notice(f"{text} Speeds and times marked {MIXED_MARK} are not one figure.", "warn") if text else Html()


def models_note_html(run: RunView) -> Html:
    """Return what was told of the pair's files when it was loaded, if anything."""
    return notice(run.note_on_models, "warn") if run.note_on_models else Html()


def engine_html(run: RunView) -> Html:
    """Return on which engine a run was measured, under which load, and what its counters do not say."""
    sentences = engine_sentences(run)
    if not sentences:
        return Html()
    first, *warnings = sentences
    return joined([page_note(f"{first} {latency_sentence(run)}".strip()), *(notice(text, "warn") for text in warnings)])


def _ends(metrics: dict[str, Any], key: str, scale: float = 1.0) -> str:
    _, low, high = estimate(metrics, key)
    ends = interval(low, high, scale)
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
    counts = [f"{metrics[name]} {name}" for name in ("truncated", "failed") if metrics.get(name)]
    return "; ".join(filter(None, [ends, *counts]))


def provenance_html(
    run: RunView, positions: Mapping[int, Sequence[int]], task: Mapping[str, str] | None = None
) -> Html:
    """Return all settings, the facts of the task's version, the times, the provenance and the sessions, folded.

    ``positions`` maps the id of a measurement session to the positions of its prompts.
    """
    table_of_settings = settings_table([run], differences_only=False)
    values: dict[str, object] = dict(zip(table_of_settings.columns, table_of_settings.rows[0], strict=True))
    values |= task or {}
    values |= {"Run": run.id, "Created": moment(run.created_at), "Finished": moment(run.finished_at)}
    for key, value in (run.provenance or {}).items():
        name = key.replace("_", " ").capitalize()
        values[name] = ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
    for number, session in enumerate(run.measurement_sessions, start=1):
        if session.id in positions:
            start = f"from {moment(session.started_at)}, {which(positions[session.id])}"
            values[f"Sitting {number}"] = f"{start}: {phrases(session.conditions)}"
    return render("runs/run.html", "provenance", facts(values))


def prompts_html(
    run_id: str, generations: Sequence[GenerationView], selected: int | None, filtered: bool, *, elsewhere: bool = False
) -> Html:
    """Return a page of prompts with the chosen one marked."""
    if elsewhere:
        others = f"compare?runs={run_id}", "Compare this run"
        return empty_state("No prompts", "Only figures of a run that was measured elsewhere are kept here.", others)
    if not generations and filtered:
        show_all = f"runs?run={run_id}", "Show all prompts"
        return empty_state("No prompt matches", "Choose another outcome, or clear the search.", show_all)
    if not generations:
        show_work = "experiments", "See how far the work is"
        return empty_state("No prompt is done yet", "They appear here one by one.", show_work)
    return table(_PROMPT_COLUMNS, [_prompt_row(g, g.position == selected) for g in generations], "Prompts of the run")


def _prompt_row(g: GenerationView, is_selected: bool) -> tuple[str, ...]:
    prompt = f"Turn {g.turn + 1}: {g.prompt}" if g.turn else g.prompt
    prompt = prompt if len(prompt) <= 110 else prompt[:109].rstrip() + "…"
    return (
        str(g.position + 1),
        render("runs/run.html", "chooser", g.position, prompt, is_selected),
        pill(g.outcome),
        _short(g.answer),
        _short(g.reference),
        f"{g.tokens:,}",
        percent(g.accepted / g.drafted) if g.drafted else DASH,
        duration(g.seconds),
    )


def _short(text: str | None) -> str:
    return DASH if text is None else text if len(text) <= 24 else text[:23] + "…"


def prompt_html(
    g: GenerationView,
    tokens: Sequence[EmittedToken] | None,
    problem: str = "",
    earlier: Sequence[GenerationView] = (),
) -> Html:
    """Return one prompt with its text. ``tokens`` is ``None`` if they are unavailable, and ``problem`` says why.
    ``earlier`` are the turns of its conversation before it."""
    figures = {
        "Outcome": g.outcome,
        "Answer": g.answer if g.answer is not None else DASH,
        "Expected": g.reference if g.reference is not None else DASH,
        "Ended by": {
            "eos": "end of text",
            "length": "token limit",
            "context": "full context",
        }.get(g.stop_reason, g.stop_reason),
        "Speed": f"{quantity(g.tokens / g.seconds if g.seconds else None)} tok/s, {duration(g.seconds)}",
        "Drafts": f"{g.accepted} of {g.drafted} accepted in {count(g.rounds, 'round')}, {g.fuzzy} lenient",
    }
    return render(
        "runs/run.html",
        "prompt",
        g,
        earlier=earlier,
        problem=problem,
        tokens=None if tokens is None else tokens_html(tokens),
        legend=legend() if tokens else "",
        facts=facts(figures),
    )
