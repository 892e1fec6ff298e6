"""A database whose tables are an older MLflow's: a sentence says which command upgrades it, at every door."""

from __future__ import annotations

import logging
import os
import shlex
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from alembic import command
from mlflow.store.db.utils import _get_alembic_config
from mlflow.store.tracking.dbmodels.initial_models import Base
from mlflow.version import VERSION
from sqlalchemy import create_engine

from fsd_core.errors import TrackingUnavailable
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from fsd_core.tracking import check_schema, prepare_store
from fsd_core.worker.supervisor import mlflow_problem, mlflow_service, mlflow_socket
from fsd_core.worker.worker import Mirroring
from tests.tools.raw_http import send_request
from tests.tools.served import served
from tests.tools.sizes import PATIENCE
from tests.tools.tracking_examples import generation, run_config
from tests.tools.worker_process import until

pytestmark = pytest.mark.processes

OLD = "867495a8f9d4"
"""the revision of MLflow 2.14"""


@pytest.fixture(scope="module")
def old_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store as MLflow 2.14 left it, made by MLflow's own migrations, with an experiment and no run."""
    file = tmp_path_factory.mktemp("old") / "mlflow.db"
    engine = create_engine(url := sqlite_url(file))
    Base.metadata.create_all(engine)
    config = _get_alembic_config(url)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, OLD)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "INSERT INTO experiments (experiment_id, name, artifact_location, lifecycle_stage) "
            "VALUES (0, 'Default', '', 'active')"
        )
    engine.dispose()
    return file


@pytest.fixture
def settings(old_store: Path, home: Path) -> Settings:
    """A home whose name needs quotes in an address, with such a store and a run that MLflow lacks."""
    settings = Settings(home=home / "a b")
    settings.make_folders()
    shutil.copy(old_store, settings.mlflow_folder / "mlflow.db")
    upgrade(settings.resolved_database_url)
    repository = repository_of(settings)
    run_id = repository.create_run(run_config())
    repository.record_generation(run_id, generation(0))
    repository.finish_run(run_id, {"accuracy": 1.0})
    return settings


def repository_of(settings: Settings) -> Repository:
    return Repository(open_database(settings.resolved_database_url))


def sentence_of(settings: Settings) -> str:
    return (
        f"The MLflow database {settings.resolved_mlflow_uri} has the schema of an older MLflow (revision {OLD}), which "
        f"MLflow {VERSION} cannot use: back it up, then run `mlflow db upgrade {settings.resolved_mlflow_uri}`."
    )


def upgraded_as_told(sentence: str) -> None:
    """Runs the command that the sentence names."""
    program, *arguments = shlex.split(sentence.split("`")[1])
    subprocess.run([Path(sys.executable).with_name(program), *arguments], check=True, capture_output=True)


@pytest.mark.wide
def test_the_worker_says_once_what_to_run_and_goes_on_afterwards(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    store = settings.mlflow_folder / "mlflow.db"
    before = store.read_bytes()
    repository = repository_of(settings)
    mirroring = Mirroring(settings.resolved_mlflow_uri, repository, lambda: False)
    with caplog.at_level(logging.WARNING, "fsd_core"):
        for _ in range(2):
            mirroring._sync()
    assert [record.getMessage() for record in caplog.records] == [sentence_of(settings)]
    assert store.read_bytes() == before  # neither upgraded behind the back of its owner nor moved aside
    assert [file.name for file in settings.mlflow_folder.iterdir() if file.is_file()] == ["mlflow.db"]
    upgraded_as_told(sentence_of(settings))
    mirroring._sync()
    assert repository.unsynced_runs() == []


@pytest.mark.wide
def test_a_command_measures_and_says_what_to_run(
    call: Callable[..., tuple[int, str, str]], settings: Settings, toy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSD_HOME", str(settings.home))
    status, out, err = call("run", "--pair", toy, "--limit", "1", "--max-new-tokens", "4")
    assert status == 0
    assert "Run " in out
    assert f"warning: {sentence_of(settings)}\n" in err
    assert "Traceback" not in err


@pytest.mark.wide
def test_the_pages_say_what_to_run_and_come_up_afterwards(settings: Settings) -> None:
    service = mlflow_service(settings, {**os.environ, "FSD_HOME": str(settings.home)})
    service.keep_alive()
    try:
        with served(settings.home, FSD_MLFLOW_UI="true") as (url, _):
            assert until(lambda: mlflow_problem(settings.home), "the sentence") == sentence_of(settings)
            status, _, page = send_request(f"{url}/mlflow", "GET", "/", Accept="text/html")
            assert (status, b"mlflow db upgrade" in page) == (503, True)
            assert send_request(f"{url}/mlflow", "GET", "/")[2].decode() == sentence_of(settings)
            pid = service.pid
            upgraded_as_told(sentence_of(settings))
            until(lambda: mlflow_socket(settings.home), "MLflow's pages")
            assert service.pid == pid
            assert send_request(f"{url}/mlflow", "GET", "/health")[0] == 200
        assert "Traceback" not in service.log.read_text()
    finally:
        service.ask_to_stop()
        assert service.wait(time.monotonic() + PATIENCE)


@pytest.mark.parametrize("revision", ["ffffffffffff", "0123456789ab"])
def test_a_newer_schema_is_told_apart(settings: Settings, revision: str) -> None:
    with closing(sqlite3.connect(settings.mlflow_folder / "mlflow.db", isolation_level=None)) as store:
        store.execute("UPDATE alembic_version SET version_num = ?", (revision,))
    with pytest.raises(TrackingUnavailable) as caught:
        prepare_store(settings)
    assert f"has the revision {revision}, which MLflow {VERSION} does not know" in str(caught.value)
    assert "upgrade the package mlflow" in str(caught.value)


def test_a_server_s_database_is_upgraded_by_the_address_that_is_set(settings: Settings) -> None:
    engine = create_engine(sqlite_url(settings.mlflow_folder / "mlflow.db"))
    with engine.connect() as connection, pytest.raises(TrackingUnavailable) as caught:
        check_schema(connection, "postgresql://db/mlflow?sslmode=require")
    engine.dispose()
    assert str(caught.value).endswith('run `mlflow db upgrade "$FSD_MLFLOW_URI"`.')
