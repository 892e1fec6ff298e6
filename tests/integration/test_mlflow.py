"""Runs arrive in a real MLflow store, once each, also after it was down."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from mlflow.exceptions import MlflowException
from sqlalchemy import make_url, update

from fsd_core import tracking
from fsd_core.errors import TrackingUnavailable
from fsd_core.provenance import run_url
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import Edit, RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.storage.tables import RunRow, SettingRow
from fsd_core.tracking import NOTHING_DRAFTED, MlflowMirror, create_store, prepare_store, write_figures
from fsd_core.worker.worker import Mirroring
from fsd_plugins.reports.frozen import changed_runs, frozen_runs
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools import plausible
from tests.tools.mirrored import sync_pending
from tests.tools.tracking_examples import generation, run_config, sweep

METRICS = {
    "accuracy": 0.5, "acceptance_rate": float("inf"), "acceptance_at_position": [0.75, 0.25],
    "divergence_histogram": {"edges": [0, 0.1, 0.2], "counts": [3, 1]}, "tokens_per_second": 4.0,
}  # fmt: skip


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A store that is ready, for making one takes seconds."""
    settings = Settings(home=tmp_path_factory.mktemp("home"))
    prepare_store(settings)
    file = settings.mlflow_folder / "mlflow.db"
    shutil.copy(file, f"{file}.new-one")
    return settings.resolved_mlflow_uri


@pytest.fixture
def copied(store: str, tmp_path: Path) -> Settings:
    """A home with a copy of the store while it was new."""
    settings = Settings(home=tmp_path / "home")
    settings.make_folders()
    shutil.copy(f"{make_url(store).database}.new-one", file := settings.mlflow_folder / "mlflow.db")
    with closing(sqlite3.connect(file, isolation_level=None)) as ours:
        artifacts = (settings.mlflow_folder / "artifacts").as_uri()
        ours.execute("UPDATE experiments SET artifact_location = ?", (artifacts,))
    return settings


def finished(repository: Repository, run_id: str) -> None:
    repository.start_run(run_id, {"device": "cpu", "versions": {"torch": "2"}})
    for position in range(2):
        repository.record_generation(run_id, generation(position, text="<b>x</b>"))
    repository.finish_run(run_id, METRICS)


ROOT = Path(__file__).parents[2]


def client_of(uri: str):
    from mlflow import MlflowClient

    return MlflowClient(tracking_uri=uri)


def artifact_folder(client, run_id: str) -> Path:
    return Path(client.get_run(run_id).info.artifact_uri.removeprefix("file://"))


@pytest.mark.wide
def test_a_run_says_which_version_of_a_task_it_was_asked(repository: Repository, store: str) -> None:
    task = repository.add_task("mine", "{}", title="", scorer="none", prompts=2, who="Ann")
    run_id = repository.create_run(run_config(0.1).model_copy(update={"task": task.full_name}))
    finished(repository, run_id)
    data = client_of(store).get_run(MlflowMirror(store).sync(repository, run_id)).data
    assert (data.tags["fsd.task"], data.tags["fsd.task_version"]) == ("mine", task.version)
    assert data.params["task"] == task.full_name


def test_a_run_says_what_its_pair_is_called(repository: Repository, store: str) -> None:
    models = "models:target=/m/target;draft=/m/draft"
    setting = run_config().setting.model_copy(update={"pair": models})
    run_id = repository.create_run(run_config().model_copy(update={"setting": setting}))
    for name in ("support-7b", "renamed"):
        repository.add_pair(name, models, "Ann")
        copy = MlflowMirror(store).sync(repository, run_id)
        tags = tracking.connect(store)[0].get_run(copy).data.tags
        assert (tags["fsd.pair"], tags["fsd.pair_name"]) == (models, name)
        repository.remove_pair(name)


