"""``python -m tests.tools.results_index`` writes one line for each file of results into docs/results/README.md."""

from __future__ import annotations

import re
from pathlib import Path

from tests.tools.documents import RESULTS

PAGE = RESULTS / "README.md"
_HEAD, _END = "## Files\n", "\n## The bundled pair\n"
_COMPARISON = re.compile(
    r"^model pair (\S+); task (\S+); prompts (\d+); .*temperature (\S+);.*commit ([0-9a-f]{7})", re.M
)
_REPLAY = re.compile(
    r"^# .*: (\S+), temperature (\S+)\n\n(\d+) prompts of `(\S+)`.*?\(commit `([0-9a-f]{7})", re.M | re.S
)


def line(path: Path) -> str:
    """Return the row of one file. Raises ``ValueError`` for one that does not say what was measured."""
    text = path.read_text(encoding="utf-8")
    title = text.partition("\n")[0].lstrip("# ")
    if found := _COMPARISON.search(text):
        pair, task, prompts, temperature, commit = found.groups()
    elif found := _REPLAY.search(text):
        task, temperature, prompts, pair, commit = found.groups()
    else:
        raise ValueError(f"{path.name} does not say its pair, task, prompts, temperature and commit.")
    return f"| [{title}]({path.name}) | {pair} | {task} | {prompts} | {temperature} | `{commit}` |"


def text() -> str:
    """Return the page with the section of files as they are."""
    page = PAGE.read_text(encoding="utf-8")
    rows = [line(path) for path in sorted(PAGE.parent.glob("*.md")) if path != PAGE]
    head = "| File | Pair | Task | Prompts | Temperature | Commit |\n|---|---|---|---|---|---|\n"
    before, _, rest = page.partition(_HEAD)
    return f"{before}{_HEAD}\n{head}" + "\n".join(rows) + "\n" + rest[rest.index(_END) :]


if __name__ == "__main__":
    PAGE.write_text(text(), encoding="utf-8")
