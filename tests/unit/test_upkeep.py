"""The database is copied while it is used, put back, compacted; what is no longer kept goes."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from fsd_core import system
from fsd_core.errors import (
    DatabaseOutdated,
    DatabaseUnavailable,
    InvalidSetting,
    NotApplicable,
    Stale,
    UnknownName,
    Unwritable,
)
from fsd_core.evaluation import bounds
from fsd_core.storage.opening import open_database
from fsd_core.storage.repository import Repository
from fsd_core.storage.upkeep import backup, restore, vacuum
from tests.tools.sizes import PATIENCE
from tests.tools.tracking_examples import generation, run_config, sweep

Call = Callable[..., tuple[int, str, str]]
FIRST_REVISION = Path(__file__).parents[1] / "data" / "database_0001.sql"


def contents(url: str) -> tuple[list, list]:
    database = open_database(url)
    repository = Repository(database)
    runs = repository.runs(limit=None)
    found = runs, [(g, repository.trace(g.id)) for run in runs for g in repository.generations(run.id)]
    database.close()
    return found


def test_a_backup_is_what_was_there_and_comes_back(repository: Repository, database_url: str, tmp_path: Path) -> None:
    id = repository.create_experiment(sweep())
    for run in repository.experiment(id).runs:
        repository.record_generation(run.id, generation())
    before = contents(database_url)
    assert backup(database_url, tmp_path / "new" / "copy.db") > 10_000
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["copy.db"]
    repository.create_run(run_config())
    assert contents(database_url) != before
    repository._database.close()
    former = restore(database_url, tmp_path / "new" / "copy.db")
    assert contents(database_url) == before
    assert former is not None
    assert len(contents(f"sqlite:///{former}")[0]) == 4  # nothing is lost by it


def test_a_backup_is_of_one_moment_while_others_write(
    repository: Repository, database_url: str, tmp_path: Path
) -> None:
    stop, wrote, failures = threading.Event(), threading.Event(), []

    def write() -> None:
        """An experiment and its job belong together in every moment."""
        try:
            while not stop.is_set():
                repository.create_experiment(sweep())
                wrote.set()
        except Exception as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for number in range(5):
            backup(database_url, tmp_path / f"{number}.db")
            wrote.clear()
            assert wrote.wait(PATIENCE), failures
    finally:
        stop.set()
        writer.join()
    assert not failures
    sizes = []
    for number in range(5):
        with sqlite3.connect(tmp_path / f"{number}.db") as copy:
            counts = [copy.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0] for table in ("experiments", "jobs")]
            assert copy.execute("SELECT COUNT(*) FROM runs").fetchone()[0] == 3 * counts[0]
        copy.close()
        assert counts[0] == counts[1]
        sizes.append(counts[0])
    assert sizes == sorted(sizes)
    assert sizes[0] < sizes[-1]


def test_what_is_no_backup_is_refused_and_nothing_changes(
    repository: Repository, database_url: str, tmp_path: Path
) -> None:
    repository.create_run(run_config())
    whole = tmp_path / "whole.db"
    backup(database_url, whole)
    with pytest.raises(Unwritable):
        backup(database_url, whole)
    before = contents(database_url)
    data = bytearray(whole.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 3000] = os.urandom(3000)
    (tmp_path / "damaged.db").write_bytes(data)
    (tmp_path / "letter.db").write_text("Dear Sir, " * 100)
    with sqlite3.connect(tmp_path / "other.db") as other:
        other.execute("CREATE TABLE alembic_version (version_num TEXT)")
    other.close()
    with sqlite3.connect(tmp_path / "newer.db") as newer:
        newer.executescript(FIRST_REVISION.read_text())
        newer.execute("UPDATE alembic_version SET version_num = '9999'")
    newer.close()
    for name, error, told in (
        ("missing.db", InvalidSetting, "There is no file"),
        ("home", InvalidSetting, "is a folder"),
        ("letter.db", InvalidSetting, "not a database of FSD Lab: name a backup that `db backup` has made"),
        ("other.db", InvalidSetting, "not a database of FSD Lab"),
        ("newer.db", DatabaseOutdated, "newer one"),
        ("damaged.db", DatabaseUnavailable, "damaged|malformed"),
    ):
        with pytest.raises(error, match=told):
            restore(database_url, tmp_path / name)
    assert contents(database_url) == before
    assert sorted(path.name for path in Path(tmp_path / "home").iterdir()) == ["fsd.db"]


def test_a_backup_of_an_earlier_version_is_brought_to_this_one(database_url: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "old.db") as old:
        old.executescript(FIRST_REVISION.read_text())
    old.close()
    assert restore(database_url, tmp_path / "old.db") is None  # there was none before
    runs, [(done, _)] = contents(database_url)
    spent = {run.id: run.decoding_seconds for run in runs}  # the new column is filled from what is there
    assert spent[done.run_id] == done.seconds > 0


def test_no_room_is_told_and_nothing_half_made_is_left(
    repository: Repository, database_url: str, tmp_path: Path
) -> None:
    program = (
        "import resource, sys; from pathlib import Path; from fsd_core.storage.upkeep import backup\n"
        "import signal; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        f"backup({database_url!r}, Path({str(tmp_path / 'out' / 'copy.db')!r}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "DatabaseUnavailable" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.wide
def test_deleted_space_is_given_back(repository: Repository, database_url: str) -> None:
    id = repository.create_experiment(sweep(), enqueue=False)
    run = repository.experiment(id).runs[0].id
    for position in range(300):
        repository.record_generation(run, generation(position, text="so " * 1000))
    repository.delete_experiment(id)
    before, after = vacuum(database_url)
    assert after < before / 3
    assert repository.count_runs() == 0


def test_postgres_has_its_own(tmp_path: Path) -> None:
    for action in (lambda url: backup(url, tmp_path / "x"), lambda url: restore(url, tmp_path / "x"), vacuum):
        with pytest.raises(NotApplicable):
            action("postgresql://me@127.0.0.1/lab")


def test_the_commands(call: Call, repository: Repository, home: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "copy.db")
    assert call("db", "backup", file)[0] == 0
    status, _, err = call("db", "backup", file)
    assert (status, "already exists" in err) == (2, True)
    held = system.acquire(home / "worker.lock")
    assert held is not None
    held.write_metadata(pid=4711)
    status, _, err = call("db", "restore", file)
    assert (status, "A worker (process 4711) is using" in err) == (2, True)
    held.close()
    status, out, _ = call("db", "restore", file)
    assert (status, "The former one is" in out) == (0, True)
    status, out, _ = call("db", "vacuum")
    assert (status, "less than before" in out) == (0, True)


def test_rounds_that_are_no_longer_kept(repository: Repository) -> None:
    old, new = repository.create_run(run_config()), repository.create_run(run_config(seed=1))
    for run in (old, new):
        repository.record_generation(run, generation())
    repository.finish_run(old, {"tokens": 2})
    assert repository.prune_traces(timedelta(hours=1)) == 0
    assert repository.prune_traces(timedelta(0)) == 1
    assert (repository.has_traces(old), repository.has_traces(new)) == (False, True)
    with pytest.raises(UnknownName):
        repository.trace(repository.generations(old)[0].id)
    with pytest.raises(Stale):
        bounds.check(repository, old)


def test_runs_are_listed_with_their_ids(call: Call, repository: Repository) -> None:
    status, out, err = call("runs")
    assert (status, out, err) == (0, "", "No run is here yet.\n")
    alone = repository.create_run(run_config())
    experiment = repository.create_experiment(sweep())
    status, out, _ = call("runs")
    lines = out.splitlines()
    assert (status, len(lines)) == (0, 5)
    assert lines[0].split()[:4] == ["Run", "Setting", "Pair", "Task"]
    assert [line.split()[-1] for line in lines[1:]] == [experiment[:8]] * 3 + ["–"]
    assert lines[-1].startswith(alone[:8])
    found = [json.loads(line) for line in call("runs", "--json", "--search", "first")[1].splitlines()]
    assert [run["run"] for run in found] == [run.id for run in repository.experiment(experiment).runs]
    assert {run["experiment"] for run in found} == {experiment}
    assert len(call("runs", "--limit", "2")[1].splitlines()) == 3
    assert call("runs", "--search", "nothing such")[1:] == ("", "No run has 'nothing such' in its name.\n")


@pytest.mark.wide
def test_deleting_from_the_command_line(call: Call, repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSD_MLFLOW_URI", "http://127.0.0.1:9")
    id = repository.create_experiment(sweep())
    run = repository.experiment(id).runs[0].id
    repository.record_generation(run, generation())
    status, _, err = call("delete", id, "--yes")
    assert (status, "is under way and cannot be deleted" in err) == (2, True)
    job = repository.claim(("experiment",), 60)
    assert job is not None
    repository.finish_job(id, str(job.claim_token), "cancelled")
    status, out, err = call("delete", id)
    assert (status, out) == (2, "")
    assert f"Delete the experiment {id} (first) with 3 runs, 1 prompt and their traces, here and in MLflow?" in err
    assert "call it again with --yes" in err
    status, out, err = call("delete", run, "--yes")
    assert (status, out) == (0, f"The run {run} was deleted.\n")
    assert "warning: MLflow at http://127.0.0.1:9" in err  # which hears of it later
    assert [r.id != run for r in repository.experiment(id).runs] == [True, True]
    assert call("delete", id[:8], "--yes")[0] == 0
    assert (len(repository.experiments(1000)), repository.count_runs()) == (0, 0)
    assert sorted(kind for kind, _ in repository.mlflow_deletions()) == ["experiment", "run", "run", "run"]
    status, _, err = call("delete", id, "--yes")
    assert (status, "There is no run and no experiment" in err) == (2, True)
