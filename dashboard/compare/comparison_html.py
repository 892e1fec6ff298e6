"""The tables of a comparison as HTML: for the page, and for the file that is exported.

Every text that comes from data goes through ``escape``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.compare.compared_runs import MARKED, ComparedRuns, ComparisonRow
from dashboard.tables.prompt_pairs import Pairing
from dashboard.tables.run_settings import settings_table
from dashboard.ui.components import empty_state, escape, mixed_mark, notice, term
from fsd_core.analysis.cells import SIGNIFICANT, Cell
from fsd_core.formatting import count, decimals, number, p_value, written
from fsd_core.metrics import FIDELITY, Metric, compared
from fsd_core.statistics.intervals import Estimate

if TYPE_CHECKING:
    from fsd_core.statistics.noninferiority import Verdict
    from fsd_core.storage.records import ExperimentView


def warnings_html(warnings: Sequence[str]) -> str:
    """Each sentence in a box of its own."""
    return "".join(notice(warning, "warn") for warning in warnings)


def nothing_chosen(experiments: Sequence[ExperimentView]) -> str:
    """What to do where no run is chosen: start an experiment, or open one of the latest."""
    if not experiments:
        return empty_state(
            "Nothing to compare yet",
            "Runs appear here as soon as an experiment has begun.",
            ("experiments", "Start an experiment"),
        )
    links = "".join(
        f'<li><a href="compare?experiment={escape(e.id)}">{escape(e.name)}</a>, {count(len(e.runs), "run")}</li>'
        for e in experiments[:5]
    )
    return (
        '<div class="fsd-empty"><b>Choose runs above</b><p>Any two or more runs can be compared. '
        f'Or open a whole experiment:</p><ul class="cmp-latest">{links}</ul></div>'
    )


def comparison_html(comparison: ComparedRuns) -> str:
    """The table of metrics, with signed differences from the baseline."""
    if not comparison.rows:
        return ""
    columns = shown_columns(comparison.rows)
    head = "".join(
        f'<th scope="col" class="num">{term(m.title, m.explanation)}<small>{escape(m.unit)}</small></th>'
        for m in (compared()[column] for column in columns)
    )
    body = "".join(_row(row, columns, comparison.margin) for row in comparison.rows)
    return (
        _table(head, body, "Metrics of the runs")
        + '<p class="cmp-note">Below each number is its 95 % interval, from three prompts on. '
        "A chip shows the difference from the baseline, or the ratio to it, with its interval, on the prompts that "
        "both runs have. For accuracy, p is McNemar's exact test of &ldquo;neither is better&rdquo;. Where several "
        "runs are tested, Holm's correction keeps the chance of any false alarm at one in twenty. The chip of accuracy "
        f"is coloured where p &lt; {SIGNIFICANT} after that, other chips where their interval leaves no doubt of the "
        "direction. Below a run's name is what a one-sided test at 5 % says of its accuracy within the margin."
        + (f" {MARKED}" if comparison.marked else "")
        + "</p>"
        + "".join(
            f'<p class="cmp-note"><b>Why {escape(row.name)} is slower:</b> {escape(row.slowdown.sentence())}</p>'
            for row in comparison.rows
            if row.slowdown
        )
    )


def worst_prompts_html(comparison: ComparedRuns) -> str:
    """Links to the prompts of which each run accepted least."""
    links = [
        f'<a href="/runs?run={escape(row.run.id)}&amp;prompts=worst">{escape(row.name)}</a>'
        for row in comparison.rows
        if (row.run.metrics or {}).get("acceptance_deciles")
    ]
    return f'<p class="cmp-note">Prompts with the lowest acceptance: {", ".join(links)}</p>' if links else ""


def shown_columns(rows: Sequence[ComparisonRow]) -> list[int]:
    """Indices of the metrics that a run has; fidelity only where no run has an accuracy."""
    filled = [i for i in range(len(compared())) if any(row.cells[i].estimate for row in rows)]
    scored = not filled or any(compared()[i].key == "accuracy" for i in filled)
    return [i for i in filled or range(len(compared())) if not (scored and compared()[i].key in FIDELITY)]


def _row(row: ComparisonRow, columns: Sequence[int], margin: float | None) -> str:
    pill = '<span class="pinned">baseline</span>' if row.is_baseline else ""
    status = "" if row.run.status == "finished" else f", {row.run.status}"
    said = _verdict(row.verdict, margin) if row.verdict and margin is not None else ""
    more = f"{row.run.task}, {row.run.prompts_done} of {row.run.prompts_total} prompts, seed {row.run.seed}{status}"
    cells = "".join(f'<td class="num">{_cell(row.cells[i], compared()[i])}</td>' for i in columns)
    return (
        f'<tr class="{"baseline" if row.is_baseline else ""}"><th scope="row">{escape(row.name)}{pill}'
        f'<span class="more">{escape(more)}</span>{said}</th>{cells}</tr>'
    )


def _verdict(verdict: Verdict, margin: float) -> str:
    tone = {"non-inferior": "good", "worse": "bad"}.get(verdict.kind, "")
    return f'<span class="delta {tone}">{escape(verdict.sentence(margin))}</span>'


def _cell(cell: Cell, metric: Metric) -> str:
    if cell.estimate is None:
        return "–"
    e = cell.estimate
    text = written(*e, points=metric.is_share)
    shown = text.value + mixed_mark(cell.mixed)
    if text.low:
        shown += f'<span class="range">{text.low} to {text.high}</span>'
    if cell.remark:
        shown += f'<span class="range">{escape(cell.remark)}</span>'
    return shown + _delta(cell, metric, decimals(*e))


def _delta(cell: Cell, metric: Metric, digits: int) -> str:
    if cell.delta is None:
        return ""
    (text, ends), more = delta_text(cell.delta, metric, digits), ""
    if (p := cell.paired) is not None:
        told = p_values(cell)
        if not p.only_a + p.only_b:
            text, told = "no prompt differs", []
        more = "".join(f'<span class="range">{escape(line)}</span>' for line in (*told, f"n = {p.n}"))
    tone = {1: "good", -1: "bad", 0: ""}[cell.verdict(metric)]
    ends = f' <span class="ends">({escape(ends)})</span>' if ends else ""
    return f'<div><span class="delta {tone}">{escape(text)}{mixed_mark(cell.delta_mixed)}{ends}</span></div>{more}'


def p_values(cell: Cell) -> list[str]:
    """McNemar's p and, where several runs were tested, that corrected by Holm."""
    if cell.paired is None:
        return []
    p, corrected = cell.paired.p_value, cell.corrected_p
    return [p_value(p)] + ([] if corrected is None or corrected == p else [f"Holm {p_value(corrected)}"])


