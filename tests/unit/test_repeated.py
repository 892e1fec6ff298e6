"""A repeated test finds nothing of what its first attempt left."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = """
import pytest

made = []

@pytest.fixture(scope="module")
def shared():
    made.append([])
    yield made[-1]

@pytest.fixture(scope="module")
def filled(shared):
    shared.append("filled")
    return shared

def test_before(filled):
    assert filled == ["filled"]
    filled.append("before")

@pytest.mark.flaky(reruns=1)
def test_that_leaves_something(filled):
    assert len(made) in (1, 2)
    if len(made) == 1:
        filled.append("left")
        raise AssertionError("the first attempt")
    assert filled == ["filled"]

def test_behind(filled):
    assert made == [["filled", "before", "left"], ["filled"]]
"""


@pytest.mark.processes
def test_a_repeated_test_has_what_its_module_shares_anew(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.tools.repeated import pytest_runtest_setup\n")
    (tmp_path / "test_shared.py").write_text(TESTS)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    told = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--rootdir", tmp_path, "-c",
         os.devnull, tmp_path],
        capture_output=True, text=True, env=environment | {"PYTHONPATH": str(ROOT)}, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert "3 passed, 1 rerun" in told.stdout, told.stdout
