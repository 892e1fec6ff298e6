"""A comparison as LaTeX tables for a paper, in pure ASCII: booktabs rules, caption, label, no wider than a page."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from itertools import zip_longest
from textwrap import wrap
from typing import NamedTuple

from dashboard.compare.compared_runs import ComparedRuns
from fsd_core.analysis.cell_text import delta_text, displayed_columns
from fsd_core.analysis.cells import Cell
from fsd_core.analysis.matched_tables import MatchedCell, MatchedTable, caption, tables
from fsd_core.analysis.matching import MatchedComparison, match
from fsd_core.formatting import decimals, p_value
from fsd_core.metrics import Metric, compared

_KEYS = (
    "accuracy", "same_text", "seconds_per_answer", "acceptance_rate", "mean_acceptance_length", "target_passes",
)  # fmt: skip
"""metrics of the table, if the comparison has them"""
INTERVALS = (
    "Intervals are of 95 %; below a value stands its difference from, or ratio to, the baseline, on the prompts that "
    "both runs have done."
)
LINE_CHARACTERS = 78
"""characters of \\footnotesize in a line of the narrowest usual page: article, 10 pt, one column (345 pt)"""
_NAME_SHARE = 0.28
"""share of the line for the names of the settings"""
_SEPARATION = 2  # characters between two columns
_LONGEST_HEAD = 16  # characters of a title in a line
_LONGEST_UNIT = 9
_ESCAPES = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\ensuremath{<}", ">": r"\ensuremath{>}",
    "|": r"\ensuremath{|}", '"': "''", "≤": r"\ensuremath{\le}", "≥": r"\ensuremath{\ge}", "·": r"\ensuremath{\cdot}",
    "×": r"\ensuremath{\times}", "γ": r"\ensuremath{\gamma}", "α": r"\ensuremath{\alpha}", "τ": r"\ensuremath{\tau}",
    "−": r"\ensuremath{-}", "–": "--", "—": "---", "†": r"\dag{}", "’": "'", "‘": "`", "“": "``", "”": "''",
    "…": r"\dots{}", "≈": r"\ensuremath{\approx}",
}  # fmt: skip


class TableColumn(NamedTuple):
    """A column as plain text: the lines of its title, and those of each row's cell."""

    head: list[str]
    cells: list[list[str]]

    @property
    def width(self) -> int:
        """Characters of its longest line."""
        return max(map(len, [*self.head, *(line for cell in self.cells for line in cell)]), default=0)


def latex(comparison: ComparedRuns) -> str:
    """Return the comparison's tables. Below each value with its 95 % interval is the difference from the baseline."""
    indices = [i for i in displayed_columns([row.cells for row in comparison.rows]) if compared()[i].key in _KEYS]
    columns = [TableColumn(["n"], [[f"{row.run.prompts_done:,}"] for row in comparison.rows])]
    tested = 0
    for i in indices:
        metric = compared()[i]
        columns.append(TableColumn(_head(metric), [cell_lines(row.cells[i], metric) for row in comparison.rows]))
        if metric.key == "accuracy":
            p_values = [_p(row.cells[i]) for row in comparison.rows]
            tested = sum(p != "--" for p in p_values)
            columns += [TableColumn(["p"], [[p] for p in p_values])] if tested else []
    names = [row.name + (" (baseline)" if row.is_baseline else "") for row in comparison.rows]
    note = [f"{comparison.subject}.", INTERVALS]
    if tested:
        holm = f", corrected by Holm for {tested} comparisons" if tested > 1 else ""
        note.append(f"p: McNemar's exact test of the accuracy against the baseline's{holm}.")
    note += comparison.footnotes
    label = f"tab:fsd-{_digest(comparison)}"
    lines = ["% \\usepackage{booktabs}", *_table("Setting", names, columns, " ".join(note), label)]
    matched = match(comparison.runs, comparison.baseline, comparison.prompts)
    for number, table in enumerate(tables(matched), 1):
        lines += ["", *_matched(table, matched, comparison, f"{label}-matched-{number}")]
    return "\n".join(lines) + "\n"


def _digest(comparison: ComparedRuns) -> str:
    """Return a short name of the runs and the baseline: the same comparison has the same label."""
    named = [run.id for run in comparison.runs] + [comparison.baseline.id if comparison.baseline else ""]
    return hashlib.sha256(",".join(named).encode()).hexdigest()[:8]


