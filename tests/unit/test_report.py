"""A comparison as Markdown: what it says, and that no name in it is read as markup."""

from __future__ import annotations

import csv
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

from dashboard.compare.compared_runs import compare, experiment_runs
from dashboard.compare.export import markdown
from fsd_core.settings import get_settings
from fsd_core.storage.repository import Repository
from tests.tools.plausible import add_finished, new_repository
from tests.unit.test_speedup import BOUNDS

HOSTILE = "a | b <script> *c* `d` [e](f)"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def repository(home: Path) -> Repository:
    return new_repository(home)


def test_a_row_per_run_and_every_cell_in_its_column(repository: Repository) -> None:
    experiment = add_finished(repository, HOSTILE)
    comparison = compare(repository, experiment_runs(repository, experiment), None)
    text = markdown(comparison, HOSTILE, ["python -m fsd_core sweep --thresholds 0.1"])
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


def test_bounds_that_were_measured_stand_below(repository: Repository) -> None:
    experiment = add_finished(repository, "Bounds")
    ids = experiment_runs(repository, experiment)
    run = repository.run(ids[1])
    repository.set_scores(run.id, {}, (run.metrics or {}) | {"bounds": [BOUNDS]})
    text = markdown(compare(repository, ids, None), "Bounds")
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
    home: Path, repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = add_finished(repository, "Leniency, at 1 thread")
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

    first, second = (run.id for run in repository.runs(limit=None)[:2])
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
