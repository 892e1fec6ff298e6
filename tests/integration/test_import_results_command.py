"""``import-results`` on the command line: stored once, listed as imported, refused with a sentence and status 2."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

pytestmark = pytest.mark.processes

Call = Callable[..., tuple[int, str, str]]
RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"


@pytest.fixture(autouse=True)
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store would be made anew for every home, which takes seconds."""
    monkeypatch.setenv("FSD_MLFLOW_URI", "http://127.0.0.1:9")


def test_result_files_are_imported_once_and_listed(call: Call, tmp_path: Path) -> None:
    files = [str(RESULTS / name) for name in ("vllm-bench-serve.json", "llama-batched-bench.jsonl")]
    status, out, err = call("import-results", *files)
    assert status == 0, err
    assert "Imported · toy-model, concurrency 4: nothing here has verified these figures (tool vllm bench serve" in out
    assert out.endswith("Added 3 runs.\n")
    assert "cannot be reached" in err or "MLflow" in err  # the worker copies them later
    status, out, _ = call("import-results", *files, "--json")
    told = json.loads(out)
    assert (status, told["added"], len(told["runs"])) == (0, 0, 3)
    assert [run["acceptance"] for run in told["runs"]] == ["imported"] * 3
    assert told["runs"][0]["provenance"]["measured_elsewhere"]["file"] == "vllm-bench-serve.json"
    assert "Imported · toy-model" in call("runs")[1]
    bad = tmp_path / "bad.json"
    bad.write_text('{"duration": 1}')
    for arguments, sentence in (
        ([], "Nothing is to be imported"),
        ([str(bad)], "bad.json is not a result that can be read"),
        ([files[0], str(tmp_path / "none.json")], "There is no file"),
        (["--mlflow-run", "http://host/"], "is no address of a run of MLflow"),
        ([files[0], "--task", "a\nb"], "The task 'a\\nb' cannot be used"),
    ):
        status, _, err = call("import-results", *arguments)
        assert (status, sentence in err) == (2, True), err
