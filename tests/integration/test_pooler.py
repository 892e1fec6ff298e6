"""PostgreSQL behind pgbouncer in transaction mode, in encodings that hold no prompt, and at a door that stays shut."""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit
from uuid import uuid4

import psycopg
import pytest

from fsd_core.errors import DatabaseUnavailable
from fsd_core.storage.opening import open_database, upgrade
from tests.tools.worker_process import Home, free_port, until

pytestmark = pytest.mark.processes


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
