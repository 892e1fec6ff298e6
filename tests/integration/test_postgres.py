"""The same on PostgreSQL where it could differ, behind a pooler and at a shut door too."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from sqlalchemy import text

from fsd_core import accounts
from fsd_core.errors import DatabaseOutdated, DatabaseUnavailable, Overtaken
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import get_settings, sqlite_url
from fsd_core.storage import jobs, opening
from fsd_core.storage.catalogue import ReportContent, ReportFigure, ReportRun, ReportTable
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import Edit
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import AliasMoved, UseDescribed
from fsd_core.storage.tables import Base
from fsd_core.tracking import connect
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools.tracking_examples import STEP, chunk, generation, playground_job, run_config, sweep
from tests.tools.worker_process import Home, free_port, until
from tests.unit.test_jobs import claim_at_once
from tests.unit.test_jobs import test_a_calibration_is_given_time_once_it_has_ended as is_given_time
from tests.unit.test_workspace_import import contents

pytestmark = pytest.mark.processes


@pytest.fixture
def database_url(postgres_url: str, request: pytest.FixtureRequest) -> str:
    """An empty database of the test's own."""
    name = request.node.name.replace("test_", "lab_")[:50] + request.node.name[-4:]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    return postgres_url.rpartition("/")[0] + f"/{name}"


def test_each_job_is_claimed_once(repository: Repository, database_url: str) -> None:
    claim_at_once(repository, database_url)


@pytest.mark.wide
def test_mlflow_keeps_files_in_the_home_where_its_server_looks_for_them(database_url: str, home: Path) -> None:
    get_settings.cache_clear()
    client, experiment = connect(database_url.replace("postgresql://", "postgresql+psycopg://"))
    assert client.get_experiment(experiment).artifact_location == (home / "mlflow" / "artifacts").as_uri()
    get_settings.cache_clear()


def test_migrations(database_url: str) -> None:
    with pytest.raises(DatabaseOutdated, match="no FSD Lab database"):
        open_database(database_url)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(upgrade, [database_url] * 2))
    database = open_database(database_url)
    with database.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), Base.metadata) == []
    database.close()


def test_versions_of_a_task(repository: Repository) -> None:
    content = '{"scorer": "none"}\n{"prompt": "ü"}\n'

    def add(who: int) -> str:
        return repository.add_task("mine", content, title="T", scorer="none", prompts=1, who=str(who)).version

    with ThreadPoolExecutor(4) as pool:  # of several who add the same at once none fails
        (version,) = set(pool.map(add, range(8)))
    assert [view.version for view in repository.task_versions()] == [version]
    assert repository.task_content("mine", version) == content
    run = repository.create_run(run_config().model_copy(update={"task": f"mine@{version}"}))
    assert [view.id for view in repository.runs(task="mine")] == [run]


def test_an_experiment_from_start_to_end(repository: Repository) -> None:
    id = repository.create_experiment(sweep("<b>&\0"))
    job = repository.claim(("experiment",), 60)
    for run in repository.experiment(id).runs:
        repository.start_run(run.id, {"device": "cpu"})
        with ThreadPoolExecutor(4) as pool:  # two recorders of one prompt take turns
            list(pool.map(lambda i, run=run: repository.record_generation(run.id, generation(i % 2, "a\0b")), range(8)))
        repository.finish_run(run.id, {"accuracy": run.position / 2, "speed": float("inf")})
    assert repository.finish_job(id, job.claim_token, "finished")
    found = repository.experiment(id)
    assert (found.name, found.status, found.prompts_done) == ("<b>&\ufffd", "finished", 6)
    assert [run.metrics["accuracy"] for run in repository.runs(order_by="accuracy")] == [1.0, 0.5, 0.0]
    assert repository.count_runs(search="fsd js") == 2
    assert [repository.count_runs(calibration_rounds=asked) for asked in (True, False)] == [0, 3]
    assert repository.count_settings(dropped=False) == 3
    assert list(repository.traces(found.runs[0].id)) == [(0, [STEP]), (1, [STEP])]
    assert found.created_at.utcoffset().total_seconds() == 0


def test_settings_of_the_same_models_stand_under_one_name(repository: Repository) -> None:
    repository.create_experiment(sweep())
    for place in ("path:/first", "path:/second"):
        repository.create_experiment(sweep().model_copy(update={"pair": place, "identity": "2;target=a"}))
    assert [(setting.pair, setting.runs) for setting in repository.settings()].count(("path:/first", 2)) == 3
    repository.place_models("2;target=a", "path:/second")
    assert (repository.pair_of("2;target=a"), repository.pair_of("2;target=b"), repository.pair_of("")) == (
        "path:/second", "", ""
    )  # fmt: skip
    assert {run.pair for run in repository.runs()} == {"bundled", "path:/second"}


