"""One run opened: its metrics, its figures, its prompts, and one prompt token by token."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import gradio as gr
from tokenizers import Tokenizer

from dashboard.runs.opened_experiment import AnnotationPanel
from dashboard.runs.run_list import mixed_of
from dashboard.runs.unread_panel import UnreadPanel
from dashboard.tables.prompt_pairs import hidden_html
from dashboard.tables.run_record import lines_link, on_same_prompts, settings_table, sibling_runs, version_facts
from dashboard.ui import components
from dashboard.ui.components import (
    Column,
    Tile,
    archive_button,
    button,
    delete_button,
    empty_state,
    estimate,
    facts,
    figure,
    legend,
    notice,
    page_note,
    pill,
    rough,
    section,
    show,
    table,
    tiles,
    tokens_html,
)
from dashboard.ui.fields import Fold, Pager
from dashboard.ui.templates import (
    Html,
    addressed,
    duration,
    durations,
    interval,
    joined,
    moment,
    quantity,
    render,
    script,
)
from dashboard.ui.view import MOST_COUNTED, Asked, Part, Updates, View, count_in, digest
from fsd_core.analysis.cells import by_category, only_model
from fsd_core.analysis.comparability import read_differently
from fsd_core.analysis.recommendation import slowdown
from fsd_core.decoding.trace import RoundRecord
from fsd_core.engines.kinds import engine_sentences, latency_sentence
from fsd_core.errors import FsdError, ModelUnavailable
from fsd_core.evaluation.aggregate import refreshed
from fsd_core.metrics import METRICS, MIXED_MARK, Metric, phrases, sessions_sentence, which
from fsd_core.models.conversation import THOUGHT_MARKS, read_marks
from fsd_core.models.model_pairs import get_pair, pair_title
from fsd_core.models.sources import obtained, with_marks
from fsd_core.plots import acceptance
from fsd_core.plots.trade_offs import DIVERGENCE_FIGURE
from fsd_core.provenance import run_url
from fsd_core.review.blinding import HiddenAnswers, hidden_answers
from fsd_core.review.review_service import resting_on
from fsd_core.storage.messages import EmittedToken
from fsd_core.storage.records import Deletion, origin_text, other_figures
from fsd_core.tasks.custom.custom_task import categories
from fsd_core.texts import DASH, count, percent
from fsd_core.worker.token_builder import TokenBuilder

if TYPE_CHECKING:
    from fsd_core.analysis.recommendation import Slowdown
    from fsd_core.storage.records import GenerationView, RunView
    from fsd_core.storage.repository import Repository


def displayed_tokens(pair: str, records: Sequence[RoundRecord], marks: str = "") -> list[EmittedToken]:
    """Return the output tokens. Their joined texts are the decoded text, with the ``marks`` of thoughts of the run.

    Raises ``UnknownName`` or ``ModelUnavailable`` if the pair's tokenizer is unavailable.
    """
    builder = TokenBuilder(_tokenizer(pair, marks))
    rounds = enumerate(records, 1)
    return [token for number, record in rounds for token in builder.add(record, last=number == len(records))]


@lru_cache(maxsize=4)
def _tokenizer(pair: str, marks: str) -> Tokenizer:
    spec = get_pair(pair)
    models = [model for model in (spec.target, spec.draft) if model is not None]
    folders = [folder for model in models if (folder := obtained(model)) is not None]
    # A draft on its target's embedding has no tokenizer of its own.
    with_tokenizer = [folder for folder in folders if (folder / "tokenizer.json").is_file()]
    folder = next(iter(with_tokenizer or folders), None)
    if folder is None:
        raise ModelUnavailable(f"The tokenizer of the pair '{pair}' is not on this machine: run the pair once.")
    path = folder / "tokenizer.json"
    try:
        return with_marks(Tokenizer.from_file(str(path)), read_marks(marks))
    except Exception as error:  # tokenizers raises bare Exception for a file that is missing or damaged
        raise ModelUnavailable(
            f"The tokenizer of the pair '{pair}' cannot be read ({path.name}: {error}). Put its model folder back."
        ) from None


def origin_html(run: RunView) -> Html:
    """Return where the figures come from; nothing for a run that was measured here."""
    if not run.measured_elsewhere:
        return Html()
    title = run.decoding.acceptance.title
    return notice(
        f"{title}: {origin_text(run)}. Nothing here has verified these figures, so they get no verdict.", "warn"
    )


def known_tiles(metrics: dict[str, Any]) -> Html:
    """Return the figures that are known, each with its interval."""
    known = [metric for metric in METRICS.values() if metrics.get(metric.key) is not None]
    own = [
        Tile(name, quantity(*found), f"95 %: {ends}" if (ends := interval(found.low, found.high)) else "")
        for name, found in other_figures(metrics).items()
    ]
    return tiles(
        [Tile("Prompts", f"{metrics['n']:,}", _failed(metrics)), *(_tile(metrics, one) for one in known), *own]
    )


def _tile(metrics: dict[str, Any], metric: Metric) -> Tile:
    _, low, high = estimate(metrics, metric.key)
    ends = interval(low, high, metric.scale)
    return Tile(metric.title, figure(metrics, metric.key, metric.unit), f"95 %: {ends}" if ends else "")


def _failed(metrics: dict[str, Any]) -> str:
    return f"{count(metrics['failed'], 'prompt')} failed" if metrics.get("failed") else ""


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
            _measured(run, "accuracy", _outcomes(m)),
            _measured(run, "seconds_per_answer", _to_target(m, "seconds_per_answer"), "s"),
            _measured(run, "acceptance_rate", _ends(m, "acceptance_rate")),
            _measured(run, "mean_tokens", _to_target(m, "mean_tokens"), "tokens"),
        )
    )


def _measured(run: RunView, key: str, note: str, unit: str = "") -> Tile:
    """Return a metric of the run under its title, with a note below."""
    return Tile(METRICS[key].title, figure(run.metrics or {}, key, unit), note, mixed_of(run, key))


def further_tiles_html(run: RunView) -> Html:
    """Return the other figures of the run, or nothing before it has any."""
    m = run.metrics
    if not m or run.measured_elsewhere:
        return Html()
    return tiles(
        (
            _measured(run, "tokens_per_second", _ends(m, "tokens_per_second"), "tok/s"),
            *(
                _measured(run, key, "; ".join(filter(None, (what, _ends(m, key)))))
                for key, what in (
                    ("mean_acceptance_length", "tokens per target forward"),
                    ("mean_acceptance_length_by_request", "mean over requests"),
                )
            ),
            *_thoughts(m),
            _measured(run, "target_passes", _to_target(m, "target_passes") or "per answer")
            if only_model(run) == "target"
            else Tile("Target passes", DASH, "a draft alone asks no target"),
            _measured(run, "runaway_rate", "answers stopped by the limit"),
            Tile(
                "Time per solved task",
                duration(m.get("seconds_per_solved_task")),
                f"of {duration(m.get('seconds'))}",
                mixed_of(run, "seconds_per_solved_task"),
            ),
            *_taken(m),
            _measured(run, "negative_log_likelihood", f"under the {only_model(run)}", "nats"),
            Tile("Lenient tokens", f"{m.get('fuzzy_tokens', 0):,}", f"of {count(m.get('tokens', 0), 'token')}"),
            _measured(run, "time_to_first_token", "median", "s"),
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
            *(_with_ends(m, key) for key in ("accuracy", "acceptance_rate", "mean_acceptance_length")),
            figure(m, "tokens_per_second", "tok/s"),
            figure(m, "mean_tokens", "tokens"),
        )
        for name, m in categories.items()
    ]
    return joined([section("By category"), table(_CATEGORY_COLUMNS, rows, "Figures by category of prompt")])


def _with_ends(metrics: dict[str, Any], key: str) -> Html:
    ends = _ends(metrics, key)
    return joined([figure(metrics, key), f" ({ends})" if ends else ""])


def _ends(metrics: dict[str, Any], key: str) -> str:
    _, low, high = estimate(metrics, key)
    ends = durations(low, high) if METRICS[key].unit == "s" else interval(low, high, METRICS[key].scale)
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
    ends = _ends(metrics, "accuracy")
    counts = [f"{metrics[name]} {name}" for name in ("truncated", "failed") if metrics.get(name)]
    if metrics.get("published_differs"):
        counts.append(f"{metrics['published_correct']} correct by the benchmark's published filter")
    return "; ".join(part for part in [ends, *counts] if part)


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


def sessions_html(run: RunView, positions: Mapping[int, Sequence[int]]) -> Html:
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
            values[f"Measurement session {number}"] = f"{start}: {phrases(session.conditions)}"
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


PROMPTS_PER_PAGE = 20
_POLL_SECONDS = 1.5
OUTCOMES = ("correct", "wrong", "unread", "truncated", "failed", "unscored")
_ALL = "all"
IN_ORDER, WORST = "", "worst"


class OpenedRun(Part):
    """The page's components as attributes, and one method per event that returns the components it changes."""

    def __init__(self, repository: Repository, mlflow_url: str | None) -> None:
        self.repository, self.mlflow_url = repository, mlflow_url
        self.head = show(js_on_load=components.CLICKS)
        self.answer = show()
        self.tiles = show()
        self.unread = UnreadPanel(repository)
        self.all_figures = Fold("run-figures", "All figures")
        with self.all_figures.part:
            self.further = show()
        self.panel = AnnotationPanel(repository, "run")
        self.categories = show()
        with gr.Row(visible=False) as self.figures:
            with gr.Column(min_width=340):
                self.positions = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.divergences = gr.Plot(show_label=False)
            with gr.Column(min_width=340):
                self.requests = gr.Plot(show_label=False)
        self.provenance = show()
        self.history = self.panel.history = show()
        self._build_prompts()
        self.clock = gr.Timer(_POLL_SECONDS, active=False)
        self.fields, self.forms = [self.outcome, self.search, self.order], [*self.panel.forms, *self.unread.forms]
        self.outputs = [
            self.head, self.answer, self.tiles, self.further, self.categories, self.figures, self.positions,
            self.divergences, self.requests, self.provenance, self.history, *self.panel.outputs, *self.unread.outputs,
            self.prompts, self.prompt, self.clock, *self.pager.parts,
        ]  # fmt: skip

    def _build_prompts(self) -> None:
        show(section("Prompts"))
        with gr.Row(elem_classes=["run-filters"]):
            choices = [("All", _ALL), *((outcome.capitalize(), outcome) for outcome in OUTCOMES)]
            self.outcome = gr.Dropdown(choices, value=_ALL, label="Outcome", min_width=150)
            orders = [("As in the task", IN_ORDER), ("Lowest acceptance first", WORST)]
            self.order = gr.Dropdown(orders, value=IN_ORDER, label="Order", min_width=170)
            self.search = gr.Textbox(
                label="Search", placeholder="Prompt, text or answer", max_length=200, scale=3, min_width=220
            )
        with gr.Row(equal_height=False, elem_classes=["run-prompts"]):
            with gr.Column(scale=7, min_width=340):
                self.prompts = show(js_on_load=CHOOSE_PROMPT, elem_id="prompts")
                self.pager = Pager(PROMPTS_PER_PAGE, "prompt")
            with gr.Column(scale=5, min_width=340, elem_classes=["run-side"]):
                self.prompt = show(elem_id="prompt")

    def listen(self, view: View) -> None:
        """Attach the events."""
        self.panel.listen(view)
        self.unread.listen(view)
        self.all_figures.listen(view)
        view.turns(self.pager.name, self.pager.steps)
        view.on(self.prompts.click, self.head.click, self.clock.tick)

    def redraw(self, asked: Asked, run_id: str) -> Updates:
        """Return the updates of a run. Raises ``UnknownName`` if it does not exist."""
        run = self.repository.run(run_id)
        order = asked.address.get("prompts", "") if asked.opening else asked[self.order]
        order = WORST if order == WORST else IN_ORDER  # an address may hold anything
        if asked.opening:
            asked.fill(self.order, order)
            if (outcome := asked.address.get("outcome")) in OUTCOMES:
                asked.fill(self.outcome, outcome)
        updates = self.panel.redraw(run, asked) | self.unread.redraw(asked, run)
        if asked.differs("run", _state(run), run.archived, run.label):
            updates |= self._run(run)
        unfolded = self.all_figures.is_open(asked)
        if asked.differs("all figures", unfolded, _state(run) if unfolded else None):
            counts = self.repository.prompts([run.id]) if unfolded and run.metrics else {}
            updates[self.further] = further_tiles_html(refreshed(run, counts.get(run.id, {}))) if unfolded else ""
        hidden = hidden_answers(self.repository, asked.person, [run.id])
        position = self._selected(asked, run, order, hidden.of(run.id))
        return (
            updates
            | self._list(asked, run, order, position, hidden)
            | self._selected_prompt(asked, run, position, hidden.of(run.id))
        )

    def _selected(self, asked: Asked, run: RunView, order: str, hidden: frozenset[int]) -> int | None:
        """Return the position of the prompt that was opened; without one, it is the first that was listed."""
        wanted = asked.wanted("prompt")
        if not isinstance(wanted, int) or not 0 <= wanted < MOST_COUNTED:
            wanted = count_in(asked.shown["first prompt"]) if "first prompt" in asked.shown else None
        part: dict[str, Any] = {"worst_first": order == WORST, "limit": 1, "without": hidden}
        if wanted is None and (first := self.repository.generations(run.id, **part)):
            wanted = first[0].position
            asked.shown["first prompt"] = str(wanted)
        return wanted

    def _list(
        self, asked: Asked, run: RunView, order: str, selected: int | None, hidden: HiddenAnswers
    ) -> Updates:  # fmt: skip
        """Return a page of the prompts, if it differs."""
        outcome, search = asked.current(self.outcome), (asked[self.search] or "").strip()
        filters: dict[str, Any] = {} if outcome == _ALL else {"outcome": outcome}
        if search:
            filters["search"] = search
        filtered = bool(filters)
        if without := hidden.of(run.id):  # neither a search nor a filter tells which answer is whose
            filters["without"] = sorted(without)
        of = digest(filters, order)
        wanted_page = asked.page(self.pager.name, of)
        if not asked.differs("prompts", of, wanted_page, selected, _state(run)):
            return {}
        total = self.repository.count_generations(run.id, **filters)
        page = self.pager.clamp(wanted_page, total)
        part = {"worst_first": order == WORST, "limit": PROMPTS_PER_PAGE, "offset": page * PROMPTS_PER_PAGE}
        generations = self.repository.generations(run.id, **filters, **part)
        html = hidden_html(len(without), hidden.proposals)
        if generations or not without or filtered:
            html = joined(
                [prompts_html(run.id, generations, selected, filtered=filtered, elsewhere=run.measured_elsewhere), html]
            )
        return {self.prompts: html} | self.pager.updates(page, total, of)

    def _selected_prompt(self, asked: Asked, run: RunView, position: int | None, hidden: frozenset[int]) -> Updates:
        """Return one prompt token by token, if it differs."""
        if position in hidden:
            return {self.prompt: ""} if asked.differs("prompt", "hidden") else {}
        generation = (
            next(iter(self.repository.generations(run.id, position=position)), None) if position is not None else None
        )
        if generation is None or not asked.differs("prompt", generation.id, sorted(hidden)):
            return {}
        return {self.prompt: self._prompt(run, generation, hidden)}

    def _run(self, run: RunView) -> Updates:
        target = self._target_alone(run)
        prompts = self.repository.prompts([run.id, *([target.id] if target else [])]) if run.metrics else {}
        run = refreshed(run, prompts.get(run.id, {}))
        slower = slowdown(run, target, prompts) if target else None
        session_positions = self.repository.session_positions(run.id)
        has_drafts = run.metrics is not None and bool(run.metrics.get("acceptance_at_position"))
        figures = (
            {
                self.positions: addressed(
                    acceptance.draw_positions(acceptance.positions_info([run])), "positions", f"runs={run.id}"
                ),
                self.divergences: addressed(
                    acceptance.draw_divergence(acceptance.divergence_info(run)), DIVERGENCE_FIGURE, f"runs={run.id}"
                ),
                self.requests: addressed(
                    acceptance.draw_requests(acceptance.requests_info([run])), "requests", f"runs={run.id}"
                ),
            }
            if has_drafts
            else {}
        )
        return figures | {
            self.head: header_html(run, self.mlflow_url, resting_on(self.repository, [run.id])),
            **({self.answer: ""} if run.ended else {}),  # an answer about a running run is outdated
            self.tiles: tiles_html(run)
            + sessions_html(run, session_positions)
            + notes_html(run)
            + engine_html(run)
            + origin_html(run)
            + (slower_html(slower) if slower else ""),
            self.categories: categories_html(by_category(prompts.get(run.id, {}), self._categories(run))),
            self.figures: gr.Row(visible=has_drafts),
            self.provenance: provenance_html(run, session_positions, version_facts(self.repository, run.task)),
            # An ended run is polled until its MLflow mirror exists, whose link then appears.
            self.clock: gr.Timer(active=not run.ended or (self.mlflow_url is not None and run.mlflow_run_id is None)),
        }

    def _categories(self, run: RunView) -> dict[int, str]:
        return categories(run.task, self.repository) if run.metrics else {}

    def _target_alone(self, run: RunView) -> RunView | None:
        """Return the target alone on the same prompts, if the run's experiment measured it."""
        if not run.metrics:
            return None
        return next(iter(on_same_prompts(run, sibling_runs(self.repository, run, "autoregressive"))), None)

    def _prompt(self, run: RunView, generation: GenerationView, hidden: frozenset[int]) -> str:
        turns = [at for at in range(generation.position - generation.turn, generation.position) if at not in hidden]
        earlier = [said for position in turns for said in self.repository.generations(run.id, position=position)]
        try:
            marks = str((run.provenance or {}).get(THOUGHT_MARKS, ""))
            tokens = displayed_tokens(run.pair, self.repository.trace(generation.id), marks)
        except FsdError as error:
            return prompt_html(generation, None, str(error), earlier)
        if "".join(token.text for token in tokens) != generation.text:
            problem = "The pair's tokenizer has changed since this run, so its tokens cannot be shown."
            return prompt_html(generation, None, problem, earlier)
        return prompt_html(generation, tokens, earlier=earlier)


def _state(run: RunView) -> list[Any]:
    """Return the values by which a poll notices a change."""
    return [run.status, run.prompts_done, run.mlflow_run_id, run.task]