def test_a_copy_follows_its_models_to_another_folder(repository: Repository, store: str) -> None:
    """MLflow refuses another value of a parameter."""
    setting = run_config().setting.model_copy(update={"pair": "path:/first", "identity": "2;target=a"})
    run_id = repository.create_run(run_config().model_copy(update={"setting": setting}))
    finished(repository, run_id)
    report = frozen_runs(repository.runs(), {run_id: "Mine"})
    for place in ("path:/first", "path:/second"):
        repository.place_models(setting.identity, place)
        data = tracking.connect(store)[0].get_run(MlflowMirror(store).sync(repository, run_id)).data
        assert data.tags["fsd.pair"] == place
    assert changed_runs(repository, report) == ([], [])  # and no report says that its runs have changed


def test_a_run_arrives_whole(repository: Repository, store: str) -> None:
    run_id = repository.create_run(run_config(0.1))
    finished(repository, run_id)
    copy = MlflowMirror(store).sync(repository, run_id)
    client = client_of(store)
    found = client.get_run(copy)
    assert found.info.status == "FINISHED"
    assert client.get_experiment(found.info.experiment_id).name == "FSD Lab"
    assert found.data.params["setting.decoding.acceptance.kind"] == "fsd-reducible"
    assert found.data.params["setting.decoding.acceptance.threshold"] == "0.1"
    assert found.data.metrics["accuracy"] == 0.5
    assert "acceptance_rate" not in found.data.metrics  # it was not finite
    speeds = client.get_metric_history(copy, "prompt/tokens_per_second")
    assert [(metric.step, metric.value) for metric in speeds] == [(0, 4.0), (1, 4.0)]
    assert [m.value for m in client.get_metric_history(copy, "acceptance_at_position")] == [0.75, 0.25]
    assert found.data.tags["fsd.provenance.versions.torch"] == "2"
    assert (found.data.tags["fsd.task"], "fsd.task_version" in found.data.tags) == ("arithmetic", False)
    assert found.data.tags["fsd.pair"] == found.data.params["setting.pair"] == "bundled"
    note, _, link = found.data.tags["mlflow.note.content"].partition("\n\n")
    assert note == "2 of 2 prompts: 0.5 accuracy, 4 tokens per second."
    assert link == f"[Open in FSD Lab](../runs?run={run_id})"
    folder = artifact_folder(client, copy)
    table = json.loads((folder / "generations.json").read_text())
    assert [dict(zip(table["columns"], row, strict=True))["text"] for row in table["data"]] == ["<b>x</b>"] * 2
    with gzip.open(folder / "traces.jsonl.gz", "rt") as file:
        traces = [json.loads(line) for line in file]
    assert [trace["position"] for trace in traces] == [0, 1]
    assert traces[0]["records"][0]["emitted"] == [5, 7]
    assert json.loads((folder / "metrics.json").read_text())["acceptance_rate"] is None
    assert json.loads((folder / "config.json").read_text())["task"] == "arithmetic"
    page = (folder / "figures.html").read_text()
    words = ("Acceptance by position", "Share of rounds that accept it", "Divergence js, nats", "Judged draft tokens")
    assert [word for word in words if word not in page] == []
    assert not re.search(r'<script|src=|href="http|url\(http', page)  # shown without a network
    assert len(page) < 50_000
    assert repository.run(run_id).mlflow_run_id == copy
    assert run_url("http://127.0.0.1:5000/", None, copy) == f"http://127.0.0.1:5000/#/runs/{copy}"
    assert run_url("http://h", "7", copy) == f"http://h/#/experiments/7/runs/{copy}"


