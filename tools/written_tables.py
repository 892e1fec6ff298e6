"""Tables that a command writes into the documents, between two marks, by nobody's hand."""

from __future__ import annotations

from pathlib import Path

from tests.tools.documents import DOCUMENTS

_END = "<!-- end of what it wrote -->"


def _parts(command: str) -> tuple[Path, str, str, str]:
    """Return the document with the command's marks, and what stands before, between and behind them."""
    begin = f"<!-- table: written by {command} -->"
    for path in DOCUMENTS:
        before, mark, rest = path.read_text(encoding="utf-8").partition(begin)
        if mark:
            table, _, after = rest.partition(_END)
            return path, before + begin, table, _END + after
    raise SystemExit(f"No document has the mark {begin}.")


def written_table(command: str) -> str:
    """Return the table that the command wrote."""
    return _parts(command)[2].strip()


def write_table(command: str, table: str) -> None:
    """Replace what stands between the marks of the command."""
    path, before, _, after = _parts(command)
    path.write_text(f"{before}\n{table}\n{after}", encoding="utf-8")
