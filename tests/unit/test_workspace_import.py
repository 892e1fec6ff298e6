"""A workspace moves as one file: whole, twice without effect, and not at all where anything is wrong with it."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import shutil
import sqlite3
import stat
import tarfile
import zipfile
from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from sqlalchemy import text

from fsd_core.accounts import KEY
from fsd_core.config import RunConfig, SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig, candidates
from fsd_core.config.model_names import name_of_models
from fsd_core.errors import DataDamaged, FsdError, InvalidSetting, Taken
from fsd_core.frozen import text_hash
from fsd_core.roles import Person
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.catalogue import ReportContent, ReportRun
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import Edit
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import AliasMoved, UseDescribed
from fsd_core.storage.tables import GenerationRow, MeasurementSessionRow, OwnPairRow, TraceRow
from fsd_plugins.workspaces import exporting, importing
from fsd_plugins.workspaces.download import links, routes
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import CUT_OFF, POLICIES, import_file
from tests.tools.copies import copy_of
from tests.tools.plausible import filled_file
from tests.tools.tracking_examples import generation, run_config, sweep

Call = Callable[..., tuple[int, str, str]]
GOLDEN = Path(__file__).parents[1] / "golden" / "database.sql"
CONTENT = '{"scorer": "number"}\n{"prompt": "1 + 1 = ü", "reference": "2"}\n'
STORED = Path(__file__).parents[1] / "data" / "workspace_0005.zip"
OURS_ALONE = {"mlflow_run_id", "mlflow_synced_at"}
MODELS = name_of_models({"target": "/models/a/target", "draft": "/models/a/draft"})
ANN = Person("Ann", "admin")


def contents(repository: Repository) -> dict[str, list]:
    """Every table that travels, without the keys that a database counts itself."""
    named = {
        "own_pairs": "SELECT * FROM own_pairs ORDER BY name, version",
        "tasks": "SELECT * FROM tasks ORDER BY name, version",
        "settings": "SELECT * FROM settings ORDER BY id",
        "experiments": "SELECT * FROM experiments ORDER BY id",
        "runs": "SELECT * FROM runs ORDER BY id",
        "generations": "SELECT g.*, s.conditions, s.started_at, t.data, t.sha256 FROM generations g "
        "LEFT JOIN sittings s ON s.id = g.sitting_id LEFT JOIN traces t ON t.generation_id = g.id "
        "ORDER BY g.run_id, g.position",
        "marks": "SELECT * FROM marks ORDER BY run_id, position, who",
        "engine_readings": "SELECT * FROM engine_readings ORDER BY id",
        "reports": "SELECT * FROM reports ORDER BY id",
        "saved_views": "SELECT * FROM saved_views ORDER BY id",
        "change_log": "SELECT * FROM change_log ORDER BY subject, sequence",
        "review_log": "SELECT * FROM review_log ORDER BY use_id, sequence",
    }
    left_out = OURS_ALONE | {"sitting_id"}
    found = {}
    with repository._database.session(readonly=True) as session:
        for table, statement in named.items():
            drop = left_out | ({"id"} if table in ("generations", "review_log", "change_log") else set())
            rows = session.execute(text(statement)).mappings()
            kept = [{key: value for key, value in row.items() if key not in drop} for row in rows]
            # JSON's null and the database's are both nothing.
            found[table] = [{key: None if value == "null" else value for key, value in row.items()} for row in kept]
    return found


@pytest.fixture
def other(migrated: Path, tmp_path: Path) -> Iterator[Repository]:
    """A second, empty workspace."""
    with copy_of(migrated, sqlite_url(tmp_path / "other" / "fsd.db")) as other:
        yield other


@pytest.fixture
def filled(full: Path, database_url: str) -> Iterator[Repository]:
    """An experiment that has ended with its reviews, and a run that stands alone."""
    with copy_of(full, database_url) as filled:
        yield filled


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return filled_file(tmp_path_factory.mktemp("full"), fill)[0]


def fill(repository: Repository) -> None:
    id = repository.create_experiment(sweep("<b>first"), enqueue=False)
    for run in repository.experiment(id).runs:
        repository.start_run(run.id, {"device": "cpu"})
        for position in range(2):
            conditions = {"threads": 1 + position}
            repository.record_generation(run.id, generation(position, f"{run.position} a ünï\n"), conditions)
        repository.finish_run(run.id, {"accuracy": 1.0, "rates": [0.5, None], "published_differs": {"wrong": [0]}})
        repository.mark_synced(repository.run(run.id), "copy")
    alone = repository.create_run(run_config(seed=9))
    about = {"reading_versions": "1, 2", "read_before": {"correct": 1}, "thought_marks": "<a> … </a>"}
    repository.start_run(alone, {"device": "cpu"} | about)
    repository.record_generation(alone, generation(0), {"threads": 1})
    repository.cancel_run(alone, {"accuracy": 1.0})
    repository.mark(alone, 0, "Ann", "bad", "wrong ünit")
    repository.add_task("sums", CONTENT, title="<i>Süms</i>", scorer="number", prompts=1, who="Ann")
    repository.append_events("support", Person("Ann", "admin"), [UseDescribed(name="Support")], 0)
    repository.append_events("code", Person("Bob", "author"), [UseDescribed(name="Code")], 0)
    repository.record_reading(alone, "e" * 32, {"requests": 1})
    repository.save_view("f" * 32, "runs", "Nightly", "sort=accuracy", ANN)
    report = ReportRun(id=alone, name="Alone", digest="a" * 16)
    empty: dict[str, Any] = {"text": "", "subject": "", "query": "", "figures": [], "tables": []}
    repository.add_report("d" * 32, ReportContent(title="Knee", runs=[report], **empty), "Ann")
    with repository._database.session() as session:
        session.add(OwnPairRow(name="mine", version=text_hash(MODELS), models=MODELS, added_by="Ann"))


@pytest.fixture
def file(filled: Repository, database_url: str, tmp_path: Path) -> Path:
    path = tmp_path / "out" / "workspace.zip"
    export(database_url, path, tmp_path)
    assert [one.name for one in path.parent.iterdir()] == ["workspace.zip"]
    return path


def take(repository: Repository, file: Path, tmp_path: Path) -> tuple[int, ...]:
    done = tuple(import_file(repository._database, file, tmp_path))
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]
    return done


@pytest.mark.wide
def test_what_was_exported_is_imported_whole_and_twice_changes_nothing(
    filled: Repository, other: Repository, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (exporting, importing):
        monkeypatch.setattr(module, "_BATCH", 1)  # as of a run with many prompts
    assert take(other, file, tmp_path) == (1, 4, 7, 2, 0, 1)
    assert contents(other) == contents(filled)
    assert take(other, file, tmp_path) == (0, 0, 0, 0, 4, 0)
    assert contents(other) == contents(filled)
    assert take(filled, file, tmp_path) == (0, 0, 0, 0, 4, 0)
    assert {run.id for run in other.unsynced_runs()} == {run.id for run in filled.runs()}  # MLflow gets its own
    run = filled.experiments()[0].runs[0].id
    assert list(other.traces(run)) == list(filled.traces(run))
    assert [sitting.conditions for sitting in other.run(run).measurement_sessions] == [{"threads": 1}, {"threads": 2}]


def test_no_secret_travels(filled: Repository, database_url: str, tmp_path: Path) -> None:
    filled.add_user("Ann", "admin", "argon2-hash-of-ann", "test")
    filled.add_token("nightly", "author", "d" * 64, "Ann", "test")
    export(database_url, tmp_path / "x.zip", tmp_path)
    with zipfile.ZipFile(tmp_path / "x.zip") as inside:
        everything = b"".join(inside.read(name) for name in inside.namelist())
    assert b"argon2-hash-of-ann" not in everything
    assert b"d" * 64 not in everything
    assert b"copy" not in everything  # MLflow's ids are of this installation


def test_the_golden_database_moves(other: Repository, tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "golden.db")
    with sqlite3.connect(tmp_path / "golden.db") as old:
        old.executescript(GOLDEN.read_text(encoding="utf-8"))
    old.close()
    upgrade(url)
    golden = Repository(open_database(url))
    export(url, tmp_path / "golden.zip", tmp_path)
    take(other, tmp_path / "golden.zip", tmp_path)
    assert contents(other) == contents(golden)
    assert len(contents(other)["generations"]) > 5
    assert [run.label for run in other.runs()] == [run.label for run in golden.runs()]
    golden._database.close()


def test_each_table_that_travels_has_a_policy() -> None:
    with_their_run = {MeasurementSessionRow, GenerationRow, TraceRow}
    assert list(POLICIES) == [model for model in exporting.TABLES if model not in with_their_run]


@pytest.mark.parametrize(
    ("table", "column"), [("own_pairs", "added_by"), ("tasks", "title"), ("settings", "label"), ("reports", "who")]
)
def test_what_never_changes_stays_as_it_is_here(
    other: Repository, file: Path, tmp_path: Path, table: str, column: str
) -> None:
    take(other, file, tmp_path)
    with other._database.session() as session:
        session.execute(text(f"UPDATE {table} SET {column} = 'as here'"))
    before = contents(other)
    take(other, file, tmp_path)
    assert contents(other) == before


def test_models_have_the_name_by_which_they_are_known_here(
    repository: Repository, other: Repository, database_url: str, migrated: Path, tmp_path: Path
) -> None:
    """Where they are not known, the oldest of the file's names counts."""

    def add(to: Repository, pair: str, threshold: float) -> str:
        decoding = run_config(threshold).setting.decoding
        setting = SettingConfig(pair=pair, identity="1d", decoding=decoding)
        return to.run(to.create_run(RunConfig(setting=setting, limit=2))).setting_id

    younger, older = sorted(add(repository, "path:/there", threshold) for threshold in (0.1, 0.3))
    with repository._database.session() as session:
        session.execute(text(f"UPDATE settings SET pair = 'path:/new' WHERE id = '{younger}'"))
        session.execute(text(f"UPDATE settings SET created_at = '2020-01-01 00:00:00' WHERE id = '{older}'"))
    export(database_url, tmp_path / "x.zip", tmp_path)
    add(other, "path:/here", 0.2)
    take(other, tmp_path / "x.zip", tmp_path)
    assert [run.pair for run in other.runs()] == ["path:/here"] * 3
    with copy_of(migrated, sqlite_url(tmp_path / "empty" / "fsd.db")) as empty:
        take(empty, tmp_path / "x.zip", tmp_path)
        assert [run.pair for run in empty.runs()] == ["path:/there"] * 2


