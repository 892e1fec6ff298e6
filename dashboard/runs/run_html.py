"""One run as HTML: its header, its notices, its provenance, and its prompts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from dashboard.tables.run_settings import settings_table
from dashboard.tables.task_version import lines_link
from dashboard.ui.actions import button, delete_button
from dashboard.ui.annotations import archive_button
from dashboard.ui.components import (
    Column,
    empty_state,
    facts,
    legend,
    notice,
    page_note,
    pill,
    table,
    tokens_html,
)
from dashboard.ui.quantities import DASH, duration, moment, percent, quantity
from dashboard.ui.templates import Html, joined, render, script
from fsd_core.analysis.reading_versions import read_differently
from fsd_core.conditions import MIXED_MARK, phrases, sessions_sentence, which
from fsd_core.engines.engine_summary import engine_sentences, latency_sentence
from fsd_core.formatting import count
from fsd_core.models.model_pairs import pair_title
from fsd_core.storage.records import Deletion
from fsd_core.tracking.mlflow_links import run_url

if TYPE_CHECKING:
    from fsd_core.analysis.slowdown import Slowdown
    from fsd_core.storage.playground_chunks import EmittedToken
    from fsd_core.storage.records import GenerationView, RunView

_PROMPT_COLUMNS = (
    Column("#", "num"), Column("Prompt", "wide"), Column("Outcome"), Column("Answer"), Column("Expected"),
    Column("Tokens", "num"), Column("Acceptance rate", "num"), Column("Time", "num"),
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


def notes_html(run: RunView) -> Html:
    """Return the notes from loading the pair, and on several versions of the reading, if there are any."""
    return joined(notice(text, "warn") for text in (run.note_on_models, read_differently([run])) if text)


def engine_html(run: RunView) -> Html:
    """Return on which engine a run was measured, under which load, and what its counters do not say."""
    sentences = engine_sentences(run)
    if not sentences:
        return Html()
    first, *warnings = sentences
    return joined([page_note(f"{first} {latency_sentence(run)}".strip()), *(notice(text, "warn") for text in warnings)])


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