def test_the_review_log_only_grows_and_two_at_once_are_told(repository: Repository) -> None:
    described = UseDescribed(name="Support chat")
    repository.append_events("support-chat", Person("Ann", "author"), [described], 0)
    before = repository.review_log()
    for statement in ("UPDATE review_log SET who = 'Eve'", "DELETE FROM review_log", "TRUNCATE review_log"):
        with pytest.raises(Exception, match="the review log only grows"), repository._database.session() as session:
            session.execute(text(statement))
    assert repository.review_log() == before

    def act(i: int) -> str:
        try:
            repository.append_events("support-chat", Person(f"P{i}", "author"), [described], 1)
        except Overtaken:
            return "told"
        return "added"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(act, range(6))) == ["added"] + ["told"] * 5
    assert [logged.sequence for logged in repository.review_log("support-chat")] == [1, 2]


def test_a_copy_made_while_an_alias_moves_is_made_again(repository: Repository) -> None:
    run = repository.create_run(run_config(0.1))
    repository.cancel_run(run)
    setting, counted = repository.run(run).setting_id, [0]

    def move() -> None:
        moved = AliasMoved(alias="approved", setting=setting, former=None)
        for seen in range(60):
            repository.append_events("support-chat", Person("Ann", "author"), [moved], seen)

    def copy() -> None:
        for _ in range(60):
            counted.append(repository.named(setting, {}).moves)
            repository.mark_synced(repository.run(run), "copy", counted[-1])

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(move), pool.submit(copy)]:
            each.result()
    named = repository.named(setting, {})
    assert named.uses == {"approved": ["support-chat"], "candidate": []}
    assert (repository.unsynced_runs() == []) == (counted[-1] == named.moves)
    repository.mark_synced(repository.run(run), "copy", named.moves)
    assert repository.unsynced_runs() == []


def test_of_people_who_edit_at_once_all_but_one_are_told(repository: Repository) -> None:
    id = repository.create_experiment(sweep())

    def note(i: int) -> str:
        try:
            repository.annotate("experiment", id, Edit(note=f"note {i}", tags=("ünï",)), Person(f"P{i}", "author"), 0)
        except Overtaken:
            return "told"
        return "kept"

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(note, range(6))) == ["kept"] + ["told"] * 5
    run = repository.experiment(id).runs[0].id
    assert repository.annotate("run", run, Edit(archived=True), Person("Ann", "author"))
    assert (repository.count_runs(search="ünï"), repository.count_runs(archived=False)) == (3, 2)
    for statement in ("UPDATE change_log SET who = 'Eve'", "DELETE FROM change_log", "TRUNCATE change_log"):
        with pytest.raises(Exception, match="the log of changes only grows"), repository._database.session() as session:
            session.execute(text(statement))
    assert [change.kind for change in repository.changes(experiment_id=id, limit=9)] == ["run", "experiment"]


def test_sweeps_of_the_same_settings_that_begin_at_once_do_not_wait_for_each_other(repository: Repository) -> None:
    whole = sweep()
    turned = whole.model_copy(update={"decodings": whole.decodings[::-1]})
    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(repository.create_experiment, [whole, turned] * 30))
    assert len(set(ids)) == len(repository.experiments(1000)) == 60


def test_accounts(repository: Repository) -> None:
    accounts.add_user(repository, "Ann", "author", "correct horse battery")
    secret = accounts.sign_in(repository, "Ann", "correct horse battery", "127.0.0.1")
    assert accounts.whose_cookie(repository, secret) == Person("Ann", "author")
    repository.remove_user("Ann", "Bob")
    assert accounts.whose_cookie(repository, secret) is None


