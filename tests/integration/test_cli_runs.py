"""The commands that generate, on a toy pair, with the real database and the real MLflow store."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.compare.compared_runs import compare
from dashboard.compare.comparison_html import comparison_html
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from tests.tools.forked import ForkedCommand
from tests.tools.sizes import PATIENCE
from tests.tools.turnstile import Turnstile

Call = Callable[..., tuple[int, str, str]]
SHORT = ("--task", "arithmetic", "--limit", "3", "--max-new-tokens", "8")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for the module: MLflow takes seconds to make its store."""
    return tmp_path_factory.mktemp("home")


def repository(home: Path) -> Repository:
    return Repository(open_database(f"sqlite:///{home / 'fsd.db'}"))


def test_a_first_run_makes_the_database_and_prints_its_figures(call: Call, home: Path, toy: str) -> None:
    status, out, err = call("run", "--pair", toy, *SHORT, "--threshold", "0.2", "--json")
    assert (status, err) == (0, "")
    figures = json.loads(out.splitlines()[-1])
    for name in ("mean_acceptance_length", "tokens_per_second"):
        if name == "tokens_per_second" and figures[f"{name}_low"] is None:  # the machine paused in one of the prompts
            assert figures[f"{name}_high"] is None
        else:
            assert figures[f"{name}_low"] <= figures[name] <= figures[f"{name}_high"]
    if figures["acceptance_rate"] in (0, 1):  # where all prompts are alike nothing tells how much others would differ
        assert (figures["acceptance_rate_low"], figures["acceptance_rate_high"]) == (None, None)
    else:
        assert figures["acceptance_rate_low"] < figures["acceptance_rate"] < figures["acceptance_rate_high"]
    assert figures["accuracy"] == 0  # random weights solve nothing
    assert figures["accuracy_interval"] == [figures["accuracy_low"], figures["accuracy_high"]]
    assert figures["mlflow_run_id"]
    assert figures["tokens"] > 0
    assert (figures["pair"], figures["threshold"], figures["limit"], figures["n"]) == (toy, 0.2, 3, 3)

    run = repository(home).run(figures["run_id"])
    assert (run.status, run.mlflow_run_id) == ("finished", figures["mlflow_run_id"])
    assert run.metrics is not None
    assert {key: figures[key] for key in run.metrics} == run.metrics


@pytest.mark.wide
def test_an_infinite_threshold_is_json_too(call: Call, toy: str) -> None:
    infinite = ("--pair", toy, "--divergence", "kl", "--threshold", "inf", "--max-new-tokens", "8", "--json")
    status, out, err = call("run", "--limit", "1", *infinite)
    assert (status, err) == (0, "")
    assert json.loads(out)["threshold"] == "Infinity"
    status, out, err = call("generate", "Ava", *infinite)
    assert (status, err) == (0, "")
    assert json.loads(out)["decoding"]["acceptance"]["threshold"] == "Infinity"


@pytest.mark.wide
def test_without_json_a_run_is_a_table(call: Call, toy: str) -> None:
    status, out, err = call("run", "--pair", toy, *SHORT, "--acceptance", "autoregressive")
    assert (status, err) == (0, "")
    assert "Target alone" in out
    assert "0 % [0, " in out
    assert out.splitlines()[-1].startswith("Run ")


@pytest.mark.wide
def test_the_same_seed_writes_the_same_text(call: Call, toy: str) -> None:
    sampled = ("--pair", toy, "--temperature", "1", "--max-new-tokens", "16")
    first, second, other = (call("generate", "Ava has", *sampled, "--seed", seed)[1] for seed in ("1", "1", "2"))
    assert first == second != other


@pytest.mark.wide
def test_generate_tells_what_it_did(call: Call, toy: str) -> None:
    status, out, err = call("generate", "Ava has", "--pair", toy, "--max-new-tokens", "6", "--json")
    assert (status, err) == (0, "")
    told = json.loads(out)
    assert told["tokens"] <= 6
    assert told["stop_reason"] in ("length", "eos")
    assert told["decoding"]["acceptance"]["kind"] == "fsd-reducible"
    plain = call("generate", "Ava has", "--pair", toy, "--max-new-tokens", "6")[1]
    assert plain == told["text"] + "\n"


