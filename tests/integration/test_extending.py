"""What docs/extending.md shows, as it stands there: a package that pip installs brings a rule, a drafter, a task, a
metric and a feature."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[2]
SHOWN = dict(
    re.findall(r"```\w+\n# (\S+)\n(.*?)```", (ROOT / "docs" / "extending.md").read_text(encoding="utf-8"), re.DOTALL)
)
MEASURED = ("--drafter", "repeat", "--repeated", "2", "--task", "capitals", "--max-new-tokens", "8")
# What the author's test checks, then an experiment with what the package brings: torch is loaded once for both.
WORK = f"""
{SHOWN["test_extras.py"]}
for name, test in list(globals().items()):
    if name.startswith("test_"):
        test()
from fsd_core.cli.commands import main
print("CHECKED")
main(("sweep", "--acceptance", "mixture", "--weights", "off,0.6", "--json", *{MEASURED}))
"""
# The pages with the package and without it, in two forks of a process that has loaded Gradio.
PAGES = """
import os, sys
import gradio
folder, pages = sys.argv[1:]
for place in ([folder], []):
    if not (child := os.fork()):
        sys.path[:0] = place
        exec(pages)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
"""
SEEN = """
import json
from dashboard.compare.compared_runs import compare
from dashboard.compare.comparison_html import comparison_html
from dashboard.web import all_actions, build_pages
from fsd_core.settings import get_settings
from fsd_core.storage.repository import Repository
from fsd_core.storage.opening import open_database

settings = get_settings()
repository = Repository(open_database(settings.resolved_database_url))
pages = build_pages(repository, settings).get_config_file()["components"]
choices = {str(choice[1]) for part in pages for choice in part["props"].get("choices") or ()}
labels = {str(part["props"].get("label")) for part in pages}
comparison = compare(repository, [run.id for run in repository.runs(limit=10)], None)
offered = {"choices": sorted(choices), "labels": sorted(labels), "compare": comparison_html(comparison)}
offered |= {"actions": [it.name for it in all_actions()]}
print(json.dumps(offered | {"torch": "torch" in sys.modules}))
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that the package is installed in."""
    source, folder = tmp_path_factory.mktemp("extras"), tmp_path_factory.mktemp("site")
    for name, text in SHOWN.items():
        (source / name).write_text(text, encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    offline = ["--no-deps", "--no-index", "--no-build-isolation"]
    subprocess.run([*pip, *offline, "--target", str(folder), str(source)], check=True)
    return folder


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


def call(package: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(package), str(ROOT)])
    environment = os.environ | {"PYTHONPATH": path, "FSD_HOME": str(home), "FSD_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


def test_the_document_shows_a_package_its_code_and_its_test() -> None:
    assert SHOWN.keys() == {"pyproject.toml", "fsd_extras.py", "test_extras.py"}


@pytest.mark.wide
def test_the_command_line_offers_them(package: Path, home: Path) -> None:
    shown = " ".join(call(package, home, "-m", "fsd_core", "sweep", "--help").stdout.split())
    assert "dsbd, mixture" in shown
    assert "--weights TEXT" in shown
    assert "eagle, repeat" in shown
    assert "--repeated <int>" in shown
    assert "Capitals" in call(package, home, "-m", "fsd_core", "tasks").stdout
    refused = call(package, home, "-m", "fsd_core", "run", "--weight", "0.3")
    assert refused.stderr.strip() == (
        "error: --weight does not apply to the rule 'fsd-reducible': leave it out, or choose mixture."
    )
    refused = call(package, home, "-m", "fsd_core", "run", "--acceptance", "mixture", "--weight", "2")
    assert refused.stderr.strip() == "error: --weight is 2.0: expected at most 1."


@pytest.fixture(scope="module")
def worked(package: Path, home: Path) -> subprocess.CompletedProcess[str]:
    return call(package, home, "-c", WORK)


@pytest.mark.wide
def test_the_contract_holds_as_its_author_checks_it(worked: subprocess.CompletedProcess[str]) -> None:
    assert "CHECKED" in worked.stdout, worked.stderr


@pytest.mark.wide
def test_an_experiment_with_them_is_compared_on_the_pages(
    package: Path, home: Path, worked: subprocess.CompletedProcess[str]
) -> None:
    assert worked.returncode == 0, worked.stderr
    runs = json.loads(worked.stdout.splitlines()[-1])["runs"]
    drafter = "repeat · repeated tokens 2 · γ 5"
    assert [run["label"] for run in runs] == [
        "Target alone", f"SD · {drafter}", f"Mixture · weight 0 · {drafter}", f"Mixture · weight 0.6 · {drafter}",
    ]  # fmt: skip
    assert [run["words_per_text"] >= 0 for run in runs] == [True] * 4
    done = call(home, home, "-c", PAGES, str(package), SEEN)
    assert done.returncode == 0, done.stderr
    seen, without = map(json.loads, done.stdout.splitlines()[-2:])
    assert {"mixture", "repeat", "capitals"} <= {*seen["choices"]}
    assert {"Weight", "Weights", "Repeated tokens"} <= {*seen["labels"]}
    assert "Words" in seen["compare"]
    assert not seen["torch"], "the pages have loaded torch"
    assert ("longest_answer" in seen["actions"], "longest_answer" in without["actions"]) == (True, False)
    told = call(package, home, "-m", "fsd_core", "longest", runs[0]["run_id"])
    assert (told.returncode, told.stdout.strip() != "") == (0, True), told.stderr
    assert not {"mixture", "repeat"} & {*without["choices"]}
    assert f"Mixture · weight 0.6 · {drafter}" in without["compare"]


@pytest.mark.wide
def test_a_plug_in_that_cannot_be_loaded_is_left_out_in_a_sentence(package: Path, home: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n", encoding="utf-8")
    (broken / "entry_points.txt").write_text("[fsd_lab]\nnothing = no_such_module:Rule\n", encoding="utf-8")
    done = call(tmp_path, home, "-m", "fsd_core", "pairs")
    assert done.returncode == 0
    assert "bundled" in done.stdout
    done = call(tmp_path, home, "-m", "fsd_core", "run", "--acceptance", "mixture")
    assert done.returncode == 2
    assert "The plug-in 'nothing' of the package broken is left out: it cannot be loaded" in done.stderr
