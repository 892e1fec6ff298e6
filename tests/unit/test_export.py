"""A comparison as files, from a real database: complete, exact, and harmless where it is opened."""

from __future__ import annotations

import csv
import io
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from sqlalchemy import update

from dashboard.compare.compared_runs import MOST_COMPARED_RUNS, compare, experiment_runs
from dashboard.compare.comparison_html import (
    comparison_html,
    no_runs_html,
    pairing_summary,
    settings_html,
    worst_prompts_html,
)
from dashboard.compare.export import (
    TableColumn,
    csv_text,
    escaped,
    html,
    latex,
    links_html,
    markdown,
    matched_csv,
    named_margin,
    parts,
    table,
)
from dashboard.runs.opened_run import slower_html
from dashboard.tables.prompt_pairs import pair_up, pairs_html
from dashboard.ui.templates import escape
from fsd_core.config import RunConfig
from fsd_core.errors import UnknownName
from fsd_core.settings import get_settings
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import GenerationRow
from tests.tools.plausible import PROMPTS, add_finished, do_prompts, finish, new_repository, sweep
from tests.unit.test_dashboard_theory import BOUNDS

HOSTILE = "=1+1<script>alert(1)</script>${alert(2)}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the database."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def repository(folder: Path) -> Repository:
    """A database that the tests of this file share: each adds to it, none changes what is there."""
    return new_repository(folder)


@pytest.fixture(scope="module")
def experiment(repository: Repository) -> str:
    return add_finished(repository, HOSTILE)


@pytest.mark.wide
def test_the_first_run_is_the_baseline_unless_another_is_chosen(repository: Repository, experiment: str):
    ids = experiment_runs(repository, experiment)
    first = compare(repository, ids, None)
    assert [row.is_baseline for row in first.rows] == [True] + [False] * 6
    assert first.warnings == []
    pinned = compare(repository, ids, ids[2])
    assert pinned.baseline is not None
    assert pinned.baseline.id == ids[2]
    assert [row.run.id for row in pinned.rows] == ids


def test_accuracy_is_compared_prompt_by_prompt(repository: Repository, experiment: str):
    target, draft = compare(repository, experiment_runs(repository, experiment)[:2], None).rows
    paired = draft.cells[0].paired
    assert paired is not None
    difference = draft.run.metrics["accuracy"] - target.run.metrics["accuracy"]  # type: ignore[index]
    assert paired.difference == pytest.approx(difference)
    assert (paired.n, paired.p_value < 0.05) == (PROMPTS, True)
    assert target.cells[0].paired is None


def test_a_run_that_an_earlier_version_measured_has_the_intervals_of_today(repository: Repository):
    run = repository.run(experiment_runs(repository, add_finished(repository, "Earlier"))[2])
    now = dict(run.metrics or {})
    earlier = {key: value for key, value in now.items() if not key.startswith("negative_log_likelihood_")}
    repository.set_scores(run.id, {}, earlier | {"tokens_per_second_low": 0.0, "same_text": 0.5})
    (row,) = compare(repository, [run.id], None).rows
    assert row.run.metrics == now | {"same_text": 0.5}


def test_each_run_has_a_verdict_within_the_margin(repository: Repository, experiment: str):
    ids = experiment_runs(repository, experiment)
    comparison = compare(repository, ids, None, 20)
    assert [row.verdict.kind if row.verdict else "" for row in comparison.rows[:2]] == ["", "worse"]
    read = pd.read_csv(io.StringIO(csv_text(comparison)))
    assert (read["margin"][1], read["verdict"][1]) == (20, "Worse")
    assert "Worse" in comparison_html(comparison)
    assert "&amp;margin=20" in links_html(comparison)


@pytest.mark.parametrize("margin", [-1.0, 21.0, float("nan"), named_margin("much")])
def test_what_is_no_margin_is_a_sentence_and_no_verdict(repository: Repository, experiment: str, margin: float | None):
    comparison = compare(repository, experiment_runs(repository, experiment), None, margin)
    (warning,) = comparison.warnings
    assert "expected 0 to 20 points of accuracy. No verdict is given." in warning
    assert not any(row.verdict for row in comparison.rows)
    assert "margin" not in links_html(comparison)