@pytest.mark.parametrize(("prompt", "sentence"), [("  ", "prompt is empty"), ("long " * 100, "shorten it")])
def test_prompts_that_cannot_be(call: Call, toy: str, prompt: str, sentence: str) -> None:
    status, out, err = call("generate", prompt, "--pair", toy)
    assert (status, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_sweep_is_one_experiment_with_its_baselines(call: Call, home: Path, toy: str) -> None:
    status, out, err = call("sweep", "--pair", toy, *SHORT, "--thresholds", "0.05:0.15:2", "--json")
    assert (status, err) == (0, "")
    swept = json.loads(out.splitlines()[-1])
    assert [(run["acceptance"], run["threshold"]) for run in swept["runs"]] == [
        ("autoregressive", None),
        ("speculative", None),
        ("fsd-reducible", 0.05),
        ("fsd-reducible", 0.15),
    ]
    assert {run["status"] for run in swept["runs"]} == {"finished"}
    assert {run["experiment_id"] for run in swept["runs"]} == {swept["experiment_id"]}
    assert repository(home).experiment(swept["experiment_id"]).name == "FSD reducible · js 0.05 to 0.15 on arithmetic"
    assert repository(home).queue_length() == 0  # nothing is left for a worker to do again


@pytest.mark.wide
def test_what_nothing_scores_is_measured_by_its_fidelity_to_the_target(call: Call, home: Path, toy: str) -> None:
    asked = ("--pair", toy, *SHORT, "--limit", "2", "--task", "everyday")
    status, out, err = call("sweep", *asked, "--thresholds", "0.3", "--json")
    assert (status, err) == (0, "")
    target, exact, loose = json.loads(out.splitlines()[-1])["runs"]
    for run in (target, exact, loose):
        assert (run["n"], run["unscored"], run["accuracy"]) == (2, 2, None)
    assert exact["same_text"] == 1.0
    assert loose["same_text"] is not None
    page = comparison_html(compare(repository(home), [run["run_id"] for run in (target, exact, loose)], None))
    assert ">Same text<" in page
    assert ">Accuracy<" not in page


@pytest.mark.wide
def test_several_drafts_are_compared_with_one_in_an_experiment(call: Call, home: Path, toy: str) -> None:
    status, out, err = call(
        "sweep", "--acceptance", "k-seq", "--acceptance", "fsd", "--thresholds", "0.3", "--drafts", "2",
        "--temperature", "1", "--pair", toy, *SHORT,
    )  # fmt: skip
    assert (status, err) == (0, "")
    assert "K-SEQ · 2 drafts" in out
    found = repository(home).experiment(repository(home).experiments(1)[0].id)
    shapes = [(run.decoding.acceptance.kind, getattr(run.decoding.topology, "kind", None)) for run in found.runs]
    rules = ["autoregressive", "speculative", "k-seq", "fsd"]
    assert shapes == list(zip(rules, [None, "chain", "multi-draft", "chain"], strict=True))
    assert all(run.status == "finished" for run in found.runs)


@pytest.mark.wide
def test_trees_and_chains_are_compared_in_an_experiment_and_bounded(call: Call, home: Path) -> None:
    status, out, err = call(
        "sweep", "--thresholds", "0.3", "--drafter", "draft-model", "--drafter", "eagle", "--topology", "chain",
        "--topology", "dynamic-tree", "--tree-tokens", "6", "--limit", "1", "--max-new-tokens", "6", "--seed", "0",
    )  # fmt: skip
    assert (status, err) == (0, "")
    found = repository(home).experiment(repository(home).experiments(1)[0].id)
    shapes = [
        (run.decoding.acceptance.kind, run.decoding.drafter.kind, run.decoding.topology.kind)
        for run in found.runs
        if run.decoding.drafter is not None and run.decoding.topology is not None
    ]
    forms = [(by, form) for by in ("draft-model", "eagle") for form in ("chain", "dynamic-tree")]
    assert shapes == [(rule, *form) for rule in ("speculative", "fsd-reducible") for form in forms]
    texts = {repository(home).generations(run.id)[0].text for run in found.runs[:5]}
    assert len(texts) == 1  # the target alone, and exact SD in four shapes
    status, out, _ = call("bounds", found.runs[1].id[:8], "--positions", "2", "--json")
    assert status == 0
    told = json.loads(out)["bounds"][found.runs[1].id]
    assert told["positions"] == 2
    assert repository(home).run(found.runs[1].id).metrics["bounds"] == [told]
    status, out, _ = call("bounds", found.runs[1].id[:8], "--positions", "2", "--temperature", "0.5")
    assert "2 positions at temperature 0.5" in out


def test_a_sweep_can_be_left_to_the_worker(call: Call, home: Path, toy: str) -> None:
    arguments = ("--thresholds", "0.1,off", "--no-baselines", "--seed", "0", "--seed", "1", "--enqueue")
    status, out, err = call("sweep", "--pair", toy, *SHORT, *arguments)
    assert status == 0
    assert "is queued" in out
    assert err == "No worker is running: start the application, or `python -m fsd_core worker`.\n"
    experiment = repository(home).experiment(out.split()[1])
    assert [(run.seed, run.decoding.threshold, run.status) for run in experiment.runs] == [
        (0, 0.1, "queued"),
        (0, None, "queued"),
        (1, 0.1, "queued"),
        (1, None, "queued"),
    ]
    assert repository(home).queue_length() == 1


def test_a_sweep_brings_all_that_stands_beside_its_rules(call: Call, home: Path, toy: str) -> None:
    arguments = ("--thresholds", "0.1", "--all-baselines", "--enqueue")
    status, out, _ = call("sweep", "--pair", toy, *SHORT, *arguments)
    assert status == 0
    kinds = [run.decoding.acceptance.kind for run in repository(home).experiment(out.split()[1]).runs]
    assert kinds == ["autoregressive", "speculative", "block", "draft-only", "fsd-reducible"]


@pytest.mark.wide
def test_bench_times_all_contenders(call: Call, toy: str) -> None:
    status, out, err = call("bench", "--pair", toy, "--limit", "2", "--max-new-tokens", "8", "--json")
    assert (status, err) == (0, "")
    assert len(json.loads(out.splitlines()[-1])["contenders"]) == 5


def test_a_pair_that_is_damaged_is_no_run(call: Call, home: Path, toy: str, tmp_path: Path) -> None:
    name, before = f"path:{tmp_path / 'copy'}", repository(home).count_runs()
    shutil.copytree(toy.removeprefix("path:"), tmp_path / "copy")
    (tmp_path / "copy" / "draft" / "model.safetensors").write_bytes(b"not weights")
    for command in (("run", *SHORT), ("sweep", *SHORT, "--thresholds", "0.1"), ("generate", "Ava")):
        status, out, err = call(*command, "--pair", name)
        assert (status, out) == (2, "")
        assert "fetch it again" in err.lower()
        assert err.count("\n") == 1
    assert repository(home).count_runs() == before


def test_a_device_this_machine_lacks_is_a_sentence(call: Call, toy: str) -> None:
    status, out, err = call("run", "--pair", toy, "--device", "cuda:99", *SHORT)
    assert (status, out) == (2, "")
    assert "CUDA" in err


def test_an_outdated_database_is_refused_with_the_command(
    call: Call, tmp_path: Path, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'old.db'}"
    upgrade(url)
    database = open_database(url)
    with database.engine.begin() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = 'old'")
    database.close()
    monkeypatch.setenv("FSD_DATABASE_URL", url)
    status, out, err = call("run", "--pair", toy, *SHORT)
    assert (status, out) == (2, "")
    assert "python -m fsd_core db upgrade" in err
    assert err.count("\n") == 1


@pytest.mark.wide
def test_mlflow_down_is_a_warning_and_the_run_is_kept(
    call: Call, home: Path, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSD_MLFLOW_URI", "http://127.0.0.1:9")
    status, out, err = call("run", "--pair", toy, *SHORT, "--json")
    assert status == 0
    assert err.startswith("warning: MLflow at http://127.0.0.1:9 does not answer, so runs are mirrored later: ")
    assert err.count("\n") == 1
    figures = json.loads(out.splitlines()[-1])
    assert figures["mlflow_run_id"] is None
    assert figures["run_id"] in {run.id for run in repository(home).unsynced_runs()}


@pytest.mark.wide
@pytest.mark.parametrize(("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_an_interrupted_run_can_be_resumed(tmp_path: Path, toy: str, number: int, status: int) -> None:
    command = ("run", "--pair", toy, "--task", "arithmetic", "--limit", "4", "--max-new-tokens", "8")
    turnstile = Turnstile(tmp_path / "turnstile", 1)
    environment = {**os.environ, "FSD_HOME": str(tmp_path)}
    process = ForkedCommand(command, environment, tmp_path / "printed", tmp_path / "turnstile")
    try:
        turnstile.until_held()
        process.send_signal(number)
        printed, _ = process.communicate(timeout=PATIENCE)
    finally:
        process.kill()
    assert process.returncode == status
    run = repository(tmp_path).runs()[0]
    assert run.status == "stopped"
    assert printed == f"Interrupted. Finished prompts are kept: continue with `python -m fsd_core resume {run.id}`.\n"
    assert run.prompts_done == 1


def test_db_upgrade_can_be_called_again(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_DATABASE_URL", f"sqlite:///{tmp_path / 'deep' / 'new.db'}")
    for _ in range(2):
        assert call("db", "upgrade") == (0, "The database is up to date.\n", "")
    assert open_database(f"sqlite:///{tmp_path / 'deep' / 'new.db'}")


@pytest.mark.wide
def test_rescore_judges_again(call: Call, toy: str) -> None:
    _, out, _ = call("run", "--pair", toy, *SHORT, "--json")
    run_id = json.loads(out)["run_id"]
    status, out, err = call("rescore", run_id[:8])
    assert (status, out, err) == (0, f"Run {run_id}: 0 verdicts changed\n", "")
    assert json.loads(call("rescore", run_id, "--json")[1]) == {"changed": {run_id: 0}}
    status, _, err = call("rescore", run_id, "--answer-pattern", "(5)")
    assert (status, "are read as its authors read them" in err) == (2, True)
    status, _, err = call("rescore", "no-such-run")
    assert status == 2
    assert "no run and no experiment" in err
