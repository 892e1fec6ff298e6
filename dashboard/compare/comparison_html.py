"""A comparison as HTML, for the page and for the exported file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from dashboard.compare.compared_runs import MARKED, ComparedRuns, ComparisonRow
from dashboard.tables.prompt_pairs import Pairing
from dashboard.tables.run_record import settings_table
from dashboard.ui.components import empty_state, mixed_mark, notice, rough, term
from dashboard.ui.templates import Html, joined, render
from fsd_core.analysis.cells import SIGNIFICANT, Cell, CellText, estimate, rare_of
from fsd_core.analysis.matching import MatchedCell, absence, beside_rows, caption, tables
from fsd_core.engines.kinds import measured_on
from fsd_core.evaluation.aggregate import cost_figures
from fsd_core.metrics import FIDELITY, METRICS, Metric
from fsd_core.models.model_pairs import pair_title
from fsd_core.statistics.tradeoff import OUTSIDE, RATIOS
from fsd_core.storage.records import UNENDED
from fsd_core.texts import DASH, NO_INTERVAL, ROUGH_MARK, p_value

if TYPE_CHECKING:
    from fsd_core.analysis.matching import MatchedComparison
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import ExperimentView, Prompts, RunView


_FILE = "compare/comparison.html"
VERDICT_TONES = {"identical": "good", "non-inferior": "good", "worse": "bad"}
_TONES = {1: "good", -1: "bad", 0: ""}


def warnings_html(warnings: Sequence[str]) -> Html:
    """Return each sentence in its own box."""
    return joined(notice(warning, "warn") for warning in warnings)


def no_runs_html(experiments: Sequence[ExperimentView]) -> Html:
    """Return next steps if no run is chosen: start an experiment, or open one of the latest."""
    if not experiments:
        return empty_state(
            "Nothing to compare yet",
            "Runs appear here as soon as an experiment has begun.",
            ("experiments", "Start an experiment"),
        )
    return render(_FILE, "no_runs", experiments[:5])


def comparison_html(comparison: ComparedRuns) -> Html:
    """Return the table of metrics, with signed differences from the baseline."""
    if not comparison.rows:
        return Html()
    columns = comparison.columns
    metrics = [first.metric for first, *_ in columns]
    return render(
        _FILE,
        "comparison",
        titles=[render(_FILE, "metric", term(metric.title, metric.explanation), metric.unit) for metric in metrics],
        rows=[_row(row, cells, comparison.margin) for row, *cells in zip(comparison.rows, *columns, strict=True)],
        significant=SIGNIFICANT,
        marked=MARKED if comparison.marked else "",
        times=comparison.times,
        rare=[(row.name, rare) for row in comparison.rows if (rare := rare_of(row.cells))],
        slower=[row for row in comparison.rows if row.slowdown],
    )


def worst_prompts_html(comparison: ComparedRuns) -> Html:
    """Return links to each run's prompts of lowest acceptance."""
    rows = [row for row in comparison.rows if (row.run.metrics or {}).get("acceptance_deciles")]
    return render(_FILE, "worst_prompts", rows) if rows else Html()


def _row(row: ComparisonRow, cells: Sequence[Cell], margin: float | None) -> tuple[str, Html, list[str]]:
    """Return the class, name and cells of a run."""
    status = "" if row.run.status == "finished" else f", {row.run.status}"
    more = f"{pair_title(row.run.pair)}, {row.run.task}, {row.run.prompts_done} of {row.run.prompts_total} prompts, "
    more += f"seed {row.run.seed}{status}"
    if engine := measured_on(row.run):
        more += f". Measured on {engine}"
    tone = verdict = ""
    if row.verdict and margin is not None:
        tone, verdict = VERDICT_TONES.get(row.verdict.kind, ""), row.verdict.sentence(margin)
    name = render(_FILE, "run", row, more, tone, verdict)
    return "baseline" if row.is_baseline else "", name, [*map(_cell, cells)]


def _cell(cell: Cell) -> str:
    if (text := cell.text) is None:
        return DASH
    value = rough(text.value.value, bool(text.value.mark))
    return render(_FILE, "cell", value, text.value, mixed_mark(cell.mixed), cell.comment, _delta(cell, text))


def _delta(cell: Cell, told: CellText) -> Html:
    if cell.delta is None:
        return Html()
    text = told.change
    notes: list[str] = []
    if (paired := cell.paired) is not None:
        differing = paired.only_a + paired.only_b
        text = text if differing else "no prompt differs"
        notes = [
            *(p_values(cell) if differing else ()),
            f"n = {paired.prompts_text}" if paired.design_effect > 1 or paired.sequential else f"n = {paired.n}",
        ]
    if cell.rare is not None:
        notes.append(f"overlong up to {cell.rare.share}")
    return render(_FILE, "delta", _TONES[cell.verdict], text, mixed_mark(cell.delta_mixed), told.ends, notes)


