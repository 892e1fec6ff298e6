"""What a notebook shows: the example notebook run cell by cell, results as HTML, and a bar while they come about."""

from __future__ import annotations

import ast
import io
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import fsd_core
from fsd_core.library import measuring, text_decoder
from tests.unit.test_components import Reader

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOK = ROOT / "examples" / "notebook" / "first_comparison.ipynb"
SHORTER = (
    ("limit=6", "limit=3"),
    ("max_new_tokens=64", "max_new_tokens=16"),
)
"""what of the notebook is made less in the gate: prompts and tokens"""


def result_of(cell: str, names: dict[str, Any]) -> Any:
    """Run a cell as a notebook does, and return the value of its last line."""
    body = ast.parse(cell).body
    last = body.pop() if isinstance(body[-1], ast.Expr) else None
    exec(compile(ast.Module(body, []), NOTEBOOK.name, "exec"), names)
    return eval(compile(ast.Expression(last.value), NOTEBOOK.name, "eval"), names) if last else None


@pytest.fixture(scope="module")
def results() -> list[Any]:
    """What each cell of the notebook shows, in their order."""
    cells = json.loads(NOTEBOOK.read_text(encoding="utf-8"))["cells"]
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert all(not cell["outputs"] for cell in cells if cell["cell_type"] == "code"), (
        "clear the outputs before you commit"
    )
    joined = "\n".join(code)
    assert all(more in joined for more, _ in SHORTER)
    names: dict[str, Any] = {}
    shown = []
    for cell in code:
        for more, less in SHORTER:
            cell = cell.replace(more, less)
        shown.append(result_of(cell, names))
    return shown


@pytest.mark.wide
def test_the_notebook_runs_from_top_to_bottom(results: list[Any]) -> None:
    version, completion, measured, table = results
    assert re.fullmatch(r"\d+\.\d+\.\d+", version)
    assert isinstance(completion, fsd_core.Completion)
    assert [run.status for run in measured.runs] == ["finished"] * 3
    assert list(table["label"]) == [run.label for run in measured.runs]


@pytest.mark.wide
def test_a_text_shows_its_tokens_with_their_kinds(results: list[Any]) -> None:
    completion = results[1]
    html = completion._repr_html_()
    assert completion.text in Reader(html).text.replace("\xa0", " ")
    kinds = re.findall(r'title="(\w+)"', html)
    assert kinds == [kind for record in completion.rounds for kind in record.kinds]


def test_a_comparison_shows_the_table_and_the_figure_of_the_page(results: list[Any]) -> None:
    measured = results[2]
    html = measured._repr_html_()
    text = Reader(html).text
    assert all(run.label in text for run in measured.runs)
    assert "baseline" in text
    assert "Accuracy" in text
    assert "as fast" in text
    assert "data:image/svg+xml;base64," in html
    assert "<script" not in html
    assert not re.search(r"https?://", html)


def test_without_what_draws_it_a_result_has_its_plain_form(results: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_decoder, "find_spec", lambda name: None)
    assert [results[i]._repr_html_() for i in (1, 2)] == [None] * 2  # a notebook then takes repr


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.wide
def test_a_bar_is_shown_where_somebody_looks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    pair = fsd_core.load_pair("bundled")

    def measure(**arguments: Any) -> None:
        fsd_core.compare({"acceptance": "autoregressive", "max_new_tokens": 2}, limit=2, pair=pair, **arguments)

    measure()
    assert capsys.readouterr().err == ""  # in a pipe nobody looks
    seen: list[tuple[int, int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stderr", terminal := Terminal())
        measure()
        assert "Measuring: 100%" in terminal.getvalue()
        assert "2/2" in terminal.getvalue()
        length = len(terminal.getvalue())
        measure(on_progress=lambda done, total: seen.append((done, total)))
        assert len(terminal.getvalue()) == length  # whoever gives a function of their own gets no bar
    assert seen == [(0, 2), (1, 2), (2, 2)]
    monkeypatch.setitem(sys.modules, "ipykernel", ModuleType("ipykernel"))
    assert measuring._somebody_looks()  # the streams of a kernel are no terminal


def test_the_types_are_for_other_packages_and_the_version_is_that_of_the_package() -> None:
    assert (Path(fsd_core.__file__).parent / "py.typed").is_file()
    declared = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert 'dynamic = ["version"]' in declared
    assert 'path = "fsd_core/__init__.py"' in declared