def test_no_text_of_an_imported_run_becomes_markdown(repository: Repository, store: str, tmp_path: Path) -> None:
    planted = (
        "[x](http://evil) ![y](http://evil/y.png) <img src=x onerror=alert(1)><script>alert(2)</script> http://evil"
    )
    config = run_config(0.15).model_copy(update={"task": planted})
    run_id = repository.create_run(config)
    finished(repository, run_id)
    with repository._database.session() as session:
        session.execute(update(SettingRow).values(label=planted))
    file = tmp_path / "workspace.zip"
    export(str(repository._database.engine.url), file, tmp_path)
    upgrade(url := sqlite_url(tmp_path / "other.db"))
    other = Repository(open_database(url))
    import_file(other._database, file, tmp_path)
    run = other.run(run_id)
    assert (run.task, run.label) == (planted, planted)  # the import keeps what others called it
    found = client_of(store).get_run(MlflowMirror(store).sync(other, run_id))
    note = found.data.tags["mlflow.note.content"]
    assert note == f"2 of 2 prompts: 0.5 accuracy, 4 tokens per second.\n\n[Open in FSD Lab](../runs?run={run_id})"
    assert (found.info.run_name, found.data.tags["fsd.task"]) == (f"{planted} · seed 0", planted)  # shown as text
    other._database.close()


def test_a_run_that_drafted_nothing_says_so(tmp_path: Path) -> None:
    write_figures(tmp_path / "figures.html", {"accuracy": 0.5, "acceptance_at_position": []}, "js")
    assert NOTHING_DRAFTED in (tmp_path / "figures.html").read_text()


@pytest.mark.wide
def test_a_second_copy_changes_the_first(repository: Repository, store: str) -> None:
    run_id = repository.create_run(run_config(0.2))
    finished(repository, run_id)
    mirror = MlflowMirror(store)
    copy = mirror.sync(repository, run_id)
    assert MlflowMirror(store).sync(repository, run_id) == copy
    client = client_of(store)
    assert len(client.get_metric_history(copy, "prompt/tokens_per_second")) == 2
    folder = artifact_folder(client, copy)
    assert len(json.loads((folder / "generations.json").read_text())["data"]) == 2
    (folder / "figures.html").write_text("as an earlier version drew them" * 100_000)
    mirror.sync(repository, run_id)
    assert (folder / "figures.html").stat().st_size < 50_000
    client.delete_run(copy)  # a user tidied up in MLflow
    assert mirror.sync(repository, run_id) != copy


def test_the_parent_ends_with_its_last_child(repository: Repository, store: str) -> None:
    experiment_id = repository.create_experiment(sweep("<i>ours</i>"))
    first, second, third = (run.id for run in repository.experiment(experiment_id).runs)
    finished(repository, first)
    repository.fail_run(second, "The weights are missing.")
    mirror, client = MlflowMirror(store), client_of(store)
    assert sync_pending(mirror, repository) == 2
    parent = client.get_run(repository.experiment(experiment_id).mlflow_run_id)
    assert (parent.info.run_name, parent.info.status) == ("<i>ours</i>", "SCHEDULED")
    repository.cancel_run(third)
    assert sync_pending(mirror, repository) == 1
    assert client.get_run(parent.info.run_id).info.status == "FAILED"
    copies = [client.get_run(repository.run(id).mlflow_run_id) for id in (first, second, third)]
    assert [copy.info.status for copy in copies] == ["FINISHED", "FAILED", "KILLED"]
    assert {copy.data.tags["mlflow.parentRunId"] for copy in copies} == {parent.info.run_id}
    assert copies[1].data.tags["fsd.error"] == "The weights are missing."
    assert sync_pending(mirror, repository) == 0


@pytest.mark.wide
def test_an_experiment_that_is_renamed_is_renamed_there(repository: Repository, store: str) -> None:
    experiment_id, ann = repository.create_experiment(sweep("before"), enqueue=False), Person("Ann", "author")
    runs = [run.id for run in repository.experiment(experiment_id).runs]
    for run in runs:
        finished(repository, run)
    mirror, client = MlflowMirror(store), client_of(store)
    sync_pending(mirror, repository)
    parent = str(repository.experiment(experiment_id).mlflow_run_id)
    ended = client.get_run(parent).info.end_time

    repository.annotate("experiment", experiment_id, Edit(note="nothing of it is in MLflow"), ann)
    assert repository.unsynced_runs() == []
    repository.annotate("experiment", experiment_id, Edit(name="after"), ann)
    with pytest.raises(TrackingUnavailable):  # MLflow is away, and hears of it later
        sync_pending(MlflowMirror("http://127.0.0.1:9"), repository)
    Mirroring(store, repository, lambda: False).after_runs()
    found = client.get_run(parent).info
    assert (found.run_name, found.status, found.end_time) == ("after", "FINISHED", ended)
    copies = [client.get_run(str(repository.run(run).mlflow_run_id)) for run in runs]
    assert {copy.data.tags["fsd.experiment"] for copy in copies} == {"after"}
    assert repository.unsynced_runs() == []