def p_values(cell: Cell) -> list[str]:
    """Return McNemar's p and, if several runs were tested, the Holm-corrected p; none where bounds of bets decide."""
    if cell.paired is None or cell.paired.sequential:
        return []
    p, corrected = cell.paired.p_value, cell.corrected_p
    return [p_value(p)] + ([] if corrected is None or corrected == p else [f"Holm {p_value(corrected)}"])


def settings_html(comparison: ComparedRuns, differences_only: bool) -> Html:
    """Return the settings table."""
    if not comparison.rows:
        return Html()
    table = settings_table(comparison.runs, differences_only)
    rows = [(None, row.name, values) for row, values in zip(comparison.rows, table.rows, strict=True)]
    return render(_FILE, "settings", [term(column) for column in table.columns], rows, table.hidden)


def pairing_summary(pairing: Pairing, name_a: str, name_b: str) -> Html:
    """Return the two-by-two table as a sentence."""
    return render(_FILE, "pairing", pairing, name_a, name_b)


_ANSWER_FILE = "compare/answer.html"
_POINTS = "Accuracy less the baseline's, in points, on the prompts that both have done"
_SPEED = "Times as fast as the baseline, by time per answer, on the prompts that both have done"
_VERDICT = "What a test at 5 % says of this run alone. Find the setting keeps its promise over all that it tries."


class AnswerCell(NamedTuple):
    """A number, and its interval in words."""

    text: str
    about: str = ""
    mark: Html = Html()  # immutable
    value: float | None = None
    """by which the column sorts"""


class AnswerColumn(NamedTuple):
    """A column with the order that its heading asks for."""

    key: str
    title: str
    about: str
    read: Callable[[ComparisonRow], AnswerCell] | None
    """``None`` for the names and the verdicts"""
    style: str | None = None
    order: str = ""
    sorted: str | None = None

    @property
    def heading(self) -> Html:
        return term(self.title, self.about)


class OneLine(NamedTuple):
    """A run in one line."""

    style: str | None
    name: Html
    cells: Sequence[AnswerCell]
    verdict: str
    tone: str


def sentence_html(comparison: ComparedRuns, *, link: bool = True) -> Html:
    """Return the conclusion of the comparison, with a ``link`` to the measurement that would decide what is open."""
    found, baseline = comparison.recommendation, comparison.baseline
    if found is None or baseline is None:
        return Html()
    step = ""
    if link and found.undecided_id and found.prompts:
        ids = dict.fromkeys(filter(None, (baseline.id, found.run_id, found.undecided_id)))
        step = f"experiments?{urlencode({'again': ','.join(ids), 'limit': found.prompts}, safe=',')}"
    return render(_ANSWER_FILE, "sentence", found.sentence, step)


def answers_html(comparison: ComparedRuns, order: str = "") -> Html:
    """Return the table. ``order`` is the key of a column, after a minus sign for its highest first; any other text
    leaves the runs in the order in which they were chosen."""
    if not comparison.rows:
        return Html()
    columns = _columns(comparison.rows)
    key, descending = order.removeprefix("-"), order.startswith("-")
    rows = list(comparison.rows)
    if column := next((column for column in columns if column.key == key), None):
        rows = _sorted(rows, column, descending)
    shown = [_ordered(one, key, descending) for one in columns]
    best = comparison.best
    return render(_ANSWER_FILE, "answers", shown, [_answer_row(row, columns, comparison.margin, best) for row in rows])


def _columns(rows: Sequence[ComparisonRow]) -> list[AnswerColumn]:
    """Return the columns that any run fills. Where nothing is scored, equal texts take the place of accuracy."""

    def filled(key: str) -> bool:
        return any(row.cell(key).estimate for row in rows)

    quality = "accuracy" if filled("accuracy") or not filled(FIDELITY[0]) else FIDELITY[0]
    metric = METRICS[quality]
    points = [AnswerColumn("points", "Points ±", _POINTS, _points, "num")] if quality == "accuracy" else []
    return [
        AnswerColumn("name", "Setting", "", None),
        AnswerColumn("quality", metric.title, metric.explanation, lambda row: _value(row, quality), "num"),
        *points,
        AnswerColumn("speed", "Speed ×", _SPEED, _speed, "num"),
        AnswerColumn("verdict", "Verdict", _VERDICT, None),
    ]  # fmt: skip


