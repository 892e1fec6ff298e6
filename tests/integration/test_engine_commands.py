"""What others ran, by the command line: engines that are named and measured, and results of other tools."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fsd_core.config.options import method
from fsd_core.models.loading import LoadedPair
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.tasks.readings import READING_VERSION
from tests.tools.forked import ForkedCommand
from tests.tools.sizes import PATIENCE
from tests.tools.toy_engine import MODEL, Request, ToyEngine

pytestmark = pytest.mark.processes


Call = Callable[..., tuple[int, str, str]]
SD = method({"acceptance": "speculative", "draft_length": 3, "max_new_tokens": 8})
SECRET = "sk-very-secret-8f1d"


@pytest.fixture(scope="module")
def engine(pair: LoadedPair) -> Iterator[ToyEngine]:
    with ToyEngine(pair, SD) as engine:
        yield engine


@pytest.fixture(autouse=True)
def without_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its store would be made anew for every home, which takes seconds."""
    monkeypatch.setenv("FSD_MLFLOW_URI", "http://127.0.0.1:9")


def add(call: Call, engine: ToyEngine, *more: str) -> str:
    status, out, err = call(
        "endpoints", "add", "toy", "--kind", "vllm", "--url", f"{engine.url}/v1", "--model", MODEL, *more
    )
    assert status == 0, err
    return out


def repository_of(home: Path) -> Repository:
    return Repository(open_database(f"sqlite:///{home / 'fsd.db'}"))