def test_what_is_here_is_annotated_here(
    repository: Repository, other: Repository, database_url: str, tmp_path: Path
) -> None:
    """A run goes on in the file, and a calibration is granted time there; names and notes are of the log of changes."""
    decodings = tuple(candidates({"acceptance": "ensemble", "draft_length": 5}))
    calibration = repository.create_experiment(CalibrationConfig(decodings=decodings, limit=400), enqueue=False)
    run = repository.create_run(run_config())
    repository.start_run(run, {})
    export(database_url, tmp_path / "early.zip", tmp_path)
    repository.grant_minutes(calibration, 3, enqueue=False)
    repository.record_generation(run, generation(0))
    export(database_url, tmp_path / "late.zip", tmp_path)
    take(other, tmp_path / "early.zip", tmp_path)
    other.annotate("experiment", calibration, Edit(name="Named here"), ANN)
    other.annotate("run", run, Edit(note="noted here", tags=("a",)), ANN)
    assert take(other, tmp_path / "late.zip", tmp_path) == (0, 1, 1, 0, 0, 0)
    found, noted = other.experiment(calibration), other.run(run)
    assert (found.name, found.edits, found.config.more_minutes) == ("Named here", 1, 3)  # pyright: ignore
    assert (noted.note, noted.tags, noted.edits, noted.prompts_done) == ("noted here", ("a",), 1, 1)