def _ordered(column: AnswerColumn, key: str, descending: bool) -> AnswerColumn:
    best_first = column.style == "num"
    if column.key != key:
        return column._replace(order="-" * best_first + column.key)
    return column._replace(
        order="-" * (not descending) + column.key, sorted="descending" if descending else "ascending"
    )


def _sorted(rows: list[ComparisonRow], column: AnswerColumn, descending: bool) -> list[ComparisonRow]:
    """Return the rows in the order of a column; those without a value come last."""
    if column.read is None:
        text: Callable[[ComparisonRow], str] = _verdict if column.key == "verdict" else lambda row: row.name
        return sorted(rows, key=text, reverse=descending)
    values = {row.run.id: column.read(row).value for row in rows}
    known = [row for row in rows if values[row.run.id] is not None]
    known.sort(key=lambda row: values[row.run.id] or 0.0, reverse=descending)
    return known + [row for row in rows if values[row.run.id] is None]


def _answer_row(row: ComparisonRow, columns: Sequence[AnswerColumn], margin: float | None, best: str | None) -> OneLine:
    cells = [column.read(row) for column in columns if column.read is not None]
    about = [
        f"{column.title}: {cell.about}"
        for column, cell in zip([c for c in columns if c.read], cells, strict=True)
        if cell.about
    ]
    if row.verdict and margin is not None:
        about.append(row.verdict.sentence(margin))
    about.append(f"{row.run.prompts_done} of {row.run.prompts_total} prompts")
    styles = ["baseline"] * row.is_baseline + ["chosen"] * (row.run.id == best)
    tone = VERDICT_TONES.get(row.verdict.kind, "") if row.verdict else ""
    return OneLine(" ".join(styles) or None, term(row.name, ". ".join(about) + "."), cells, _verdict(row), tone)


def _verdict(row: ComparisonRow) -> str:
    """Return a word for what is known of a run's accuracy, or how far the run is."""
    if row.run.status in UNENDED:
        return f"{row.run.prompts_done} of {row.run.prompts_total}"
    if row.run.status != "finished":
        return row.run.status
    if row.is_baseline:
        return "baseline"
    return row.verdict.kind if row.verdict else DASH


def _value(row: ComparisonRow, key: str) -> AnswerCell:
    cell = row.cell(key)
    if cell.text is None or cell.estimate is None:
        return AnswerCell(DASH)
    text = cell.text.value
    unit = " %" if cell.metric.is_share else f" {cell.metric.unit}"
    about = text.with_ends(" ({} to {})") + unit + _why(text.mark)
    return AnswerCell(text.mark + text.value, about, value=cell.estimate.value)


def _points(row: ComparisonRow) -> AnswerCell:
    return _change(row, "accuracy", " pts") or AnswerCell(DASH, value=0.0 if row.is_baseline else None)


def _speed(row: ComparisonRow) -> AnswerCell:
    baseline = AnswerCell("1", value=1.0) if row.is_baseline else AnswerCell(DASH)
    return _change(row, "seconds_per_answer", "× as fast") or baseline


def _change(row: ComparisonRow, key: str, unit: str) -> AnswerCell | None:
    """Return a difference from the baseline, or a ratio, without the unit that its heading has."""
    cell = row.cell(key)
    if cell.text is None or cell.delta is None:
        return None
    text, ends = cell.text.change.removesuffix(unit), cell.text.ends
    about = f"{text} ({ends})" if ends else text + _why(text)
    shared = f", on {cell.paired.prompts_text}" if cell.paired else ""
    return AnswerCell(text, about + shared, mixed_mark(cell.delta_mixed), cell.delta.value)


def _why(text: str) -> str:
    """Return what the mark of a rough figure says, after a full stop; nothing for a text without it."""
    return f". {NO_INTERVAL}" if text.startswith(ROUGH_MARK) else ""


_COSTS_FILE = "compare/costs.html"
_COLUMNS = "cost_per_million_tokens", "cost_per_solved_task", "joules_per_token", "peak_memory"


def cost_table(rows: Sequence[ComparisonRow]) -> Html:
    """Return the table, without columns that no run has; nothing if all are empty."""
    metrics = [METRICS[key] for key in _COLUMNS if any(estimate(row.run, METRICS[key]) for row in rows)]
    if not metrics:
        return Html()
    titles = ["Price per hour", *(render(_FILE, "metric", metric.title, metric.unit) for metric in metrics)]
    return render(_COSTS_FILE, "costs", titles, [_cost_row(row, metrics) for row in rows])