def test_a_run_that_is_slower_says_why(repository: Repository):
    target, _, sd, *_ = experiment_runs(repository, add_finished(repository, "Slow"))
    with repository._database.session() as session:
        own = update(GenerationRow).where(GenerationRow.run_id == sd)
        session.execute(own.values(seconds=3 * GenerationRow.seconds, tokens=GenerationRow.tokens))
    comparison = compare(repository, [target, sd], None)
    slower = comparison.rows[1].slowdown
    assert slower is not None
    assert comparison.rows[0].slowdown is None
    assert f"Why {comparison.rows[1].name} is slower" in comparison_html(comparison)
    assert "Slower than the baseline:" in markdown(comparison, "Slow")
    assert table(comparison)["slower_because"][1] == ", ".join(slower.parts)
    assert escape(slower.sentence()) in slower_html(slower)


def test_runs_of_different_tasks_have_no_verdict(repository: Repository, experiment: str):
    other = repository.create_run(
        RunConfig(
            setting=repository.run(experiment_runs(repository, experiment)[0]).config.setting, task="gsm8k", limit=3
        )
    )
    finish(repository, repository.run(other))
    comparison = compare(repository, [experiment_runs(repository, experiment)[0], other], None)
    assert comparison.rows[1].verdict is None
    assert all(cell.delta is None for cell in comparison.rows[1].cells)
    assert any("no prompt in common with the baseline" in sentence for sentence in comparison.warnings)


def test_a_run_without_numbers_never_stands_in_as_baseline(repository: Repository, experiment: str):
    waiting = repository.create_experiment(sweep("Waiting"))
    ids = [experiment_runs(repository, waiting)[0], *experiment_runs(repository, experiment)]
    found = compare(repository, ids, None)
    assert found.baseline is not None
    assert found.baseline.id == ids[1]
    assert any("1 run is not finished" in warning for warning in found.warnings)


def test_unknown_and_too_many_runs_are_warnings(repository: Repository, experiment: str):
    known = experiment_runs(repository, experiment)[0]
    found = compare(
        repository, [known, known, "\x00' OR 1=1", *(f"{n:032x}" for n in range(MOST_COMPARED_RUNS))], "gone"
    )
    assert [run.id for run in found.runs] == [known]
    assert [sentence.split(" ")[0] for sentence in found.warnings] == [
        str(MOST_COMPARED_RUNS + 2),
        str(MOST_COMPARED_RUNS - 1),
        "The",
    ]
    with pytest.raises(UnknownName):
        experiment_runs(repository, "nonsense")


def test_csv_keeps_every_digit_and_no_text_is_a_formula(repository: Repository, experiment: str):
    comparison = compare(repository, experiment_runs(repository, experiment), None)
    read = pd.read_csv(io.StringIO(csv_text(comparison)))
    assert read["tokens_per_second"].tolist() == table(comparison)["tokens_per_second"].tolist()
    assert read["tokens_per_second_ratio"][0] != read["tokens_per_second_ratio"][1]
    assert read["accuracy_difference"][1] == pytest.approx(read["accuracy"][1] - read["accuracy"][0])
    assert read["negative_log_likelihood_under"].tolist() == ["target", "draft"] + ["target"] * 5
    assert read["negative_log_likelihood_difference"].isna().tolist() == [True, True] + [False] * 5
    assert "setting.decoding.acceptance.divergence_top_k" not in read
    for name in ("mean_tokens_ratio", "target_passes_ratio", "runaway_rate_difference", "mcnemar_p_holm"):
        assert read[name].isna().tolist() == [True, name == "target_passes_ratio"] + [False] * 5
    assert set(read["experiment"]) == {"'" + HOSTILE}
    assert read["setting.decoding.acceptance.threshold"].tolist()[3:] == [0.05, 0.1, 0.2, 0.4]


def test_a_version_of_a_task_has_a_column_of_its_own(repository: Repository):
    version = "0123456789abcdef"
    runs = [repository.create_run(RunConfig(task=name, limit=1)) for name in ("arithmetic", f"mine@{version}")]
    read = pd.read_csv(io.StringIO(csv_text(compare(repository, runs, None))), dtype=str)
    assert sorted(zip(read["task"], read["task_version"].fillna(""), strict=True)) == [
        ("arithmetic", ""), (f"mine@{version}", version),
    ]  # fmt: skip


def test_html_holds_plotly_once_and_escapes_all_that_is_data(repository: Repository, experiment: str):
    text = html(compare(repository, experiment_runs(repository, experiment), None), HOSTILE)
    assert text.count("<script>alert(1)") == 0
    assert text.count("=1+1&lt;script&gt;") == 2  # title and heading
    assert text.count("plotly.js v") == 1
    assert '"showSendToCloud": false' in text or '"showSendToCloud":false' in text
    assert 'src="http' not in text