def delta_text(delta: Estimate, metric: Metric, digits: int) -> tuple[str, str]:
    """A difference such as ``−4 pts``, or a ratio such as ``1.8×``; with its interval, such as ``−10 to +2``, if any.

    A difference without an interval has the digits of the values themselves.
    """
    if metric.as_ratio or delta.low is not None:
        digits = decimals(*delta)
    if metric.as_ratio:
        text = f"{number(delta.value, max(digits, 1))}×"
        ends = (number(end, max(digits, 1)) for end in delta[1:] if end is not None)
    else:
        text = number(delta.value, digits, signed=True) + (" pts" if metric.unit == "%" else "")
        ends = (number(end, digits, signed=True) for end in delta[1:] if end is not None)
    return text, " to ".join(ends)


def settings_html(comparison: ComparedRuns, differences_only: bool) -> str:
    """The settings table."""
    if not comparison.rows:
        return ""
    table = settings_table(comparison.runs, differences_only)
    if not table.columns:
        return '<p class="cmp-note">These runs have the same settings throughout.</p>'
    head = "".join(f'<th scope="col">{term(column)}</th>' for column in table.columns)
    body = "".join(
        f'<tr><th scope="row">{escape(row.name)}</th>'
        + "".join(f"<td>{escape(value)}</td>" for value in values)
        + "</tr>"
        for row, values in zip(comparison.rows, table.rows, strict=True)
    )
    hidden = f'<p class="cmp-note">{table.hidden} settings are the same in all runs.</p>' if table.hidden else ""
    return _table(head, body, "Settings of the runs") + hidden


def _table(head: str, body: str, label: str) -> str:
    """A table with a run per row, which scrolls by itself where it is wider than the page."""
    return (
        f'<div class="fsd-scroll" tabindex="0"><table class="fsd-table cmp" aria-label="{escape(label)}">'
        f'<thead><tr><th scope="col">Run</th>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def pairing_summary(pairing: Pairing, name_a: str, name_b: str) -> str:
    """The two-by-two table in a sentence."""
    if not pairing.pairs:
        return '<p class="cmp-note">These two runs have no finished prompt in common.</p>'
    return (
        f'<p class="cmp-note">Of {len(pairing.pairs)} shared prompts, both solve <b>{pairing.count(True, True)}</b>, '
        f"only <b>{escape(name_a)}</b> solves <b>{pairing.count(True, False)}</b>, "
        f"only <b>{escape(name_b)}</b> solves <b>{pairing.count(False, True)}</b>, "
        f"neither solves <b>{pairing.count(False, False)}</b>.</p>"
    )