def folded_costs(rows: Sequence[ComparisonRow]) -> Html:
    """Return the table folded, for a file; nothing if it is empty."""
    table = cost_table(rows)
    return render(_COSTS_FILE, "folded", table) if table else table


def at_price(rows: Sequence[ComparisonRow], prompts: Prompts, price: float) -> list[ComparisonRow]:
    """Return the runs as if each had been measured at this price per hour. Without prompts a run has no cost."""
    return [row._replace(run=_priced(row.run, prompts, price)) for row in rows]


def _priced(run: RunView, prompts: Prompts, price: float) -> RunView:
    counts = [*prompts.get(run.id, {}).values()]
    return replace(run, metrics=(run.metrics or {}) | cost_figures(counts, price)) if counts else run


def _cost_row(row: ComparisonRow, metrics: Sequence[Metric]) -> tuple[str, str, list[str]]:
    """Return the class, name and cells of a run."""
    price = (row.run.metrics or {}).get("price_per_hour")
    return "", row.name, [f"{price:g}" if price else DASH, *(_cost_cell(row.run, metric) for metric in metrics)]


def _cost_cell(run: RunView, metric: Metric) -> str:
    """Return a figure with its mark and its interval."""
    found = estimate(run, metric)
    if found is None:
        return DASH
    digits = metric.digits if found.low is None else None
    text = metric.written(*found, digits=digits)
    return render(
        _COSTS_FILE,
        "cell",
        rough(text.value, bool(text.mark)),
        text,
        mixed_mark(run.speed_mixed if metric.timed else ()),
    )


OTHER_SETTINGS_TITLE = "Beside the curves"
_MATCHED_TONES = {"loses least": "good", "fastest": "good", "loses more": "bad", "slower": "bad"}
_MATCHED_FILE = "compare/matched.html"


def matched_html(
    matched: MatchedComparison,
    ratios: Sequence[float] = RATIOS,
    margins: Sequence[float] | None = None,
    links: str = "",
) -> Html:
    """Return the tables with their caption, or why there are none.

    ``links`` is HTML that adds missing baselines. Raises ``InvalidSetting`` for an invalid ratio or margin.
    """
    why = "A curve needs a rule with several values of its knob: choose runs of one."
    return render(
        _MATCHED_FILE,
        "matched",
        caption=caption(matched) if matched.compared else "",
        notes=matched.notes,
        why="" if matched.compared or matched.notes else why,
        absence=absence(matched),
        links=links,
        rankings=[
            (
                table.title,
                table.verdicts,
                table.columns,
                [(None, name, map(_matched_cell, row)) for name, row in table.rows],
            )
            for table in tables(matched, ratios, margins)
        ],
        other_settings=_other_settings(matched),
    )


def addition_links(matched: MatchedComparison, runs: Sequence[RunView]) -> Html:
    """Return links to the Experiments form, prefilled to measure missing baselines on the same prompts."""
    groups: dict[str, list[DecodingConfig]] = {}
    for decoding in matched.absent:
        similar = [run for run in runs if decoding.drafter is None or _drafts(run.decoding) == _drafts(decoding)]
        if reference := next((run for run in similar if run.decoding.drafter is not None), next(iter(similar), None)):
            groups.setdefault(urlencode({"like": reference.id} | _sampling(decoding, reference)), []).append(decoding)
    links = []
    for query, decodings in groups.items():
        kinds = ",".join(dict.fromkeys(decoding.acceptance.kind for decoding in decodings))
        names = ", ".join(dict.fromkeys(decoding.acceptance.title for decoding in decodings))
        links.append((f"experiments?{query}&rules={kinds}", names))
    return render(_MATCHED_FILE, "additions", links)


def _drafts(decoding: DecodingConfig) -> tuple:
    return decoding.drafter, decoding.topology


def _sampling(decoding: DecodingConfig, reference: RunView) -> dict[str, float]:
    """Return the sampling options in which a missing baseline differs from its reference run."""
    measured = reference.decoding.sampling.model_dump()
    return {name: value for name, value in decoding.sampling.model_dump().items() if value != measured.get(name)}


def _matched_cell(cell: MatchedCell) -> Html:
    return render(_MATCHED_FILE, "cell", cell, cell.rank != OUTSIDE, _MATCHED_TONES.get(cell.comparison, ""))


def _other_settings(matched: MatchedComparison) -> Html:
    if not matched.lines:
        return Html()
    rows = [(None, name, figures) for name, *figures in beside_rows(matched)]
    return render(
        _MATCHED_FILE,
        "other_settings",
        OTHER_SETTINGS_TITLE,
        [f"Times {matched.cost.fewer}", matched.quality.title],
        rows,
    )