def test_the_readings_of_a_run_go_on_with_it(
    repository: Repository, other: Repository, database_url: str, tmp_path: Path
) -> None:
    run = repository.create_run(run_config())
    repository.start_run(run, {})
    for position, name in enumerate(("early", "late")):
        repository.record_generation(run, generation(position))
        repository.record_reading(run, "e" * 32, {"requests": 1 + position})
        export(database_url, tmp_path / f"{name}.zip", tmp_path)
    for name, requests in (("early", 1), ("late", 2), ("early", 2)):
        take(other, tmp_path / f"{name}.zip", tmp_path)
        assert other.readings(run) == [{"requests": requests}]


def test_logs_are_compared_by_what_they_are_about(
    filled: Repository, other: Repository, database_url: str, tmp_path: Path
) -> None:
    """Each database counts the entries of all logs itself."""
    alone = filled.runs()[0].id
    filled.annotate("run", alone, Edit(note="there"), ANN)
    export(database_url, tmp_path / "noted.zip", tmp_path)
    here = other.create_run(run_config(seed=7))
    other.annotate("run", here, Edit(note="here"), ANN)
    other.append_events("here", ANN, [UseDescribed(name="Here")], 0)
    for added in (2, 0):
        assert take(other, tmp_path / "noted.zip", tmp_path)[3] == added
    assert {row["use_id"] for row in contents(other)["review_log"]} == {"here", "support", "code"}
    assert {row["subject"] for row in contents(other)["change_log"]} == {here, alone}
    assert (other.run(here).note, other.run(alone).note) == ("here", "there")


def test_what_comes_back_is_not_deleted_in_mlflow(filled: Repository, file: Path, tmp_path: Path) -> None:
    filled.delete_experiment(filled.experiments()[0].id)
    assert len(filled.mlflow_deletions()) > 1
    take(filled, file, tmp_path)
    assert filled.mlflow_deletions() == []


def test_keys_of_acts_stay_here(filled: Repository, other: Repository, database_url: str, tmp_path: Path) -> None:
    filled.append_events("new", Person("Eve", "admin"), [UseDescribed(name="New")], 0, "a" * 32)
    export(database_url, tmp_path / "keys.zip", tmp_path)
    for added in (3, 0):
        assert take(other, tmp_path / "keys.zip", tmp_path)[3] == added
    assert {row["key"] for row in contents(other)["review_log"]} == {None}


def test_a_file_of_an_earlier_version_is_read(other: Repository, tmp_path: Path) -> None:
    with exporting.opened(STORED) as stored:
        assert stored.manifest.revision == "0005"
    assert take(other, STORED, tmp_path) == (1, 4, 7, 2, 0, 0)
    assert take(other, STORED, tmp_path) == (0, 0, 0, 0, 4, 0)
    assert other.experiments()[0].name == "<b>first"
    assert [logged.who for logged in other.review_log()] == ["Ann", "Bob"]


def test_chosen_runs_bring_what_they_rest_on_and_the_rest_follows(
    filled: Repository, other: Repository, database_url: str, file: Path, tmp_path: Path
) -> None:
    first = filled.experiments()[0].runs[0].id
    export(database_url, tmp_path / "one.zip", tmp_path, [first])
    assert take(other, tmp_path / "one.zip", tmp_path) == (1, 1, 2, 0, 0, 0)
    assert [run.id for run in other.runs()] == [first]
    assert take(other, file, tmp_path) == (0, 3, 5, 2, 1, 1)
    assert contents(other) == contents(filled)