def test_sittings(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    repository.record_generation(run_id, generation(0))  # as before sittings were recorded
    with ThreadPoolExecutor(4) as pool:  # recorders take turns, so none makes a sitting that is there
        turns = range(1, 9)
        list(pool.map(lambda i: repository.record_generation(run_id, generation(i), {"threads": 1 + i % 2}), turns))
    run = repository.run(run_id)
    unrecorded, *others = (sitting.conditions.get("threads", 0) for sitting in run.measurement_sessions)
    assert (unrecorded, sorted(others)) == (0, [1, 2])
    assert sorted(map(len, repository.session_positions(run_id).values())) == [1, 4, 4]
    repository.delete_run(run_id)
    assert repository.session_positions(run_id) == {}


def test_a_lost_worker(repository: Repository) -> None:
    id = repository.enqueue(playground_job("\0"))
    lost = repository.claim(("playground",), -1)
    taken = repository.claim(("playground",), 60)
    assert (taken.id, taken.lost_workers) == (id, 1)
    assert not repository.finish_job(id, lost.claim_token, "finished")
    repository.append_chunks(id, [chunk(1), chunk(2)])
    assert repository.chunks(id, 0) == [(1, chunk(2))]
    repository.report_worker(1, "host", "cpu", "idle")
    assert repository.worker().alive


@pytest.mark.parametrize("minutes", [-3, 5])
def test_a_machine_whose_clock_is_off_takes_no_running_job_and_is_seen(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, minutes: int
) -> None:
    id = repository.enqueue(playground_job("\0"))
    repository.claim(("playground",), 60)
    off = datetime.now(UTC) + timedelta(minutes=minutes)
    for module in (jobs, jobs, opening):
        if hasattr(module, "now"):
            monkeypatch.setattr(module, "now", lambda: off)
    assert repository.claim(("playground",), 60) is None
    repository.report_worker(1, "host", "cpu", "idle")
    monkeypatch.undo()
    assert repository.worker().alive
    assert repository.job(id).lost_workers == 0


def test_a_calibration(repository: Repository) -> None:
    is_given_time(repository)


@pytest.mark.wide
def test_a_workspace_moves_there_and_back(repository: Repository, database_url: str, tmp_path: Path) -> None:
    stored = Path(__file__).parents[1] / "data" / "workspace_0005.zip"
    assert tuple(import_file(repository._database, stored, tmp_path)) == (1, 4, 7, 2, 0, 0)
    assert tuple(import_file(repository._database, stored, tmp_path)) == (0, 0, 0, 0, 4, 0)
    export(database_url, tmp_path / "from-postgres.zip", tmp_path)
    there, back = (open_database(made(tmp_path / f"{name}.db")) for name in ("there", "back"))
    import_file(there, stored, tmp_path)
    import_file(back, tmp_path / "from-postgres.zip", tmp_path)
    assert contents(Repository(there)) == contents(Repository(back))
    assert tuple(import_file(repository._database, tmp_path / "from-postgres.zip", tmp_path)) == (0, 0, 0, 0, 4, 0)
    task = repository.add_task("mine", '{"prompt": "ü"}', title="Ü", scorer="none", prompts=1, who="Ann")
    export(database_url, tmp_path / "with-task.zip", tmp_path)
    assert [import_file(back, tmp_path / "with-task.zip", tmp_path).tasks for _ in range(2)] == [1, 0]
    assert Repository(back).task_versions() == [task]
    repository.append_events(
        "support", Person("Ann", "admin"), [UseDescribed(name="Support")], 1
    )  # the counters of keys go on
    new = repository.create_run(run_config())
    repository.record_generation(new, generation(0), {"threads": 1})
    for database in (there, back):
        database.close()


def made(file: Path) -> str:
    url = sqlite_url(file)
    upgrade(url)
    return url


def test_what_the_server_refuses_is_told(postgres_url: str, database_url: str, repository: Repository) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not"):
        open_database(postgres_url.rpartition("/")[0] + "/nowhere")
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER TABLE traces RENAME TO away")
    with pytest.raises(DatabaseUnavailable, match="lacks tables") as caught:
        list(repository.traces("any"))
    assert "\n" not in str(caught.value)
    with psycopg.connect(database_url, autocommit=True) as connection:
        connection.execute("ALTER ROLE postgres SET default_transaction_read_only = on")
    reader = open_database(database_url)
    try:
        with pytest.raises(DatabaseUnavailable, match="is read-only"):
            Repository(reader).create_run(run_config())
    finally:
        reader.close()
        with psycopg.connect(
            database_url, autocommit=True, options="-c default_transaction_read_only=off"
        ) as connection:
            connection.execute("ALTER ROLE postgres RESET default_transaction_read_only")


def test_a_report_is_kept_whole(repository: Repository) -> None:
    figure = ReportFigure(title="τ", plot={"data": [{"y": [0.1, 1e-300, None, 123456789.123456789]}], "layout": {}})
    content = ReportContent(
        title="Knee", text="# κ\n\0", subject="bundled", query="runs=a",
        runs=[ReportRun(id="a" * 32, name="SD", digest="b" * 16)], figures=[figure],
        tables=[ReportTable(title="Metrics", columns=["Setting"], rows=[["SD"]])],
    )  # fmt: skip
    for _ in range(2):
        repository.add_report("c" * 32, content, "Ann")
    report = repository.report("c" * 32)
    assert report.content.figures == [figure]
    assert report.content.text == "# κ\n\ufffd"
    assert [name.id for name in repository.reports()] == [report.row.id]
    repository.delete_report(report.row.id)
    assert repository.count_reports() == 0


def test_a_view_is_saved_once_and_renamed(repository: Repository) -> None:
    for id in ("a" * 32, "b" * 32):
        assert repository.save_view(id, "runs", "Nightly", "sort=oldest", LOCAL).id == "a" * 32
    assert repository.rename_view("a" * 32, "Daily", LOCAL).name == "Daily"
    assert [view.name for view in repository.saved_views()] == ["Daily"]
    repository.report_worker(1, "host", "cuda", "idle", 140_000_000_000)  # more than 32 bits
    worker = repository.worker()
    assert worker is not None
    assert worker.memory == 140_000_000_000


def created(postgres_url: str, name: str, more: str = "") -> str:
    """The address of a new database."""
    name += uuid4().hex[:8]
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}" {more}'.encode())
    return postgres_url.rpartition("/")[0] + f"/{name}"


