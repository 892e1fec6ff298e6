"""Names, notes, tags and archiving: kept, searched, logged, and never lost where two people edit at once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlalchemy import text

from dashboard.tables.logs import changes_html
from dashboard.ui import components
from fsd_core.errors import InvalidSetting, NotApplicable, Overtaken, Refused, Taken, UnknownName
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import sqlite_url
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import Edit, read_tags
from fsd_core.storage.repository import Repository
from fsd_core.storage.workspace_export import export
from fsd_core.storage.workspace_import import import_file
from tests.tools.tracking_examples import generation, run_config, sweep

Call = Callable[..., tuple[int, str, str]]
ANN, BOB = Person("Ann", "author"), Person("Bob", "author")


@pytest.fixture
def ended(repository: Repository) -> str:
    """The id of an experiment that has ended."""
    id = repository.create_experiment(sweep(), enqueue=False)
    for run in repository.experiment(id).runs:
        repository.record_generation(run.id, generation())
        repository.finish_run(run.id, {"accuracy": 1.0})
    return id


def test_what_is_said_is_kept_and_found(repository: Repository, ended: str) -> None:
    run = repository.experiment(ended).runs[1].id
    assert repository.annotate("run", run, Edit(note="odd\0 <b>", tags=read_tags("slow, ünï slow")), ANN)
    assert repository.annotate("experiment", ended, Edit(name=" Better name ", tags=("keep",)), BOB, 0)
    assert not repository.annotate("experiment", ended, Edit(tags=("keep",)), BOB, 1)
    view = repository.run(run)
    assert (view.note, view.tags, view.edits, view.experiment_name) == ("odd� <b>", ("slow", "ünï"), 1, "Better name")
    assert repository.experiment(ended).edits == 1
    assert [found.id for found in repository.runs(search="ünï")] == [run]
    assert repository.count_runs(search="keep fsd") == 2  # a tag of the experiment is its runs', too
    assert repository.count_runs(search="odd") == 1
    log = repository.changes(experiment_id=ended, limit=9)
    assert [(c.who, c.role, c.kind, c.act, sorted(c.change)) for c in log] == [
        ("Bob", "author", "experiment", "changed", ["name", "tags"]),
        ("Ann", "author", "run", "changed", ["note", "tags"]),
    ]
    assert log[0].change["name"] == ["first", "Better name"]
    assert "renamed it from “first” to “Better name”" in changes_html(log, "History")
    assert "<b>" not in changes_html(log, "History")


def test_what_is_saved_again_because_the_answer_was_lost_is_no_conflict(repository: Repository, ended: str) -> None:
    assert repository.annotate("experiment", ended, Edit(note="Ann's"), ANN, 0)
    assert not repository.annotate("experiment", ended, Edit(note="Ann's"), ANN, 0)
    assert len(repository.changes(experiment_id=ended, limit=9)) == 1


def test_of_two_who_edit_at_once_one_is_told_and_nothing_is_lost(repository: Repository, ended: str) -> None:
    repository.annotate("experiment", ended, Edit(note="Ann's"), ANN, 0)
    with pytest.raises(Overtaken, match="Ann"):
        repository.annotate("experiment", ended, Edit(note="Bob's"), BOB, 0)
    assert repository.experiment(ended).note == "Ann's"
    repository.annotate("experiment", ended, Edit(note="Bob's"), BOB, 1)
    assert repository.changes(subject=ended, limit=1)[0].change["note"] == ["Ann's", "Bob's"]


def test_archived_things_leave_lists_and_stay_behind_links(repository: Repository, ended: str) -> None:
    alone = repository.create_run(run_config(seed=3))
    repository.annotate("experiment", ended, Edit(archived=True), ANN)
    assert [run.id for run in repository.runs(archived=False)] == [alone]
    assert repository.count_runs() == 4
    assert [run.id for run in repository.run_names(9)] == [alone]
    assert repository.experiment_names(9) == []
    assert repository.experiments(archived=False) == []
    assert repository.experiments()[0].archived
    assert repository.run(repository.experiment(ended).runs[0].id).experiment_id == ended
    repository.annotate("experiment", ended, Edit(archived=False), ANN)
    repository.annotate("run", alone, Edit(archived=True), ANN)
    assert repository.count_runs(archived=False) == 3
    assert repository.count_runs(archived=True) == 1


def test_deletions_are_logged_and_the_log_only_grows(repository: Repository, ended: str, home: Path) -> None:
    first, *_ = (run.id for run in repository.experiment(ended).runs)
    with pytest.raises(Refused, match="admin"):
        components.perform(repository, home, ANN, "delete", "run", first)
    with pytest.raises(Refused, match="Archiving"):
        components.perform(repository, home, Person("Eve", "viewer"), "archive", "run", first)
    components.perform(repository, home, ANN, "archive", "run", first)
    components.perform(repository, home, Person("Root", "admin"), "delete", "run", first)
    repository.delete_experiment(ended)
    assert [(c.who, c.kind, c.act) for c in repository.changes(experiment_id=ended, limit=9)] == [
        (LOCAL.name, "experiment", "deleted"), ("Root", "run", "deleted"), ("Ann", "run", "changed"),
    ]  # fmt: skip
    assert repository.changes(subject=ended, limit=1)[0].change == {"name": "first", "runs": 2, "prompts": 2}
    before = repr(repository.changes(limit=9))
    for statement in (
        "UPDATE change_log SET who = 'Eve'", "DELETE FROM change_log",
        "INSERT OR REPLACE INTO change_log SELECT * FROM change_log",
    ):  # fmt: skip
        with pytest.raises(Exception, match="the log of changes only grows"), repository._database.session() as session:
            session.execute(text(statement))
    assert repr(repository.changes(limit=9)) == before


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Edit(name="  "), "needs a name"),
        (lambda: Edit(name="x" * 256), "has 256 characters"),
        (lambda: Edit(note="x" * 10_001), "10,001 characters"),
        (lambda: read_tags("x" * 31), "expected 1 to 30 characters"),
        (lambda: read_tags("a\x1bb"), "expected 1 to 30 characters"),
        (lambda: read_tags(" ".join(map(str, range(13)))), "There are 13 tags"),
    ],
)
def test_what_cannot_be_kept_is_refused(make: Callable[[], object], told: str) -> None:
    with pytest.raises(InvalidSetting, match=told):
        make()


def test_tags_are_single_words_each_once() -> None:
    assert read_tags(" #b, a  a,,B ") == ("a", "b")
    assert read_tags("") == ()


def test_a_run_has_no_name_of_its_own(repository: Repository, ended: str) -> None:
    with pytest.raises(NotApplicable):
        repository.annotate("run", repository.experiment(ended).runs[0].id, Edit(name="x"), ANN)
    with pytest.raises(UnknownName, match="run"):
        repository.annotate("run", "f" * 32, Edit(note="x"), ANN)


@pytest.mark.wide
def test_what_was_said_travels_and_goes_on(
    repository: Repository, ended: str, database_url: str, tmp_path: Path
) -> None:
    url = sqlite_url(tmp_path / "other.db")
    upgrade(url)
    other = Repository(open_database(url))
    repository.annotate("experiment", ended, Edit(name="Two", tags=("a",)), ANN)
    export(database_url, tmp_path / "1.zip", tmp_path)
    import_file(other._database, tmp_path / "1.zip", tmp_path)
    assert other.experiment(ended).name == "Two"
    repository.annotate("experiment", ended, Edit(note="later", archived=True), ANN)
    export(database_url, tmp_path / "2.zip", tmp_path)
    for run in other.experiment(ended).runs:
        other.mark_synced(run, "copy")
    import_file(other._database, tmp_path / "2.zip", tmp_path)
    assert other.unsynced_runs() == []  # the name is as before
    import_file(other._database, tmp_path / "1.zip", tmp_path)  # an earlier one takes nothing back
    found = other.experiment(ended)
    assert (found.name, found.note, found.archived, found.edits) == ("Two", "later", True, 2)
    assert repr(other.changes(limit=9)) == repr(repository.changes(limit=9))
    repository.annotate("experiment", ended, Edit(name="Three"), ANN)
    export(database_url, tmp_path / "renamed.zip", tmp_path)
    import_file(other._database, tmp_path / "renamed.zip", tmp_path)
    assert {run.experiment_name for run in other.unsynced_runs()} == {"Three"}
    other.annotate("experiment", ended, Edit(note="here"), BOB)
    repository.annotate("experiment", ended, Edit(note="there"), ANN)
    export(database_url, tmp_path / "3.zip", tmp_path)
    with pytest.raises(Taken, match=f"the experiment {ended} has another history"):
        import_file(other._database, tmp_path / "3.zip", tmp_path)
    repository.delete_experiment(ended)
    export(database_url, tmp_path / "4.zip", tmp_path)
    import_file(other._database, tmp_path / "4.zip", tmp_path)
    assert other.experiment(ended).note == "here"  # what was deleted there alone stays here
    other._database.close()


def test_the_command(call: Call, repository: Repository, ended: str) -> None:
    status, out, _ = call("annotate", ended[:8], "--name", "New", "--note", "good", "--tag", "b", "--tag", "a")
    assert (status, out.splitlines()[1:]) == (0, ["Note: good", "Tags: a b", "Archived: no"])
    status, out, _ = call("annotate", ended, "--untag", "b", "--archive", "--json")
    said = {"experiment_id": ended, "name": "New", "note": "good", "tags": ["a"], "archived": True}
    assert (status, json.loads(out)) == (0, said)
    assert call("runs")[1] == ""
    assert len(call("runs", "--archived")[1].splitlines()) == 4
    run = repository.experiment(ended).runs[0].id
    status, _, err = call("annotate", run, "--name", "x")
    assert (status, "called by its setting" in err) == (2, True)
    status, _, err = call("annotate", run, "--tag", "x" * 40)
    assert (status, "expected 1 to 30 characters" in err) == (2, True)
    assert call("annotate", run)[1].endswith("Note: none\nTags: none\nArchived: no\n")