def test_a_run_takes_its_version_of_a_task_along(filled: Repository, other: Repository, tmp_path: Path) -> None:
    (asked,) = filled.task_versions("sums")
    filled.add_task("sums", CONTENT.replace("ü", "?"), title="", scorer="number", prompts=1, who="Bob")
    run = filled.create_run(run_config().model_copy(update={"task": asked.full_name}))
    url = str(filled._database.engine.url)
    export(url, tmp_path / "one.zip", tmp_path, [run])
    assert take(other, tmp_path / "one.zip", tmp_path)[-1] == 1
    assert other.task_versions() == [asked]
    assert other.task_content(*asked.full_name.split("@")) == CONTENT
    export(url, tmp_path / "all.zip", tmp_path)
    assert [take(other, tmp_path / "all.zip", tmp_path)[-1] for _ in range(2)] == [1, 0]
    assert other.task_versions() == filled.task_versions()


def test_work_that_had_not_ended_is_cancelled_and_can_be_resumed(
    repository: Repository, other: Repository, database_url: str, tmp_path: Path
) -> None:
    id = repository.create_experiment(sweep())
    begun = repository.experiment(id).runs[0].id
    repository.start_run(begun, {})
    repository.record_generation(begun, generation(0))
    export(database_url, tmp_path / "x.zip", tmp_path)
    take(other, tmp_path / "x.zip", tmp_path)
    found = other.experiment(id)
    assert {run.status for run in found.runs} == {"cancelled"}
    assert found.error == CUT_OFF
    assert take(other, tmp_path / "x.zip", tmp_path) == (0, 0, 0, 0, 3, 0)
    other.reopen_runs([run.id for run in found.runs])
    assert other.experiment(id).status == "queued"
    assert other.done_positions(begun) == {0}
    assert take(repository, tmp_path / "x.zip", tmp_path)[4] == 3  # where it goes on, it is left alone
    assert repository.run(begun).status == "running"


def test_the_later_of_two_marks_stays(
    filled: Repository, other: Repository, database_url: str, file: Path, tmp_path: Path
) -> None:
    take(other, file, tmp_path)
    (mark,) = filled.marks([run.id for run in filled.runs()])
    other.mark(mark.run_id, 0, "Ann", "good", "after all")
    take(other, file, tmp_path)
    assert [(m.verdict, m.note) for m in other.marks([mark.run_id])] == [("good", "after all")]
    filled.mark(mark.run_id, 0, "Ann", None, "no idea")
    filled.mark(mark.run_id, 0, "Bob", "good")
    export(database_url, tmp_path / "later.zip", tmp_path)
    take(other, tmp_path / "later.zip", tmp_path)
    assert contents(other)["marks"] == contents(filled)["marks"]


def test_a_run_that_has_gone_on_catches_up_and_never_falls_back(
    repository: Repository, other: Repository, database_url: str, tmp_path: Path
) -> None:
    id = repository.create_run(run_config())
    repository.start_run(id, {})
    repository.record_generation(id, generation(0), {"threads": 1})
    export(database_url, tmp_path / "early.zip", tmp_path)
    repository.record_generation(id, generation(1), {"threads": 1})
    repository.finish_run(id, {"accuracy": 1.0})
    export(database_url, tmp_path / "late.zip", tmp_path)
    take(other, tmp_path / "early.zip", tmp_path)
    assert take(other, tmp_path / "late.zip", tmp_path) == (0, 1, 1, 0, 0, 0)
    assert contents(other) == contents(repository)
    assert other.run(id).status == "finished"
    assert len(other.run(id).measurement_sessions) == 1
    assert take(other, tmp_path / "early.zip", tmp_path)[4] == 1
    assert contents(other) == contents(repository)


def test_time_that_a_calibration_was_given_later_is_taken_over(
    repository: Repository, other: Repository, database_url: str, tmp_path: Path
) -> None:
    decodings = tuple(candidates({"acceptance": "ensemble", "draft_length": 5}))
    id = repository.create_experiment(CalibrationConfig(decodings=decodings, limit=400), enqueue=False)
    repository.extend_experiment(id, [run_config()])
    export(database_url, tmp_path / "early.zip", tmp_path)
    repository.grant_minutes(id, 3, enqueue=False)
    export(database_url, tmp_path / "late.zip", tmp_path)
    for name, minutes in (("early", 0), ("late", 3), ("early", 3)):
        take(other, tmp_path / f"{name}.zip", tmp_path)
        config = other.experiment(id).config
        assert isinstance(config, CalibrationConfig)
        assert config.more_minutes == minutes


@pytest.mark.wide
def test_what_went_on_in_two_ways_is_refused_and_nothing_is_written(
    filled: Repository, other: Repository, database_url: str, file: Path, tmp_path: Path
) -> None:
    take(other, file, tmp_path)
    run = filled.experiments()[0].runs[1].id
    statements = {
        "UPDATE experiments SET config = json_set(config, '$.limit', 9)": "the experiment .* is here with other",
        f"UPDATE runs SET seed = 5 WHERE id = '{run}'": f"the run {run} is here with other settings",
        f"UPDATE generations SET text = 'no' WHERE run_id = '{run}' AND position = 1": f"prompt 2 of the run {run} is",
        f"DELETE FROM generations WHERE run_id = '{run}' AND position = 1": "has gone on both",
    }
    filled.append_events("new", Person("Eve", "admin"), [UseDescribed(name="New")], 0)
    export(database_url, tmp_path / "new.zip", tmp_path)
    for statement, told in statements.items():
        copy = tmp_path / "copy.db"
        shutil.copyfile(str(other._database.engine.url.database), copy)
        with sqlite3.connect(copy) as changed:
            changed.execute(statement)
            if "DELETE" in statement:
                changed.execute(f"UPDATE generations SET position = 7 WHERE run_id = '{run}' AND position = 0")
        changed.close()
        database = open_database(sqlite_url(copy))
        before = contents(Repository(database))
        with pytest.raises(Taken, match=f"Nothing was imported: .*{told}"):
            import_file(database, tmp_path / "new.zip", tmp_path)
        assert contents(Repository(database)) == before
        database.close()


