"""What the tests of the engines measured, written into docs/engines.md between two marks, by nobody's hand."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from fsd_core import provenance
from fsd_core.config.vllm_plugin import PLUGIN, PLUGIN_VERSION, VLLM_VERSIONS

BEGIN, END = "<!-- written by make test-engines -->", "<!-- end of what make test-engines wrote -->"


class EngineRecord:
    """Tables of what passed, by title, each row by the names of its columns."""

    def __init__(self) -> None:
        self._tables: dict[str, list[dict[str, str]]] = {}
        self._about = provenance.collect("cpu", "float32", 1)  # before the tests, so that it is what they ran

    def add(self, title: str, row: dict[str, str]) -> None:
        self._tables.setdefault(title, []).append(row)

    def text(self) -> str:
        """Return the tables as Markdown, with the date, the commit and the kind of machine."""
        about = self._about
        commit = (about["git_revision"] or "no checkout").partition("+")
        lines = [
            f"Written on {datetime.now(UTC):%d %B %Y} by the command: commit {commit[0][:10]}"
            f"{' with changes' if commit[1] else ''}, {about['platform']}, {about['cpu_count']} processors "
            f"({about['cpu']}), one thread, vLLM's CPU build {VLLM_VERSIONS[-1]}, {PLUGIN} {PLUGIN_VERSION}.",
        ]
        for title, rows in self._tables.items():
            cells = [list(rows[0]), ["---"] * len(rows[0]), *(list(row.values()) for row in rows)]
            lines += ["", f"{title}:", "", *(f"| {' | '.join(row)} |" for row in cells)]
        return "\n".join(lines)

    def write(self, page: Path) -> None:
        """Replace what stands between the marks of a page."""
        before, _, rest = page.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        page.write_text(f"{before}{BEGIN}\n{self.text()}\n{END}{after}")