@pytest.mark.wide
def test_an_endpoint_is_named_measured_exported_and_forgotten_and_its_key_is_nowhere(
    call: Call, home: Path, toy: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOY_KEY", SECRET)
    engine.authorizations.clear()
    assert add(call, engine, "--key-variable", "TOY_KEY") == (
        "toy is vLLM 9.8.7 with toy-model. Measure with --endpoint toy.\n"
    )
    assert f"vLLM at {engine.url}, model {MODEL}, key TOY_KEY" in call("endpoints", "show", "toy")[1]
    assert MODEL in call("endpoints")[1]
    assert call("endpoints", "check", "toy")[0] == 0
    options = ("--pair", toy, "--task", "arithmetic", "--limit", "3", "--max-new-tokens", "8")

    def leaking(request: Request) -> None:
        request.page(400, "application/json", json.dumps({"error": f"the key {SECRET} is not valid for this"}))

    engine.faults.append(leaking)
    status, out, err = call("run", "--endpoint", "toy", "--parallel", "2", "--json", *options)
    told = json.loads(out.splitlines()[-1])
    assert (status, told["status"], told["failed"], told["acceptance"]) == (0, "finished", 1, "served"), err
    assert told["label"] == "Served · vLLM toy"
    assert told["provenance"] == {"engine": "vLLM 9.8.7", "reading_versions": str(READING_VERSION)}
    assert engine.authorizations == [f"Bearer {SECRET}"] * 3
    assert call("export", str(home / "all.zip"))[0] == 0
    other = home.with_name("other")
    monkeypatch.setenv("FSD_HOME", str(other))
    imported = call("import", str(home / "all.zip"))
    assert imported[0] == 0, imported
    (copied,) = repository_of(other).runs()
    assert repository_of(other).readings(copied.id) == repository_of(home).readings(copied.id) != []
    monkeypatch.setenv("FSD_HOME", str(home))
    assert call("delete", "--yes", told["run_id"])[0] == 0
    assert repository_of(home).readings(told["run_id"]) == []
    assert call("endpoints", "remove", "toy")[0] == 0
    assert "There is no endpoint 'toy'" in call("run", "--endpoint", "toy", *options)[2]
    kept = [file for folder in (home, other) for file in folder.rglob("*") if file.is_file()]
    assert len(kept) > 2
    assert not [file for file in kept if SECRET.encode() in file.read_bytes()]
    assert SECRET not in out + err


@pytest.mark.wide
def test_loads_are_runs_of_one_experiment_and_a_sweep_takes_an_endpoint_beside_ours(
    call: Call, toy: str, engine: ToyEngine, home: Path
) -> None:
    add(call, engine)
    options = ("--pair", toy, "--task", "arithmetic", "--limit", "4", "--max-new-tokens", "8", "--json")
    status, out, err = call("run", "--endpoint", "toy", "--parallel", "1,2,4", *options)
    runs = json.loads(out.splitlines()[-1])["runs"]
    assert status == 0, err
    assert [run["engine"]["other_traffic"] for run in runs] == [False] * 3
    assert len({run["setting_id"] for run in runs}) == 1
    status, out, err = call("run", "--endpoint", "toy", "--request-rate", "50,200", "--parallel", "4", *options)
    runs = json.loads(out.splitlines()[-1])["runs"]
    assert (status, [run["engine"]["requests"] for run in runs]) == (0, [4, 4]), err
    database = open_database(f"sqlite:///{home / 'fsd.db'}")
    kept = Repository(database).experiments()[0].runs
    database.close()
    assert [(run.config.rate, run.config.batch) for run in kept] == [(50.0, 4), (200.0, 4)]
    sweep = ("sweep", "--endpoint", "toy", "--acceptance", "speculative", "--no-baselines", "--parallel", "1,2")
    status, out, err = call(*sweep, *options)
    runs = json.loads(out.splitlines()[-1])["runs"]
    assert (status, [run["acceptance"] for run in runs]) == (0, ["speculative", "served"] * 2), err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("run", "--endpoint", "toy", "--threshold", "0.1"), "--threshold does not apply to an endpoint"),
        (("run", "--endpoint", "toy", "--parallel", "0"), "--parallel is 0: expected from 1 to 256"),
        (("run", "--endpoint", "toy", "--parallel", "one"), "--parallel is 'one': expected a whole number"),
        (("run", "--parallel", "2"), "--parallel is of an endpoint"),
        (("run", "--request-rate", "2"), "--request-rate is of an endpoint"),
        (("run", "--endpoint", "toy", "--request-rate", "1,-2"), "expected more than 0"),
        (("endpoints", "check", "none"), "There is no endpoint 'none'"),
        (("endpoints", "add", "a", "--kind", "x", "--url", "http://h", "--model", "m"), "expected 'vllm', 'sglang'"),
        (("endpoints", "add", "a", "--kind", "vllm", "--url", "http://h", "--model", "m", "--key-variable", "sk-1"),
         "Give the name, never the key"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_one_sentence(
    call: Call, engine: ToyEngine, arguments: tuple[str, ...], sentence: str
) -> None:
    add(call, engine)
    status, _, err = call(*arguments)
    assert (status, sentence in err, err.count("\n")) == (2, True, 1), err


@pytest.mark.wide
def test_a_killed_run_goes_on_by_the_same_command_and_counts_nothing_twice(
    call: Call, home: Path, toy: str, engine: ToyEngine
) -> None:
    add(call, engine)
    options = (
        "run",
        "--endpoint",
        "toy",
        "--pair",
        toy,
        "--task",
        "arithmetic",
        "--limit",
        "5",
        "--max-new-tokens",
        "8",
    )
    held: list[Request] = []

    def hold(request: Request) -> None:
        held.append(request)
        request.connection.recv(1)  # until the process that asks is gone

    engine.faults += [Request.answer, Request.answer, hold]
    environment = {**os.environ, "FSD_HOME": str(home)}
    process = ForkedCommand(options, environment, home.with_suffix(".out"))
    try:
        deadline = time.monotonic() + PATIENCE
        while not held and time.monotonic() < deadline:
            time.sleep(0.02)
        assert held
    finally:
        process.kill()
        process.wait()
    repository = repository_of(home)
    (run,) = repository.runs()
    assert repository.done_positions(run.id) == {0, 1}
    engine.asked.clear()
    status, _, err = call(*options)
    assert (status, "stopped at prompt 2 of 5" in err) == (0, True), err
    run = repository.run(run.id)
    assert (run.status, run.prompts_done, run.losses, len(engine.asked)) == ("finished", 5, {}, 3)


RESULTS = Path(__file__).resolve().parents[1] / "data" / "results"


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