def test_a_use_with_another_history_is_named(
    filled: Repository, other: Repository, database_url: str, file: Path, tmp_path: Path
) -> None:
    take(other, file, tmp_path)
    remark = UseDescribed(name="Support", description="so")
    filled.append_events("support", Person("Ann", "admin"), [remark], 1)
    export(database_url, tmp_path / "longer.zip", tmp_path)
    assert take(other, tmp_path / "longer.zip", tmp_path)[3] == 1  # a history that goes on is the same history
    assert take(other, file, tmp_path)[3] == 0
    other.append_events("support", Person("Eve", "admin"), [remark], 2)
    filled.append_events("support", Person("Ann", "admin"), [remark], 2)
    export(database_url, tmp_path / "different.zip", tmp_path)
    before = contents(other)
    with pytest.raises(Taken, match="the use 'support"):
        take(other, tmp_path / "different.zip", tmp_path)
    assert contents(other) == before


def rewritten(file: Path, to: Path, changes: dict[str, Callable[[bytes], bytes]], *, honest: bool = False) -> Path:
    """The file with members changed; ``honest``: with a manifest that fits them."""
    with zipfile.ZipFile(file) as source:
        members = {name: source.read(name) for name in source.namelist()}
    members = {name: changes.get(name, lambda data: data)(data) for name, data in members.items()}
    if honest:
        manifest = json.loads(members["manifest.json"])
        for table in manifest["members"]:
            data = members[f"{table}.jsonl"]
            digest = hashlib.sha256(data).hexdigest()
            manifest["members"][table] = {"rows": data.count(b"\n"), "bytes": len(data), "sha256": digest}
        members["manifest.json"] = json.dumps(manifest).encode()
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in members.items():
            out.writestr(name, data)
    return to