def test_latex_is_ascii_and_every_row_has_every_column(repository: Repository, experiment: str):
    comparison = compare(repository, experiment_runs(repository, experiment), None)
    comparison = comparison._replace(
        rows=[comparison.rows[0]._replace(name=r"50 % of $x_1$ & {a}\b ~^#"), *comparison.rows[1:]]
    )
    text = latex(comparison)
    assert text.isascii()
    assert r"50 \% of \$x\_1\$ \& \{a\}\textbackslash{}b \textasciitilde{}\textasciicircum{}\# (baseline)" in text
    assert r"FSD reducible \ensuremath{\cdot} js \ensuremath{\le} 0.05" in text
    names = []
    for part in text.split(r"\begin{tabular}")[1:]:
        columns = re.match(r"\{@\{\}p\{0\.28\\linewidth\}(r+)@\{\}\}\n", part)
        assert columns is not None
        rows = [line for line in part.splitlines() if line.endswith(r"\\")]
        assert {len(re.findall(r"(?<!\\)&", row)) for row in rows} == {len(columns[1])}
        names.append([name for row in rows if (name := row.partition(" & ")[0].strip())])
    # Three parts of the seven runs' table, each under the names of the settings; then a rule at matched points.
    assert [len(part) for part in names] == [1 + 7, 1 + 7, 1 + 7, 2, 2, 2]
    assert names[0] == names[1] == names[2]
    for kind in ("table", "tabular"):
        assert text.count(rf"\begin{{{kind}}}") == text.count(rf"\end{{{kind}}}") > 0
    assert sum(text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")) == 3 * 6
    plain = re.sub(r"\\[{}]", "", text)
    assert plain.count("{") == plain.count("}")
    assert escaped("日") == "?"


def test_a_latex_table_says_what_it_is_of(repository: Repository, experiment: str):
    comparison = compare(repository, experiment_runs(repository, experiment), None)
    text = latex(comparison)
    assert rf"\caption{{Bundled arithmetic pair, arithmetic, n = {PROMPTS} prompts. Intervals are of 95 \%" in text
    assert "McNemar's exact test of the accuracy against the baseline's, corrected by Holm for 6 comparisons." in text
    labels = re.findall(r"\\label\{(tab:fsd-[0-9a-f]{8}[\w-]*)\}", text)
    assert len(set(labels)) == text.count(r"\begin{table}") == 3
    assert labels == re.findall(
        r"\\label\{(.*)\}", latex(compare(repository, [*experiment_runs(repository, experiment)], None))
    )
    head, draft = (next(line for line in text.splitlines() if line.startswith(name)) for name in ("Setting", "Draft"))
    assert head.removesuffix(r" \\").split(" & ")[:4] == ["Setting", "n", r"(\%)", "p"]
    assert draft.removesuffix(r" \\").split(" & ")[3] == r"\ensuremath{<} 0.001"
    assert comparison.rows[1].cells[0].corrected_p is not None


def test_the_parts_of_a_latex_table_are_no_wider_than_a_page():
    columns = [TableColumn(["Title"], [["9" * width]]) for width in (20, 20, 20, 8, 70, 5, 5)]
    divided = parts(columns)
    assert [len(part) for part in divided] == [2, 2, 1, 2]  # one that is too wide alone stands alone
    assert [column for part in divided for column in part] == columns


def test_a_row_that_begins_with_a_bracket_is_no_option_of_the_row_before(repository: Repository, experiment: str):
    comparison = compare(repository, experiment_runs(repository, experiment)[:2], None)
    rows = [comparison.rows[0], comparison.rows[1]._replace(name="[1pt] a name")]
    assert "\n{}[1pt] a name & " in latex(comparison._replace(rows=rows))


def test_the_latex_tables_are_whole_and_fit_a_page(repository: Repository, experiment: str, tmp_path: Path):
    """They are compiled where there is a TeX; elsewhere braces, environments and columns are counted."""
    text = latex(compare(repository, experiment_runs(repository, experiment), None))
    plain = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert plain.count("{") == plain.count("}")
    for name in ("table", "tabular"):
        assert text.count(rf"\begin{{{name}}}") == text.count(rf"\end{{{name}}}") > 0
    if (tex := shutil.which("pdflatex")) is None:
        return
    document = "\\documentclass{article}\\usepackage{booktabs}\\begin{document}" + text + "\\end{document}"
    (tmp_path / "paper.tex").write_text(document)
    result = subprocess.run(
        [tex, "-halt-on-error", "-no-shell-escape", "paper.tex"], cwd=tmp_path, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stdout
    assert "Overfull" not in result.stdout


@pytest.mark.wide
def test_the_command_writes_what_the_page_exports(
    repository: Repository, experiment: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("FSD_HOME", str(folder))
    monkeypatch.setattr(sys, "argv", ["dashboard", experiment[:8], "--paper", "--out", str(tmp_path)])
    get_settings.cache_clear()
    with pytest.raises(SystemExit, match=r"^0$"):
        runpy.run_module("dashboard", run_name="__main__")
    get_settings.cache_clear()
    figures = {path.suffixes[-2]: path.read_bytes() for path in tmp_path.glob("*.pdf")}
    assert {".tradeoff", ".matched", ".divergences"} < set(figures)
    assert ".predicted" not in figures  # none of these runs was predicted
    assert all(figure.startswith(b"%PDF") for figure in figures.values())
    written = {"".join(path.suffixes): path.read_bytes().decode() for path in tmp_path.glob("*[!f]")}
    assert set(written) == {".csv", ".matched.csv", ".md", ".tex"}
    comparison = compare(repository, experiment_runs(repository, experiment), None)
    assert written[".csv"] == csv_text(comparison)
    assert written[".tex"] == latex(comparison)
    assert written[".matched.csv"] == matched_csv(comparison)


def test_the_worst_prompts_of_a_run_are_those_with_the_lowest_acceptance(repository: Repository, experiment: str):
    target, _, sd, *_ = experiment_runs(repository, experiment)
    rates = [g.accepted / g.drafted for g in repository.generations(sd, worst_first=True)]
    assert rates == sorted(rates)
    assert len(set(rates)) > PROMPTS / 2
    assert [g.position for g in repository.generations(target, worst_first=True)] == list(range(PROMPTS))
    links = worst_prompts_html(compare(repository, [target, sd], None))
    assert f"runs?run={sd}&amp;prompts=worst" in links
    assert target not in links


def test_two_runs_are_paired_on_what_both_have_done(repository: Repository, experiment: str):
    other = repository.create_experiment(sweep("Half"))
    half = repository.experiment(other).runs[1]
    do_prompts(repository, half, 10)
    full = experiment_runs(repository, experiment)[0]
    pairing = pair_up(repository, full, half.id)
    assert len(pairing.pairs) == 10
    assert sum(pairing.count(a, b) for a in (True, False) for b in (True, False)) == 10
    assert pairing.filtered("outcome") == [pair for pair in pairing.pairs if pair.a.outcome != pair.b.outcome]
    assert len(pairing.filtered("outcome")) <= len(pairing.filtered("text")) <= len(pairing.filtered("all"))
    assert "no finished prompt in common" in pairing_summary(pair_up(repository, full, "gone"), "a", "b")


def test_no_text_of_a_run_becomes_markup(repository: Repository, experiment: str):
    ids = experiment_runs(repository, experiment)
    comparison = compare(repository, ids, None)
    pairing = pair_up(repository, *ids[:2])
    shown = "".join(
        (
            comparison_html(comparison), settings_html(comparison, True), pairing_summary(pairing, HOSTILE, HOSTILE),
            pairs_html(pairing.pairs, HOSTILE, HOSTILE), no_runs_html(repository.experiments()),
        )
    )  # fmt: skip
    assert "alert(1)" in shown
    assert "<script" not in shown
    assert "${" not in shown


def test_the_exports_tell_the_rules_at_matched_points(repository: Repository, experiment: str):
    comparison = compare(repository, experiment_runs(repository, experiment), None)
    rows = pd.read_csv(io.StringIO(matched_csv(comparison)))
    assert list(dict.fromkeys(rows.point)) == ["ratio", "margin", "beside"]
    assert rows[rows.point == "beside"].rule.tolist() == ["Target alone", "Draft alone", "SD · γ 5"]
    assert set(rows[rows.point == "ratio"].rule) == {"FSD reducible · js · γ 5"}
    assert (rows.prompts == PROMPTS).all()
    texts = latex(comparison), html(comparison), markdown(comparison, "Matched")
    assert all("Accuracy lost at equal target passes" in text for text in texts)
    assert texts[0].isascii()
    assert texts[0].count(r"\begin{table}") == 3
    assert texts[1].count('class="plotly-graph-div"') == 9
    assert "Not measured on these prompts: Block · γ 5." in texts[2]


REPORT_HOSTILE = "a | b <script> *c* `d` [e](f)"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def report_repository(home: Path) -> Repository:
    return new_repository(home)


def test_a_row_per_run_and_every_cell_in_its_column(report_repository: Repository) -> None:
    experiment = add_finished(report_repository, REPORT_HOSTILE)
    comparison = compare(report_repository, experiment_runs(report_repository, experiment), None)
    text = markdown(comparison, REPORT_HOSTILE, ["python -m fsd_core sweep --thresholds 0.1"])
    heading, *_ = text.splitlines()
    assert heading == r"## a \| b \<script\> \*c\* \`d\` \[e\](f)"
    assert "```\npython -m fsd_core sweep --thresholds 0.1\n```" in text
    rows = [line for line in text.partition("\n### ")[0].splitlines() if line.startswith("| ")]
    assert len(rows) == 1 + len(comparison.rows)
    assert len({row.replace(r"\|", "").count("|") for row in rows}) == 1
    assert "(baseline)" in rows[1]
    speed = comparison.rows[2].run.metrics["tokens_per_second"]  # type: ignore[index]
    assert f"{speed:,.0f}"[:2] in rows[3]
    assert "×" in rows[3]
    assert "model pair bundled; task arithmetic;" in text
    assert "commit c0ffeec0ffee with changes." in text


def test_bounds_that_were_measured_stand_below(report_repository: Repository) -> None:
    experiment = add_finished(report_repository, "Bounds")
    ids = experiment_runs(report_repository, experiment)
    run = report_repository.run(ids[1])
    report_repository.set_scores(run.id, {}, (run.metrics or {}) | {"bounds": [BOUNDS]})
    text = markdown(compare(report_repository, ids, None), "Bounds")
    told, numbers = text.split(", temperature 1.\n")
    assert f"at 48 positions of {run.label}" in told
    below = [line for line in numbers.splitlines() if line.startswith("| ")]
    assert {line.count("|") for line in below} == {10}
    assert below[0].startswith("| Drafts | 1 | 2 |")
    assert [line.split(" | ")[0] for line in below[1:]] == [
        "| **Optimum, with replacement**", "| RRS", "| **Optimum, without replacement**", "| **Optimum, greedy**",
        "| SpecHub",
    ]  # fmt: skip
    assert "| RRS | 54.0 | 58.0 |" in text
    assert "| SpecHub | – | 60.0 | – |" in text


@pytest.mark.wide
def test_the_command_writes_files_and_tells_what_it_cannot_find(
    home: Path, report_repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = add_finished(report_repository, "Leniency, at 1 thread")
    database, results = next(home.rglob("*.db")), ("--out", str(home / "results"))
    done = subprocess.run(
        [sys.executable, "-m", "dashboard", experiment[:12], *results, "--by", "python -m fsd_core sweep"],
        env={"PATH": "", "FSD_HOME": str(home), "FSD_DATABASE_URL": f"sqlite:///{database}"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0
    assert done.stderr.startswith("No lossy setting is within 2 points of the target yet: about ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == f"{home / 'results' / 'leniency-at-1-thread.md'}\n"
    assert (home / "results" / "leniency-at-1-thread.csv").read_text().count("\n") == 8
    monkeypatch.setenv("FSD_HOME", str(home))
    monkeypatch.setenv("FSD_DATABASE_URL", f"sqlite:///{database}")
    monkeypatch.setattr(sys, "argv", ["dashboard", "fedcba", *results])
    get_settings.cache_clear()
    with pytest.raises(SystemExit, match=r"^2$"):
        runpy.run_module("dashboard", run_name="__main__")  # here, since to load the pages takes seconds
    get_settings.cache_clear()
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: There is no run and no experiment 'fedcba'")

    first, second = (run.id for run in report_repository.runs(limit=None)[:2])
    for baseline, code, told in ((second, 0, ""), ("zz", 2, "error: The baseline 'zz' is the beginning of no runs of")):
        monkeypatch.setattr(sys, "argv", ["dashboard", experiment, *results, "--baseline", baseline])
        get_settings.cache_clear()
        with pytest.raises(SystemExit, match=f"^{code}$"):
            runpy.run_module("dashboard", run_name="__main__")
        err = capsys.readouterr().err
        assert err.startswith(told)
        assert err.startswith("error: ") == bool(code)
    get_settings.cache_clear()
    rows = list(csv.DictReader((home / "results" / "leniency-at-1-thread.csv").read_text().splitlines()))
    assert [row["run"] for row in rows if row["baseline"] == "True"] == [second]
    assert first in {row["run"] for row in rows}