@pytest.mark.parametrize("meanwhile", ["renamed", "reopened"])
def test_a_copy_of_what_changes_meanwhile_is_made_again(repository: Repository, meanwhile: str) -> None:
    experiment_id = repository.create_experiment(sweep(), enqueue=False)
    first = repository.experiment(experiment_id).runs[0].id
    repository.cancel_run(first)
    copied = repository.run(first)
    if meanwhile == "renamed":
        repository.annotate("experiment", experiment_id, Edit(name="after"), Person("Ann", "author"))
    else:
        repository.reopen_runs([first], enqueue=False)
        finished(repository, first)
    repository.mark_synced(copied, "copy")
    assert [run.id for run in repository.unsynced_runs()] == [first]
    repository.mark_synced(repository.run(first), "copy")
    assert repository.unsynced_runs() == []


def test_a_run_that_failed_and_was_gone_on_with_has_no_error_left(repository: Repository, store: str) -> None:
    run_id = repository.create_run(run_config(0.6))
    repository.record_generation(run_id, generation(0, "", outcome="failed"))
    repository.fail_run(run_id, "Every prompt of the run failed.")
    copy, client = MlflowMirror(store).sync(repository, run_id), client_of(store)
    assert client.get_run(copy).data.tags["fsd.error"] == "Every prompt of the run failed."
    repository.reopen_runs([run_id])
    finished(repository, run_id)
    assert MlflowMirror(store).sync(repository, run_id) == copy
    assert client.get_run(copy).info.status == "FINISHED"
    assert "fsd.error" not in client.get_run(copy).data.tags


@pytest.mark.wide
def test_a_speed_that_is_not_one_figure_is_tagged(repository: Repository, store: str) -> None:
    run_id = repository.create_run(run_config(0.65))
    for threads in (1, 2):
        outcome = "failed" if threads == 2 else "correct"
        repository.record_generation(run_id, generation(threads - 1, outcome=outcome), {"threads": threads})
    repository.finish_run(run_id, METRICS | {"failed": 1})
    copy, client = MlflowMirror(store).sync(repository, run_id), client_of(store)
    tags = client.get_run(copy).data.tags
    assert tags["fsd.speed_mixed"] == "number of threads"
    assert "0.5 accuracy, 4† tokens per second.\n" in tags["mlflow.note.content"]
    repository.reopen_runs([run_id])
    repository.record_generation(run_id, generation(1), {"threads": 1})
    repository.finish_run(run_id, METRICS)
    assert MlflowMirror(store).sync(repository, run_id) == copy
    assert "fsd.speed_mixed" not in client.get_run(copy).data.tags


@pytest.mark.wide
def test_what_is_deleted_here_goes_there_with_its_files(repository: Repository, store: str, tmp_path: Path) -> None:
    experiment_id = repository.create_experiment(sweep("unwanted"), enqueue=False)
    runs = [run.id for run in repository.experiment(experiment_id).runs]
    for run in runs:
        finished(repository, run)
    mirror, client = MlflowMirror(store), client_of(store)
    sync_pending(mirror, repository)
    copies = [str(repository.run(run).mlflow_run_id) for run in runs]
    parent = str(repository.experiment(experiment_id).mlflow_run_id)
    folders = [artifact_folder(client, copy) for copy in (*copies, parent)]
    client.delete_run(copies[1])  # a user put it into the trash before

    repository.delete_run(runs[0])
    assert mirror.delete_pending(repository) == 1
    assert not folders[0].exists()
    with pytest.raises(MlflowException, match="not found"):
        client.get_run(copies[0])
    assert client.get_run(copies[2]).info.lifecycle_stage == "active"

    repository.delete_experiment(experiment_id)
    with pytest.raises(TrackingUnavailable):  # MLflow is away, and hears of it later
        MlflowMirror("http://127.0.0.1:9").delete_pending(repository)
    assert mirror.delete_pending(repository) == 3
    assert not any(folder.parent.exists() for folder in folders)
    for copy in (*copies, parent):
        with pytest.raises(MlflowException, match="not found"):
            client.get_run(copy)
    assert mirror.delete_pending(repository) == 0