def answers(port: int) -> bool:
    with socket.socket() as door:
        return door.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def pooled(postgres_url: str, tmp_path: Path) -> Iterator[str]:
    """A new database through a pool of three connections, each transaction through any of them."""
    program = shutil.which("pgbouncer", path="/usr/sbin:/usr/bin:/usr/local/bin")
    if program is None:
        pytest.skip("needs pgbouncer")
    server, port = urlsplit(created(postgres_url, "pooled")), free_port(6450)
    name = server.path.strip("/")
    folder = tmp_path / "pooler"
    folder.mkdir()
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n{name} = host=127.0.0.1 port={server.port} user=postgres\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        "pool_mode = transaction\ndefault_pool_size = 3\n"
    )
    shutil.chown(folder, "postgres")
    shutil.chown(folder / "pgbouncer.ini", "postgres")
    for above in (tmp_path, *tmp_path.parents[:2]):
        above.chmod(above.stat().st_mode | 0o011)  # for the pooler, which does not run as root
    with (folder / "log").open("w") as log:
        process = subprocess.Popen([program, "-u", "postgres", "pgbouncer.ini"], cwd=folder, stdout=log, stderr=log)
    try:
        until(lambda: process.poll() is not None or answers(port), "the pooler")
        assert process.poll() is None, (folder / "log").read_text()
        yield f"postgresql://postgres@127.0.0.1:{port}/{name}"
    finally:
        process.kill()
        process.wait()


@pytest.mark.wide  # test_postgres.py
def test_a_worker_works_behind_a_pooler(pooled: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "lab", database_url=pooled)
    try:
        worker = home.worker()
        for _ in range(2):
            experiment = home.repository.create_experiment(home.sweep(limit=6))
            assert home.until_done(home.job_of(experiment)) == "finished"
            assert [run.prompts_done for run in home.repository.experiment(experiment).runs] == [6] * len(
                home.repository.experiment(experiment).runs
            )
        assert worker.poll() is None
        with psycopg.connect(pooled, prepare_threshold=None) as connection:
            assert connection.execute("SELECT count(*) FROM pg_prepared_statements").fetchone() == (0,)
    finally:
        home.close()


@pytest.mark.parametrize(("encoding", "locale"), [("SQL_ASCII", "C"), ("LATIN1", "C")])
def test_a_database_that_cannot_hold_every_prompt_is_refused(postgres_url: str, encoding: str, locale: str) -> None:
    url = created(postgres_url, encoding.lower(), f"ENCODING '{encoding}' LOCALE '{locale}' TEMPLATE template0")
    with pytest.raises(DatabaseUnavailable, match=f"texts in {encoding}.*--encoding=UTF8"):
        upgrade(url)


def test_what_keeps_the_door_shut_is_told(postgres_url: str) -> None:
    with pytest.raises(DatabaseUnavailable, match="does not exist: create it"):
        open_database(postgres_url.rpartition("/")[0] + "/nowhere")
    with pytest.raises(DatabaseUnavailable, match="refuses this user or password"):
        open_database(postgres_url.replace("postgres@", "stranger:secret@"))
    url = created(postgres_url, "hurried")
    upgrade(url)
    database = open_database(url)
    slow = "SET LOCAL statement_timeout = 1; SELECT pg_sleep(60)"
    with pytest.raises(DatabaseUnavailable, match="statement_timeout"), database.session() as session:
        session.connection().exec_driver_sql(slow)
    database.close()
    with pytest.raises(DatabaseUnavailable, match=r"does not answer \(.*[Rr]efused"):
        open_database("postgresql://postgres@127.0.0.1:9/lab")
