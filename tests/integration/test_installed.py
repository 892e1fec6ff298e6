"""What ``pip install .`` gives: the library and its command, with migrations and models, away from the checkout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.wide("test_architecture.py")]

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel's contents; its dependencies are those of the tests."""
    built, folder = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet"]
    offline = ["--no-deps", "--no-index"]
    subprocess.run([*pip, "wheel", *offline, "--no-build-isolation", "-w", str(built), str(ROOT)], check=True)
    (wheel,) = built.iterdir()
    subprocess.run([*pip, "install", *offline, "--target", str(folder), str(wheel)], check=True)
    return folder


def run(installed: Path, home: Path, *command: str) -> str:
    environment = os.environ | {"PYTHONPATH": str(installed), "FSD_HOME": str(home), "FSD_THREADS": "1"}
    done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_generates_and_creates_its_database(installed: Path, tmp_path: Path) -> None:
    command = str(installed / "bin" / "fsd-lab")
    text = run(installed, tmp_path, command, "generate", "Question: Eva has 3 apples.", "--max-new-tokens", "4")
    assert text.strip()
    run(installed, tmp_path, command, "db", "upgrade")
    assert (tmp_path / "fsd.db").stat().st_size > 0


LIBRARY = """
import sys, fsd_core
assert "torch" not in sys.modules
pair = fsd_core.load_pair()
print(fsd_core.Decoder(pair, max_new_tokens=4).generate("Question: Eva has 3 apples.").text)
measured = fsd_core.compare([{"acceptance": "autoregressive"}, {"threshold": 0.2}], limit=1, pair=pair)
print(*measured.to_frame()["label"], measured.figure().layout.title.text, sep=chr(10))
"""


def test_the_library_generates_and_compares(installed: Path, tmp_path: Path) -> None:
    text, *labels, title = run(installed, tmp_path, sys.executable, "-c", LIBRARY).splitlines()
    assert text.strip()
    assert labels == ["Target alone", "FSD reducible · js ≤ 0.2 · γ 5"]
    assert title == "Accuracy against throughput"


def test_the_tasks_of_our_own_are_in_the_wheel(installed: Path, tmp_path: Path) -> None:
    told = run(installed, tmp_path, str(installed / "bin" / "fsd-lab"), "tasks")
    lines = {line.split()[0]: line.split()[-2:] for line in told.splitlines() if line.strip()}
    assert lines["arithmetic"] == ["600", "prompts"]
    assert lines["everyday"] == ["80", "prompts"]
    assert lines["short-problems"] == ["200", "prompts"]


def test_it_is_the_installed_library_that_runs(installed: Path, tmp_path: Path) -> None:
    where = run(installed, tmp_path, sys.executable, "-c", "import fsd_core; print(fsd_core.__file__)")
    assert Path(where.strip()).is_relative_to(installed)
    assert sorted(path.name for path in installed.iterdir() if not path.name.endswith(".dist-info")) == [
        "bin", "fsd_core", "fsd_plugins",
    ]  # fmt: skip