def _matched(table: MatchedTable, matched: MatchedComparison, comparison: ComparedRuns, label: str) -> list[str]:
    """Return a table of rules at matched points."""
    columns = [
        TableColumn(wrap(title, _LONGEST_HEAD), [_point(cells[i]) for _, cells in table.rows])
        for i, title in enumerate(table.columns)
    ]
    note = " ".join([f"{table.title}: {comparison.subject}.", *table.verdicts, caption(matched)])
    return _table("Rule", [name for name, _ in table.rows], columns, note, label)


def _table(first: str, names: Sequence[str], columns: Sequence[TableColumn], note: str, label: str) -> list[str]:
    """Return a table. Columns that do not fit beside one another come in further parts below, under the same names."""
    lines = [
        "\\begin{table}[tbp]", "\\centering", "\\footnotesize", "\\setlength{\\tabcolsep}{4pt}",
        f"\\caption{{{escaped(note)}}}", f"\\label{{{label}}}",
    ]  # fmt: skip
    for number, part in enumerate(parts(columns)):
        lines += ["\\par\\medskip"] * (number > 0)
        lines += [
            f"\\begin{{tabular}}{{@{{}}p{{{_NAME_SHARE}\\linewidth}}{'r' * len(part)}@{{}}}}",
            "\\toprule",
            *_head_rows(first, [column.head for column in part]),
            "\\midrule",
        ]
        for i, name in enumerate(names):
            below = zip_longest(*(column.cells[i] for column in part), fillvalue="")
            lines += [_row([name * (j == 0), *texts]) for j, texts in enumerate(below)]
        lines += ["\\bottomrule", "\\end{tabular}"]
    return [*lines, "\\end{table}"]


def parts(columns: Sequence[TableColumn]) -> list[list[TableColumn]]:
    """Divide columns into parts that each fit into a line beside the names."""
    room = LINE_CHARACTERS * (1 - _NAME_SHARE)
    divided: list[list[TableColumn]] = [[]]
    for column in columns:
        if divided[-1] and sum(other.width + _SEPARATION for other in [*divided[-1], column]) > room:
            divided.append([])
        divided[-1].append(column)
    return divided


def _head_rows(first: str, heads: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows of the titles, which end on the same line."""
    most = max(map(len, heads), default=1)
    raised = [[""] * (most - len(head)) + list(head) for head in heads]
    return [_row([first * (i == most - 1), *(head[i] for head in raised)]) for i in range(most)]


def _head(metric: Metric) -> list[str]:
    unit = [f"({metric.unit})"] if metric.unit and len(metric.unit) <= _LONGEST_UNIT else []
    return wrap(metric.title, _LONGEST_HEAD) + unit


def _point(cell: MatchedCell) -> list[str]:
    return [cell.value or "--", *([f"[{cell.ends}]"] if cell.value and cell.ends else [])]


def escaped(text: str) -> str:
    """Escape a text for LaTeX. A non-ASCII character without a command in ``_ESCAPES`` becomes a question mark."""
    plain = "".join(_ESCAPES.get(character, character) for character in " ".join(text.split()))
    return plain.encode("ascii", "replace").decode()


def _row(cells: Sequence[str]) -> str:
    row = " & ".join(map(escaped, cells)) + r" \\"
    return "{}" + row if row.startswith(("[", "*")) else row  # behind the end of a row they would be its option


def cell_lines(cell: Cell, metric: Metric) -> list[str]:
    """Return a value with its interval, and below it the difference from the baseline."""
    if cell.estimate is None:
        return ["–"]
    formatted = metric.written(*cell.estimate)
    value = formatted._replace(value=formatted.value + "†" * bool(cell.mixed)).with_ends(" [{}, {}]")
    if cell.delta is None:
        return [value]
    change, ends = delta_text(cell.delta, metric, decimals(*cell.estimate))
    change = change.removesuffix(" pts") + "†" * bool(cell.delta_mixed)
    return [value, change + (f" [{ends.replace(' to ', ', ')}]" if ends else "")]


def _p(cell: Cell) -> str:
    """Return the p-value of an accuracy, corrected if several were tested, or a dash."""
    if cell.paired is None or cell.paired.sequential:
        return "--"
    p = cell.paired.p_value if cell.corrected_p is None else cell.corrected_p
    return p_value(p).removeprefix("p ").removeprefix("= ")