def test_files_outside_the_store_are_not_deleted_with_a_run(repository: Repository, store: str, tmp_path: Path) -> None:
    run_id, client = repository.create_run(run_config(0.51)), client_of(store)
    finished(repository, run_id)
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "kept").touch()
    elsewhere = client.create_experiment("elsewhere", artifact_location=(tmp_path).as_uri())
    stranger = client.create_run(elsewhere, tags={"fsd.run_id": run_id})
    MlflowMirror(store).sync(repository, run_id)
    # Moved among ours, with files that are not.
    with sqlite3.connect(str(make_url(store).database)) as connection:
        ours = client.get_experiment_by_name("FSD Lab").experiment_id
        values = (ours, (tmp_path / "artifacts").as_uri(), stranger.info.run_id)
        connection.execute("UPDATE runs SET experiment_id = ?, artifact_uri = ? WHERE run_uuid = ?", values)
    connection.close()
    repository.delete_run(run_id)
    MlflowMirror(store).delete_pending(repository)
    assert (tmp_path / "artifacts" / "kept").exists()


def test_no_room_for_the_files_of_a_copy_is_one_sentence(
    repository: Repository, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = repository.create_run(run_config(0.52))
    finished(repository, run_id)
    monkeypatch.setattr("tempfile.tempdir", "/proc")  # where nothing can be made
    assert refused(store, repository, run_id).startswith("The temporary folder cannot be written to (")


@pytest.mark.wide
def test_a_home_may_have_any_name(tmp_path: Path) -> None:
    name = "50% über?# a%20b"
    settings = Settings(home=tmp_path / name)
    settings.make_folders()
    prepare_store(settings)
    assert [folder.name for folder in tmp_path.iterdir()] == [name]
    assert (settings.mlflow_folder / "mlflow.db").exists()
    client = client_of(settings.resolved_mlflow_uri)
    run = client.create_run(client.get_experiment_by_name("FSD Lab").experiment_id)
    client.log_dict(run.info.run_id, {}, "empty.json")
    assert list(settings.mlflow_folder.glob("artifacts/*/artifacts/empty.json"))
    assert [folder.name for folder in tmp_path.iterdir()] == [name]


CREATING = """
import signal, sys
from pathlib import Path
from sqlalchemy import event
from sqlalchemy.engine import Engine
from fsd_core.settings import Settings
from fsd_core.tracking import prepare_store

tables = 0

@event.listens_for(Engine, "before_cursor_execute")
def hold(connection, cursor, statement, *rest):
    global tables
    tables += statement.lstrip().upper().startswith("CREATE TABLE")
    if tables == 20:
        print("held", flush=True)
        signal.pause()

prepare_store(Settings(home=Path(sys.argv[1])))
"""


@pytest.mark.wide
def test_a_kill_while_the_store_is_created_leaves_none(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    settings.make_folders()
    new, store = settings.mlflow_folder / "mlflow.db.new", settings.mlflow_folder / "mlflow.db"
    command = [sys.executable, "-c", CREATING, str(tmp_path)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        process.kill()
    with closing(sqlite3.connect(new)) as half:
        assert len(half.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()) > 3
    assert not store.exists()
    prepare_store(settings)
    assert client_of(settings.resolved_mlflow_uri).get_experiment_by_name("FSD Lab")
    assert [file.name for file in settings.mlflow_folder.iterdir() if file.is_file()] == ["mlflow.db"]


@pytest.mark.wide
def test_a_store_that_was_never_completed_gives_way(copied: Settings) -> None:
    with closing(sqlite3.connect(copied.mlflow_folder / "mlflow.db", isolation_level=None)) as half:
        half.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        half.execute("CREATE TABLE _alembic_tmp_trace_tags (key TEXT)")
        half.execute("DELETE FROM experiments")
    prepare_store(copied)
    assert client_of(copied.resolved_mlflow_uri).get_experiment_by_name("FSD Lab")
    assert (copied.mlflow_folder / "mlflow.db.unfinished").exists()


@pytest.mark.parametrize(
    ("statement", "has_experiments"),
    [("CREATE TABLE mine (key TEXT)", False), ("INSERT INTO runs (run_uuid) VALUES ('kept')", False), ("", True)],
)
def test_what_is_of_somebody_is_never_moved_aside(statement: str, has_experiments: bool, copied: Settings) -> None:
    with closing(sqlite3.connect(copied.mlflow_folder / "mlflow.db", isolation_level=None)) as theirs:
        theirs.execute("UPDATE alembic_version SET version_num = '451aebb31d03'")
        if not has_experiments:
            theirs.execute("DELETE FROM experiments")
        theirs.execute(statement)
    file = copied.mlflow_folder / "mlflow.db"
    before, content = file.stat(), file.read_bytes()
    create_store(copied.resolved_mlflow_uri, copied.mlflow_folder / "artifacts")
    after = file.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)  # it may be read
    assert file.read_bytes() == content


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives a store up sooner than in life, where MLflow's own limits are minutes and many tries."""
    for name, tries in (("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "1"), ("MLFLOW_HTTP_REQUEST_TIMEOUT", "3")):
        assert tracking.LIMITS[name] == tries
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_TIMEOUT", "1")
    monkeypatch.setattr(tracking, "STORE_PATIENCE", 0.2)
    monkeypatch.setattr(tracking, "CREATION_PATIENCE", 0.2)


def refused(uri: str, repository: Repository, run_id: str) -> str:
    with pytest.raises(TrackingUnavailable) as caught:
        MlflowMirror(uri).sync(repository, run_id)
    assert repository.run(run_id).mlflow_run_id is None
    return str(caught.value)


@pytest.mark.wide
@pytest.mark.usefixtures("impatient")
def test_what_is_missed_while_mlflow_is_down_comes_later(repository: Repository, store: str, tmp_path: Path) -> None:
    run_id = repository.create_run(run_config(0.3))
    finished(repository, run_id)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        port = silent.getsockname()[1]
        uri = f"http://127.0.0.1:{port}"
        told = f"MLflow at {uri} does not answer, so runs are mirrored later: check that it runs and that "
        assert refused(uri, repository, run_id) == told + "FSD_MLFLOW_URI is right."  # nobody listens
        silent.listen()
        assert refused(uri, repository, run_id).startswith(told)  # somebody listens and never answers
        away = refused("postgresql://me:secret@127.0.0.1:9/mlflow", repository, run_id)
        assert away.startswith("MLflow at postgresql://127.0.0.1:9/mlflow does not answer")
    broken = tmp_path / "broken.db"
    broken.write_bytes(b"this is no database" * 100)
    assert "not a database" in refused(f"sqlite:///{broken}", repository, run_id)
    (tmp_path / "file").touch()
    assert "(File exists)" in refused(f"sqlite:///{tmp_path / 'file' / 'mlflow.db'}", repository, run_id)
    holder = sqlite3.connect(str(make_url(store).database), isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    assert "locked" in refused(store, repository, run_id)
    holder.close()
    assert sync_pending(MlflowMirror(store), repository) == 1


@pytest.mark.parametrize(
    ("status", "body", "told"),
    [
        (404, b"<html>another program</html>", "cannot be used (endpoint not found)"),
        (403, b'{"error_code": "PERMISSION_DENIED", "message": "<secret>"}', "cannot be used (permission denied)"),
    ],
)
def test_a_server_that_refuses_is_told_without_its_page(
    repository: Repository, status: int, body: bytes, told: str
) -> None:
    class Refuses(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    run_id = repository.create_run(run_config())
    with ThreadingHTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        sentence = refused(f"http://me:password@127.0.0.1:{server.server_port}", repository, run_id)
        server.shutdown()
    assert told in sentence
    assert not {"password", "html", "secret"} & set(re.findall(r"\w+", sentence))


@pytest.mark.wide
def test_the_repository_needs_neither_mlflow_nor_torch() -> None:
    code = (
        "import sys, fsd_core.storage.repository, fsd_core.provenance, "
        "fsd_core.provenance, fsd_core.tracking; "
        "assert not {'mlflow', 'torch', 'transformers', 'matplotlib'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.wide
def test_copies_say_what_their_setting_is_approved_for(repository: Repository, store: str) -> None:
    ann, bob = Person("Ann", "author"), Person("Bob", "admin")
    whole = plausible.sweep("Find the knee", limit=4)
    few = whole.model_copy(update={"decodings": (whole.decodings[0], *whole.decodings[-2:])})
    begun = repository.experiment(repository.create_experiment(few, enqueue=False)).runs
    for run in begun:
        plausible.finish(repository, run)
    target, first, second = (repository.run(run.id) for run in begun)
    mirror, service, client = MlflowMirror(store), ReviewService(repository), client_of(store)
    mirroring = Mirroring(store, repository, lambda: False)
    mirroring.after_runs()
    use = service.describe(ann, "Support chat", requirements=Requirements(margin=None)).id

    def proposed(run: RunView) -> str:
        return service.propose(ann, use, [run.id], [target.id])

    def approve(proposal: str) -> None:
        review = service.review(proposal)
        service.submit_review(bob, review, "approve", "", review.use.sequence)

    def said(run: RunView) -> dict[str, str]:
        tags = client.get_run(str(repository.run(run.id).mlflow_run_id)).data.tags
        return {key: value for key, value in tags.items() if key in ("fsd.approved_for", "fsd.candidate_for")}

    proposal = proposed(first)
    assert [run.id for run in repository.unsynced_runs()] == [first.id]
    assert said(first) == {}
    with pytest.raises(TrackingUnavailable):  # MLflow is away, and hears of it later
        sync_pending(MlflowMirror("http://127.0.0.1:9"), repository)
    mirroring.after_runs()
    assert (said(first), said(second), said(target)) == ({"fsd.candidate_for": "support-chat"}, {}, {})

    approve(proposal)
    before = repository.named(first.setting_id, first.weights)
    rival = proposed(second)  # while the copy is made
    copy = str(repository.run(first.id).mlflow_run_id)
    repository.mark_synced(first, copy, before.moves)
    assert {run.id for run in repository.unsynced_runs()} == {first.id, second.id}
    mirroring.after_runs()
    assert (said(first), said(second)) == (
        {"fsd.approved_for": "support-chat"},
        {"fsd.candidate_for": "support-chat"},
    )
    found = client.search_runs(
        [client.get_run(copy).info.experiment_id], "tags.`fsd.approved_for` LIKE '%support-chat%'"
    )
    assert [run.info.run_id for run in found] == [copy]

    approve(rival)
    mirroring.after_runs()
    assert said(first) == {}
    assert said(second) == {"fsd.approved_for": "support-chat"}
    with repository._database.session() as session:  # what ran with other weights was not approved
        row = session.get_one(RunRow, second.id)
        was, row.provenance, row.mlflow_synced_at = row.provenance, {"weights": {"target": "f" * 16}}, None
    mirroring.after_runs()
    assert said(second) == {}
    with repository._database.session() as session:
        session.get_one(RunRow, second.id).provenance = was
    service.roll_back(bob, use, "Answers became worse.", service.use(use).sequence)
    assert sync_pending(mirror, repository) == 2
    assert (said(first), said(second)) == ({"fsd.approved_for": "support-chat"}, {})
    assert repository.unsynced_runs() == []
