"""Reports: frozen with their runs, safe as HTML, whole after an export and an import."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.compare.compared_runs import ComparedRuns, compare, experiment_runs
from fsd_core.errors import DataDamaged, Malformed, UnknownChoice, UnknownName
from fsd_core.storage.catalogue import ReportContent
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import ReportRow
from fsd_core.texts import markdown_html
from fsd_plugins.reports.frozen import changed_runs, figure_svg, report_html
from fsd_plugins.reports.section import PARTS, frozen_comparison
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools.plausible import add_finished, new_repository

HOSTILE = "<script>alert(1)</script> ${alert(2)} [x](javascript:alert(3)) ![y](http://evil.example/y.png)"
ID = "ab" * 16
Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def stored(tmp_path: Path) -> Repository:
    (tmp_path / "home").mkdir()
    return new_repository(tmp_path / "home")


@pytest.fixture
def comparison(stored: Repository) -> ComparedRuns:
    return compare(stored, experiment_runs(stored, add_finished(stored, "Frozen", limit=6)), None)


def saved(
    stored: Repository, comparison: ComparedRuns, text: str = "## What we saw\n\n| a | b |\n|---|---|\n| 1 | 2 |"
) -> str:
    content = frozen_comparison(comparison, HOSTILE[:25], text, ["tradeoff", "matched", "metrics", "settings"])
    stored.add_report(ID, content, "Ann")
    return ID


@pytest.mark.wide
def test_a_report_is_one_file_without_scripts_or_addresses(stored: Repository, comparison: ComparedRuns):
    saved(stored, comparison, f"## What we saw\n\n{HOSTILE}\n\n| a | b |\n|---|---|\n| 1 | 2 |")
    text = report_html(stored, stored.report(ID))
    assert "<script" not in text
    assert text.startswith("<!doctype html>")
    assert not re.findall(r"src=\"(?!data:image/svg)[^\"]*\"", text)  # nothing is fetched
    assert re.findall(r'href="([^"]*)"', text) == ["http://evil.example/y.png"]  # a link that a reader may follow
    assert "<h2>What we saw</h2>" in text
    assert "<td>1</td>" in text
    assert "&lt;script&gt;alert(1)" in text
    pictures = re.findall(r'src="data:image/svg\+xml;base64,([^"]+)"', text)
    assert [base64.b64decode(picture) for picture in pictures] == [figure_svg(stored.report(ID), i) for i in (0, 1)]
    assert "Accuracy against throughput" in base64.b64decode(pictures[0]).decode()
    for run in comparison.runs:
        assert run.id in text
    assert "Since then" not in text


def test_html_of_a_text_is_text():
    assert markdown_html("<b>x</b>") == "<p>&lt;b&gt;x&lt;/b&gt;</p>\n"
    assert "<a" not in markdown_html("[x](javascript:alert(1))")
    assert "<img" not in markdown_html("![x](http://evil.example/x.png)")
    assert '<a href="https://example.org">' in markdown_html("[x](https://example.org)")


@pytest.mark.wide
def test_a_report_stays_as_it_was_and_says_which_runs_are_not(stored: Repository, comparison: ComparedRuns):
    saved(stored, comparison)
    before = stored.report(ID)
    assert changed_runs(stored, before.content.runs) == ([], [])
    rescored, deleted = comparison.runs[2], comparison.runs[4]
    stored.set_scores(rescored.id, {}, dict(rescored.metrics or {}) | {"correct": 1})
    stored.delete_run(deleted.id)
    after = stored.report(ID)
    assert repr(after) == repr(before)
    changes = changed_runs(stored, after.content.runs)
    assert ([run.id for run in changes.changed], [run.id for run in changes.deleted]) == ([rescored.id], [deleted.id])
    text = report_html(stored, after)
    assert "Since then 1 of its runs changed" in text
    assert "Since then 1 of its runs\n    was deleted" in text
    assert deleted.id in text


def test_a_report_is_saved_once_and_refuses_what_it_cannot_hold(stored: Repository, comparison: ComparedRuns):
    saved(stored, comparison)
    saved(stored, comparison, "Another text under the same id")
    assert "Another" not in stored.report(ID).content.text
    assert (stored.count_reports(), stored.reports()[0].title) == (1, HOSTILE[:25])
    assert frozen_comparison(comparison, "Half a pair \ud800", "\ud800", []).title == "Half a pair \ufffd"
    for title, text, named in (("", "x", "Title"), ("x" * 201, "x", "Title"), ("x", "x" * 50_001, "Text")):
        with pytest.raises(Malformed, match=named):
            frozen_comparison(comparison, title, text, [])
    with pytest.raises(UnknownChoice, match="nothing"):
        frozen_comparison(comparison, "x", "", ["nothing"])
    with pytest.raises(UnknownName):
        figure_svg(stored.report(ID), 2)
    with pytest.raises(UnknownName, match="report"):
        stored.report("0" * 32)
    stored.delete_report(ID)
    assert stored.reports() == []
    with pytest.raises(UnknownName, match="report"):
        stored.delete_report(ID)


@pytest.mark.wide
def test_every_part_of_a_comparison_can_be_frozen(stored: Repository, comparison: ComparedRuns):
    content = frozen_comparison(comparison, "All", "", list(PARTS))
    stored.add_report(ID, content, "Ann")
    assert stored.report(ID).content == content
    assert {table.title for table in content.tables} >= {"Metrics", "Settings"}
    for table in content.tables:
        assert {len(row) for row in table.rows} == {len(table.columns)}
    for index in range(len(content.figures)):
        assert figure_svg(stored.report(ID), index).startswith(b"<?xml")


def test_a_changed_row_is_no_report(stored: Repository, comparison: ComparedRuns):
    saved(stored, comparison)
    with stored._database.session() as session:
        row = session.get_one(ReportRow, ID)
        row.content = dict(row.content) | {"text": "Forged"}
    with pytest.raises(DataDamaged, match="not what was saved"):
        stored.report(ID)


@pytest.mark.wide
def test_reports_are_exported_and_imported(stored: Repository, comparison: ComparedRuns, tmp_path: Path):
    saved(stored, comparison)
    url = f"sqlite:///{tmp_path / 'home' / 'fsd.db'}"
    export(url, tmp_path / "all.zip", tmp_path)
    (tmp_path / "other").mkdir()
    other = new_repository(tmp_path / "other")
    for _ in range(2):
        database = open_database(f"sqlite:///{tmp_path / 'other' / 'fsd.db'}")
        import_file(database, tmp_path / "all.zip", tmp_path)
        database.close()
    assert repr(other.report(ID)) == repr(stored.report(ID))
    assert changed_runs(other, other.report(ID).content.runs) == ([], [])


@pytest.mark.wide
def test_the_command_line_lists_and_exports_reports(call: Call, home: Path, tmp_path: Path):
    home.mkdir()
    repository = new_repository(home)
    comparison = compare(repository, experiment_runs(repository, add_finished(repository, "Frozen", limit=3)), None)
    repository.add_report(ID, frozen_comparison(comparison, "Knee", "Text", ["tradeoff"]), "Ann")
    status, out, _ = call("reports", "list")
    assert (status, ID in out, "Knee" in out) == (0, True, True)
    file = tmp_path / "knee.html"
    assert call("reports", "export", ID, str(file))[0] == 0
    assert file.read_text(encoding="utf-8") == report_html(repository, repository.report(ID))
    status, _, error = call("reports", "export", ID, str(file))
    assert (status, "exists already" in error) == (2, True)
    assert "There is no report" in call("reports", "export", "0" * 32, str(tmp_path / "no.html"))[2]
    assert not (tmp_path / "no.html").exists()


def test_content_of_another_form_is_refused(comparison: ComparedRuns):
    content = frozen_comparison(comparison, "x", "", [])
    with pytest.raises(ValueError, match="digest"):
        ReportContent.model_validate(content.as_json() | {"runs": [{"id": ID, "name": "x", "digest": "?"}]})
