"""The house rules that a tool can check: which way imports point, what the web process loads, what no file may say."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Builds what `python app.py` builds, then names the forbidden modules that were loaded on the way.
WEB_PROCESS = """
import sys
import app
from dashboard.web import build_app
from fsd_core.settings import Settings
settings = Settings(home=sys.argv[1], mlflow_ui=False)
app.upgrade(settings.resolved_database_url)
build_app(app.Repository(app.open_database(settings.resolved_database_url)), settings)
app.Supervisor(settings)
print("LOADED", *sorted({name.partition(".")[0] for name in sys.modules} & {"torch", "transformers", "mlflow"}))
"""


def test_the_web_process_loads_neither_torch_nor_transformers_nor_mlflow(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-c", WEB_PROCESS, str(tmp_path)], cwd=ROOT, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.splitlines()[-1] == "LOADED"


def tracked_texts() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    paths = [ROOT / name for name in listed.split("\0") if name]
    return [path for path in paths if path.is_file() and b"\0" not in path.read_bytes()[:4096]]


def test_no_file_names_a_path_of_the_machine_it_was_written_on() -> None:
    if not (ROOT / ".git").exists():
        pytest.fail("The files to check are those that git knows: run the tests in a clone.")
    homes = re.compile(r"/(?:Users|home)/(?!user/)\w+/|[A-Z]:\\\\?Users\\")
    here = {f"{ROOT}/", f"{ROOT.parent}/", f"{Path.home()}/"} - {"/", "//"}
    found = []
    for path in tracked_texts():
        text = path.read_text(encoding="utf-8")
        found += [(path.name, word) for word in here if word in text]
        found += [(path.name, match) for match in homes.findall(text)]
    assert not found


def test_a_name_is_used_once_in_the_rooms_of_the_pages() -> None:
    names = Counter(path.stem for path in (ROOT / "dashboard").rglob("*.py") if path.stem != "__init__")
    assert [name for name, uses in names.items() if uses > 1] == []