@pytest.mark.wide
def test_damaged_and_foreign_files_are_refused_before_anything_is_written(
    filled: Repository, other: Repository, file: Path, tmp_path: Path
) -> None:
    whole = file.read_bytes()
    made = tmp_path / "made"
    made.mkdir()

    def of(name: str, data: bytes) -> Path:
        (made / name).write_bytes(data)
        return made / name

    def manifest(**values: object) -> dict:
        return {"manifest.json": lambda data: json.dumps(json.loads(data) | values).encode()}

    def line(member: str, **values: object) -> dict:
        def change(data: bytes) -> bytes:
            first, *rest = data.splitlines(keepends=True)
            return json.dumps(json.loads(first) | values).encode() + b"\n" + b"".join(rest)

        return {f"{member}.jsonl": change}

    with zipfile.ZipFile(made / "zip.zip", "w") as letter:
        letter.writestr("letter.txt", "Dear Sir")
    twice = rewritten(file, made / "extra.zip", {})
    with zipfile.ZipFile(twice, "a") as out:
        out.writestr("../../evil.txt", "x")
    flipped = bytearray(whole)
    flipped[len(whole) // 3] ^= 0xFF
    refused: list[tuple[Path, type[FsdError], str]] = [
        (made / "missing.zip", InvalidSetting, "There is no file"),
        (made, InvalidSetting, "is a folder: name a file that `export` has made"),
        (of("letter.zip", b"Dear Sir, " * 100), InvalidSetting, "is no export of FSD Lab"),
        (of("empty.zip", b""), InvalidSetting, "is no export of FSD Lab"),
        (made / "zip.zip", InvalidSetting, "is no export of FSD Lab"),
        (of("short.zip", whole[: len(whole) // 2]), DataDamaged, r"is damaged \(it was cut off, or its bytes were"),
        (of("flipped.zip", bytes(flipped)), DataDamaged, r"is damaged \((it was cut off|its bytes were changed|row )"),
        (twice, DataDamaged, "does not hold the tables that its manifest names"),
        (
            rewritten(file, made / "version.zip", manifest(version=2)),
            InvalidSetting,
            "newer version of FSD Lab: update",
        ),
        (rewritten(file, made / "revision.zip", manifest(revision="9999")), InvalidSetting, "newer version of FSD Lab"),
        (rewritten(file, made / "format.zip", manifest(format="x")), InvalidSetting, "is no export of FSD Lab"),
        (rewritten(file, made / "members.zip", manifest(members=3)), DataDamaged, "manifest cannot be read"),
        (rewritten(file, made / "text.zip", line("generations", text="x")), DataDamaged, "is not what|is longer than"),
        (rewritten(file, made / "lost.zip", {"runs.jsonl": lambda data: b""}), DataDamaged, "runs is not what"),
    ]
    for name, member, values, told in (
        ("sha", "traces", {"sha256": "0" * 64}, "a value in it cannot be read"),
        ("trace", "traces", {"data": "&"}, "data of a row of traces cannot be read"),
        ("seed", "runs", {"seed": 10**12}, "seed of a row of runs is not what"),
        ("status", "runs", {"status": "sleeping"}, "a value in it cannot be read"),
        ("id", "runs", {"id": "../x"}, "belongs to a row of runs|cannot be read"),
        ("when", "runs", {"created_at": "yesterday"}, "created_at of a row of runs cannot be read"),
        ("name", "experiments", {"name": "x" * 300}, "more than 255 characters"),
        ("column", "runs", {"'; DROP TABLE runs; --": 1}, "has no column"),
        ("mlflow", "runs", {"mlflow_run_id": "x"}, "has no column 'mlflow_run_id'"),
        ("orphan", "generations", {"run_id": "f" * 32}, "belongs to a row of runs that is not there"),
        ("act", "review_log", {"act": {"kind": "judged"}}, "a value in it cannot be read"),
        (
            "dangling",
            "review_log",
            {"act": {"kind": "withdrawn", "proposal": "a" * 32}, "kind": "withdrawn"},
            "cannot be read",
        ),
        ("gap", "review_log", {"sequence": 4}, "a value in it cannot be read"),
        ("hash", "settings", {"id": "f" * 16}, "is not what its id says|belongs to a row of settings"),
    ):
        changed = rewritten(file, made / f"{name}.zip", line(member, **values), honest=True)
        refused.append((changed, DataDamaged, told))
    both = rewritten(file, made / "both.zip", {"runs.jsonl": lambda data: data + data}, honest=True)
    refused.append((both, DataDamaged, "two of its rows have one key"))
    nested = {"runs.jsonl": lambda data: b"[" * 100_000 + b"\n" + data}
    refused.append(
        (rewritten(file, made / "nested.zip", nested, honest=True), DataDamaged, "row 1 of runs cannot be read")
    )
    joined = {"runs.jsonl": lambda data: data.replace(b"\n", b"", 1)}
    told = r"is damaged \(row 1 of runs cannot be read\), so nothing was imported: export it again"
    refused.append((rewritten(file, made / "joined.zip", joined, honest=True), DataDamaged, told))
    unknown = line("settings", config={"pair": "bundled", "decoding": {"speed": 9}})
    refused.append((rewritten(file, made / "unknown.zip", unknown, honest=True), InvalidSetting, "install the package"))
    before = contents(other)
    for path, error, told in refused:
        with pytest.raises(error, match=told) as caught:
            take(other, path, tmp_path)
        assert "\n" not in str(caught.value), path
        assert contents(other) == before, path


def test_a_file_that_unpacks_to_too_much_is_refused(
    file: Path, other: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bomb(_: bytes) -> bytes:
        return b'{"id": "' + b"0" * 2_000_000 + b'"}\n'

    monkeypatch.setattr(exporting, "LONGEST_ARCHIVE_LINE", 1_000_000)
    bombed = rewritten(file, tmp_path / "bomb.zip", {"runs.jsonl": bomb}, honest=True)
    with pytest.raises(DataDamaged, match="runs is longer"):
        take(other, bombed, tmp_path)

    monkeypatch.setattr(exporting, "ALWAYS_INFLATED", 1_000_000)
    vast = {"runs.jsonl": lambda data: data + b" " * 20_000_000}
    with pytest.raises(DataDamaged, match=r"unpack to 0\.02 GB"):
        take(other, rewritten(file, tmp_path / "vast.zip", vast, honest=True), tmp_path)


def test_an_admin_fetches_the_file_from_the_app_and_nobody_else_does(
    filled: Repository, other: Repository, home: Path, tmp_path: Path
) -> None:
    app = FastAPI()
    app.include_router(routes(filled, Settings(home=home)))
    person = {"now": Person("Ann", "reviewer")}

    async def signed_in(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, KEY: person["now"]}, receive, send)

    client = TestClient(signed_in)
    refused = client.get("/export/workspace.zip")
    assert (refused.status_code, "needs the role admin" in refused.text) == (403, True)
    person["now"] = Person("Root", "admin")
    answer = client.get("/export/workspace.zip")
    assert answer.headers["Content-Type"] == "application/zip"
    (tmp_path / "fetched.zip").write_bytes(answer.content)
    take(other, tmp_path / "fetched.zip", tmp_path)
    assert contents(other) == contents(filled)
    assert not [path for path in home.iterdir() if path.name.startswith(".")]
    assert links(Person("Ann", "reviewer")) == []


def test_the_commands(call: Call, filled: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    id = filled.experiments()[0].id
    monkeypatch.chdir(tmp_path)
    status, out, _ = call("export", "a.zip")
    assert out.startswith(f"{tmp_path / 'a.zip'} holds ")
    assert (status, "4 runs of 1 experiment with 7 prompts, and 2 entries of the review log" in out) == (0, True)
    status, _, err = call("export", str(tmp_path / "a.zip"))
    assert (status, "already exists" in err) == (2, True)
    status, out, _ = call("export", str(tmp_path / "b.zip"), "--experiment", id[:8])
    assert (status, "3 runs of 1 experiment with 6 prompts, and 0 entries" in out) == (0, True)
    status, _, err = call("export", str(tmp_path / "c.zip"), "--run", id)
    assert (status, f"{id} is an experiment: give it as --experiment." in err) == (2, True)
    status, out, _ = call("import", str(tmp_path / "a.zip"))
    assert (status, "Added 0 runs" in out, "4 runs of it were here already." in out) == (0, True, True)
    monkeypatch.setenv("FSD_DATABASE_URL", sqlite_url(tmp_path / "new" / "fsd.db"))
    status, out, _ = call("import", str(tmp_path / "b.zip"))
    assert (status, out) == (0, "Added 3 runs and 1 experiment with 6 prompts, and 0 entries of the review log.\n")
    status, _, err = call("import", str(tmp_path / "no.zip"))
    assert (status, "There is no file" in err) == (2, True)


RUNS = "runs.jsonl"


@pytest.fixture
def value_file(repository: Repository, database_url: str, tmp_path: Path) -> Path:
    """One finished run of two prompts, which an alias of a use names."""
    id = repository.create_run(run_config())
    repository.start_run(id, {"device": "cpu", "versions": {"torch": "2"}, "weights": {"target": "t1"}})
    for position in range(2):
        repository.record_generation(id, generation(position), {"threads": 1})
    metrics = {"accuracy": 1.0, "accuracy_low": None, "acceptance_at_position": [0.5, None], "divergence_histogram": {}}
    repository.finish_run(id, metrics | {"divergence_histogram": {"edges": [0.0, 1.0], "counts": [3]}})
    rows = {"iid": [{"drafts": 1, "rate": 0.5, "low": None, "high": None}]}
    bounds = {"temperature": 1.0, "positions": 9, "seed": 0, "optima": rows, "verifiers": {}}
    repository.set_scores(id, {}, metrics | {"bounds": [bounds]})
    moved = AliasMoved(alias="candidate", setting=repository.run(id).setting_id, former=None)
    repository.append_events("chat", Person("Ann", "admin"), [UseDescribed(name="Chat"), moved], 0)
    export(database_url, tmp_path / "whole.zip", tmp_path)
    return tmp_path / "whole.zip"


def members(file: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(file) as source:
        return {name: source.read(name) for name in source.namelist()}


def honest(contents: dict[str, bytes]) -> dict[str, bytes]:
    """The members with a manifest that fits them."""
    manifest = json.loads(contents["manifest.json"])
    for table in manifest["members"]:
        data = contents[f"{table}.jsonl"]
        digest = hashlib.sha256(data).hexdigest()
        manifest["members"][table] = {"rows": data.count(b"\n"), "bytes": len(data), "sha256": digest}
    return contents | {"manifest.json": json.dumps(manifest).encode()}


def packed(to: Path, contents: dict[str, bytes], change: Callable[[zipfile.ZipInfo], None] = lambda info: None) -> Path:
    with zipfile.ZipFile(to, "w", zipfile.ZIP_DEFLATED) as out:
        for name, data in contents.items():
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            change(info)
            out.writestr(info, data)
    return to


def changed(file: Path, table: str, **values: Any) -> Path:
    """The file with other values in the first row of a table."""
    contents = members(file)
    first, *rest = contents[f"{table}.jsonl"].splitlines(keepends=True)
    contents[f"{table}.jsonl"] = json.dumps(json.loads(first) | values).encode() + b"\n" + b"".join(rest)
    return packed(file.with_name("changed.zip"), honest(contents))


def refused(other: Repository, file: Path, error: type[FsdError], told: str) -> None:
    with pytest.raises(error, match=told) as caught:
        import_file(other._database, file, file.parent)
    assert "\n" not in str(caught.value)
    assert other.runs() == []
    assert other.review_log() == []


def trace(rows: object) -> dict[str, str]:
    data = gzip.compress(json.dumps(rows).encode(), mtime=0)
    return {"data": b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}


def test_the_file_as_it_is_is_taken(value_file: Path, other: Repository) -> None:
    assert import_file(other._database, value_file, value_file.parent).runs == 1
    assert other.runs()[0].metrics["accuracy"] == 1.0  # pyright: ignore[reportOptionalSubscript]


@pytest.mark.parametrize(
    ("table", "values", "told"),
    [
        ("runs", {"metrics": {"accuracy": "high"}}, r"metrics\.accuracy of the run .{8} \(input should be a valid num"),
        ("runs", {"metrics": {"accuracy": 1e308}}, r"metrics\.accuracy of the run .{8} \(input should be less than"),
        ("runs", {"metrics": {"accuracy": True}}, r"metrics\.accuracy of the run"),
        ("runs", {"metrics": {"rates": [1, "2"]}}, r"metrics\.rates"),
        ("runs", {"metrics": {"divergence_histogram": {"edges": ["a"]}}}, r"metrics\.divergence_histogram"),
        ("runs", {"metrics": {"bounds": [{"temperature": "hot"}]}}, r"metrics\.bounds\.0\.temperature"),
        ("runs", {"predicted": {"accuracy": "1"}}, r"predicted\.accuracy"),
        ("runs", {"metrics": {"accuracy": float("nan")}}, "row 1 of runs holds NaN, which is no number"),
        ("generations", {"seconds": float("inf")}, "row 1 of generations holds Infinity, which is no number"),
        ("runs", {"position": -1}, "position of the run"),
        ("runs", {"prompts_done": -1}, "prompts_done of the run"),
        ("runs", {"decoding_seconds": -0.5}, "decoding_seconds of the run"),
        ("runs", {"losses": {"first": 1}}, "losses"),
        ("runs", {"losses": {"0": "many"}}, r"losses\.0"),
        ("runs", {"provenance": {"versions": "2.0"}}, r"provenance\.versions"),
        ("runs", {"provenance": {"weights": {"target": 5}}}, r"provenance\.weights\.target"),
        ("runs", {"provenance": {"cpu": [[]]}}, r"provenance\.cpu"),
        ("sittings", {"conditions": {"threads": [1]}}, r"conditions\.threads of the run"),
        ("generations", {"position": -3}, "position of prompt -2 of the run"),
        ("generations", {"turn": -1}, "turn of prompt 1 of the run"),
        ("generations", {"outcome": "brilliant"}, "outcome of prompt 1 of the run"),
        ("generations", {"stop_reason": "bored"}, "stop_reason of prompt 1"),
        ("generations", {"tokens": -1}, "tokens of prompt 1"),
        ("generations", {"negative_log_likelihood": 1e308}, "negative_log_likelihood of prompt 1"),
        ("generations", {"seconds": -1.0}, "seconds of prompt 1"),
        ("traces", trace([["a"]]), "the rounds of a text"),
        ("traces", trace({"rounds": 1}), "the rounds of a text"),
        ("traces", trace([[[1], 1, [1], ["guessed"], [0.1], [0.1], [0.1], [0.1], 0.1, 0.0]]), "the rounds of a text"),
    ],
)
def test_values_that_no_page_could_show_are_named(
    value_file: Path, other: Repository, table: str, values: dict[str, Any], told: str
) -> None:
    refused(other, changed(value_file, table, **values), DataDamaged, told)


def test_aliases_of_settings_that_are_not_there_are_refused(value_file: Path, other: Repository) -> None:
    contents = members(value_file)
    setting = json.loads(contents["settings.jsonl"].splitlines()[0])["id"]
    contents["review_log.jsonl"] = contents["review_log.jsonl"].replace(setting.encode(), b"f" * 16)
    told = "the setting ffffffffffffffff, which the use 'chat' names, is not in the file"
    refused(other, packed(value_file.with_name("alias.zip"), honest(contents)), DataDamaged, told)


def test_rounds_that_unpack_to_too_much_are_refused(value_file: Path, other: Repository) -> None:
    data = gzip.compress(b"[" + b" " * 33_000_000 + b"]", mtime=0)
    bomb = {"data": b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}
    refused(other, changed(value_file, "traces", **bomb), DataDamaged, r"cut off, or more than 32,000,000 bytes")


@pytest.mark.parametrize("kind", [stat.S_IFLNK, stat.S_IFDIR, stat.S_IFIFO, stat.S_IFCHR, stat.S_IFBLK, stat.S_IFSOCK])
def test_links_folders_and_devices_in_an_archive_are_refused(value_file: Path, other: Repository, kind: int) -> None:
    def as_kind(info: zipfile.ZipInfo) -> None:
        if info.filename == RUNS:
            info.external_attr = (kind | 0o777) << 16

    told = "it holds a link, a folder or a device"
    refused(other, packed(value_file.with_name("kind.zip"), members(value_file), as_kind), DataDamaged, told)


@pytest.mark.parametrize("name", ["../../evil.txt", "/etc/evil", "runs.jsonl/../../x", "C:\\evil", "note.txt"])
def test_names_that_lead_elsewhere_are_refused(value_file: Path, other: Repository, name: str) -> None:
    path = packed(value_file.with_name("named.zip"), members(value_file))
    with zipfile.ZipFile(path, "a") as out:
        out.writestr(name, "x")
    refused(other, path, DataDamaged, "does not hold the tables that its manifest names")
    assert not list(value_file.parent.rglob("*evil*"))


@pytest.mark.parametrize("method", [zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_other_ways_of_packing_are_refused(value_file: Path, other: Repository, method: int) -> None:
    def with_method(info: zipfile.ZipInfo) -> None:
        info.compress_type = method if info.filename == RUNS else zipfile.ZIP_DEFLATED

    path = packed(value_file.with_name("packed.zip"), members(value_file), with_method)
    refused(other, path, InvalidSetting, "is no export of FSD Lab")


def test_a_member_that_unpacks_to_more_than_it_says_is_refused(value_file: Path, other: Repository) -> None:
    contents = honest(members(value_file))
    contents[RUNS] += b" " * 50_000_000
    refused(
        other,
        packed(value_file.with_name("more.zip"), contents),
        DataDamaged,
        "runs is (longer than|not what) its manif",
    )


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE])
def test_other_archives_are_no_exports_whatever_they_hold(
    value_file: Path, other: Repository, tmp_path: Path, kind: bytes
) -> None:
    with tarfile.open(tmp_path / "links.tar", "w") as out:
        info = tarfile.TarInfo("runs.jsonl")
        info.type, info.linkname = kind, "/etc/passwd"
        out.addfile(info, io.BytesIO())
    refused(other, tmp_path / "links.tar", InvalidSetting, "is no export of FSD Lab")
