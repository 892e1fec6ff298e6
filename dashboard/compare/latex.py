"""A comparison as a LaTeX table for a paper, with booktabs rules and in pure ASCII."""

from __future__ import annotations

from collections.abc import Sequence

from dashboard.compare.compared_runs import ComparedRuns
from dashboard.compare.comparison_html import delta_text, displayed_columns
from fsd_core.analysis.cells import Cell
from fsd_core.analysis.matched_tables import MatchedCell, MatchedTable, caption, tables
from fsd_core.analysis.matching import MatchedComparison, match
from fsd_core.formatting import decimals, written
from fsd_core.metrics import Metric, compared
from fsd_core.models.model_pairs import pair_title

_KEYS = (
    "accuracy", "same_text", "seconds_per_answer", "acceptance_rate", "mean_acceptance_length", "target_passes",
)  # fmt: skip
"""metrics of the table, if the comparison has them; more would not fit on a page"""
_INTERVALS = "Intervals are of 95 %; below a value stands its difference from, or ratio to, the baseline."
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}", '"': "''", "≤": r"\ensuremath{\le}", "≥": r"\ensuremath{\ge}", "·": r"\ensuremath{\cdot}",
    "×": r"\ensuremath{\times}", "γ": r"\ensuremath{\gamma}", "α": r"\ensuremath{\alpha}", "τ": r"\ensuremath{\tau}",
    "−": r"\ensuremath{-}", "–": "--", "—": "---", "†": r"\dag{}", "’": "'", "‘": "`", "“": "``", "”": "''",
    "…": r"\dots{}",
}  # fmt: skip


def latex(comparison: ComparedRuns) -> str:
    """Return the comparison's tables. Below each value with its 95 % interval is the difference from the baseline."""
    indices = [i for i in displayed_columns(comparison.rows) if compared()[i].key in _KEYS]
    columns = [compared()[i] for i in indices]
    titles = [
        f"{escaped(metric.title)} ({escaped(metric.unit)})" if metric.unit else escaped(metric.title)
        for metric in columns
    ]
    lines = [
        "% \\usepackage{booktabs}",
        "\\begin{table}",
        "\\centering",
        f"\\begin{{tabular}}{{l{'r' * len(columns)}}}",
        "\\toprule",
        _row(["Setting", *titles]),
        "\\midrule",
    ]
    for row in comparison.rows:
        name = escaped(row.name) + (" (baseline)" if row.is_baseline else "")
        lines.append(_row([name, *(_value(row.cells[i], compared()[i]) for i in indices)]))
        changes = [_change(row.cells[i], compared()[i]) for i in indices]
        if any(changes):
            lines.append(_row(["", *changes]))
    pairs = dict.fromkeys(pair_title(run.pair) for run in comparison.runs)
    note = f"{', '.join(pairs)}. {_INTERVALS}"
    lines += ["\\bottomrule", "\\end{tabular}", f"\\caption{{{escaped(note)}}}", "\\end{table}"]
    matched = match(comparison.runs, comparison.baseline, comparison.prompts)
    for table in tables(matched):
        lines += ["", *_matched(table, matched)]
    return "\n".join(lines) + "\n"


def _matched(table: MatchedTable, matched: MatchedComparison) -> list[str]:
    """Return a table of rules at matched points."""
    rows = [_row([escaped(name), *(escaped(_point(cell)) for cell in cells)]) for name, cells in table.rows]
    note = " ".join([f"{table.title}.", *table.verdicts, caption(matched)])
    return [
        "\\begin{table}", "\\centering", f"\\begin{{tabular}}{{l{'r' * len(table.columns)}}}", "\\toprule",
        _row(["Rule", *map(escaped, table.columns)]), "\\midrule", *rows, "\\bottomrule", "\\end{tabular}",
        f"\\caption{{{escaped(note)}}}", "\\end{table}",
    ]  # fmt: skip


def _point(cell: MatchedCell) -> str:
    return f"{cell.value} ({cell.ends})" if cell.value and cell.ends else cell.value or "—"


def escaped(text: str) -> str:
    """Escape a text for LaTeX. A non-ASCII character without a command in ``_ESCAPES`` becomes a question mark."""
    plain = "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))
    return plain.encode("ascii", "replace").decode()


def _row(cells: Sequence[str]) -> str:
    return " & ".join(cells) + r" \\"


def _value(cell: Cell, metric: Metric) -> str:
    if cell.estimate is None:
        return "--"
    formatted = written(*cell.estimate, points=metric.is_share)
    return escaped(formatted._replace(value=formatted.value + "†" * bool(cell.mixed)).with_ends(" [{}, {}]"))


def _change(cell: Cell, metric: Metric) -> str:
    if cell.delta is None or cell.estimate is None:
        return ""
    change, ends = delta_text(cell.delta, metric, decimals(*cell.estimate))
    return escaped(change + "†" * bool(cell.delta_mixed) + (f" ({ends})" if ends else ""))
