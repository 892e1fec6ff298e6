"""The answer of a comparison as HTML: its sentence, and a table with one line for each run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlencode

from dashboard.compare.comparison_html import VERDICT_TONES
from dashboard.ui.components import mixed_mark, term
from dashboard.ui.templates import Html, render
from fsd_core.analysis.cell_text import delta_text
from fsd_core.formatting import DASH, NO_INTERVAL, ROUGH_MARK, decimals
from fsd_core.metrics import FIDELITY, Metric, compared
from fsd_core.storage.records import UNENDED

if TYPE_CHECKING:
    from dashboard.compare.compared_runs import ComparedRuns, ComparisonRow
    from fsd_core.analysis.cells import Cell

_FILE = "compare/answer.html"
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
    return render(_FILE, "sentence", found.sentence, step)


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
    return render(_FILE, "answers", shown, [_row(row, columns, comparison.margin, best) for row in rows])


def _columns(rows: Sequence[ComparisonRow]) -> list[AnswerColumn]:
    """Return the columns that any run fills. Where nothing is scored, equal texts take the place of accuracy."""

    def filled(key: str) -> bool:
        return any(_cell(row, key)[0].estimate for row in rows)

    quality = "accuracy" if filled("accuracy") or not filled(FIDELITY[0]) else FIDELITY[0]
    metric = _metric(quality)
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


def _row(row: ComparisonRow, columns: Sequence[AnswerColumn], margin: float | None, best: str | None) -> OneLine:
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


def _metric(key: str) -> Metric:
    return next(metric for metric in compared() if metric.key == key)


def _cell(row: ComparisonRow, key: str) -> tuple[Cell, Metric]:
    metric = _metric(key)
    return row.cells[compared().index(metric)], metric


def _value(row: ComparisonRow, key: str) -> AnswerCell:
    cell, metric = _cell(row, key)
    if cell.estimate is None:
        return AnswerCell(DASH)
    text = metric.written(*cell.estimate)
    unit = " %" if metric.is_share else f" {metric.unit}"
    about = text.with_ends(" ({} to {})") + unit + _why(text.mark)
    return AnswerCell(text.mark + text.value, about, value=cell.estimate.value)


def _points(row: ComparisonRow) -> AnswerCell:
    cell, metric = _cell(row, "accuracy")
    if cell.delta is None:
        return AnswerCell(DASH, value=0.0 if row.is_baseline else None)
    digits = decimals(*cell.estimate) if cell.estimate else 1
    text, ends = delta_text(cell.delta, metric, digits)
    text = text.removesuffix(" pts")
    about = f"{text} ({ends})" if ends else text + _why(text)
    shared = f", on {cell.paired.prompts_text}" if cell.paired else ""
    return AnswerCell(text, about + shared, value=cell.delta.value)


def _speed(row: ComparisonRow) -> AnswerCell:
    cell, metric = _cell(row, "seconds_per_answer")
    if row.is_baseline:
        return AnswerCell("1", value=1.0)
    if cell.delta is None:
        return AnswerCell(DASH)
    text, ends = delta_text(cell.delta, metric, 2)
    text = text.removesuffix("× as fast")
    about = f"{text} ({ends})" if ends else text + _why(text)
    return AnswerCell(text, about, mixed_mark(cell.delta_mixed), cell.delta.value)


def _why(text: str) -> str:
    """Return what the mark of a rough figure says, after a full stop; nothing for a text without it."""
    return f". {NO_INTERVAL}" if text.startswith(ROUGH_MARK) else ""
