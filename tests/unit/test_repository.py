"""Experiments, runs and generations, with names, marks and sittings: written whole, found again."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import event, text, update
from sqlalchemy.orm import Session

from dashboard.tables.logs import changes_html
from dashboard.ui import components
from fsd_core.config import DecodingConfig, Fuzzy, FuzzyReducible, SweepConfig
from fsd_core.errors import (
    DatabaseUnavailable,
    DataDamaged,
    InvalidSetting,
    NotApplicable,
    OutOfRange,
    Overtaken,
    Refused,
    Taken,
    UnknownChoice,
    UnknownName,
    WrongState,
)
from fsd_core.metrics import UNRECORDED
from fsd_core.roles import LOCAL, Person
from fsd_core.settings import sqlite_url
from fsd_core.storage import opening
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.records import Edit, read_tags
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import SettingRow
from fsd_plugins.workspaces.exporting import export
from fsd_plugins.workspaces.importing import import_file
from tests.tools.plausible import add_finished
from tests.tools.tracking_examples import STEP, generation, run_config, sweep


def test_an_experiment_comes_with_its_runs_and_its_job(repository: Repository) -> None:
    asked = sweep("thresholds")
    id = repository.create_experiment(asked)
    found = repository.experiment(id)
    assert (found.name, found.status, found.config) == ("thresholds", "queued", asked)
    assert [run.config for run in found.runs] == asked.runs()
    assert [run.position for run in found.runs] == [0, 1, 2]
    assert [run.position for run in repository.runs()] == [0, 1, 2]  # the newest first, but in their order
    assert (found.prompts_done, found.prompts_total) == (0, 6)
    assert repository.job(found.job_id).payload == {"experiment_id": id}
    again = repository.create_experiment(asked, enqueue=False)
    assert repository.experiment(again).job_id is None
    assert repository.queue_length() == 1
    with repository._database.session(readonly=True) as session:
        assert session.scalar(text("SELECT count(*) FROM settings")) == 3  # the same settings, stored once
    assert [e.id for e in repository.experiments()] == [again, id]
    assert [e.id for e in repository.experiments(limit=1, offset=1)] == [id]


def test_an_experiment_of_a_chosen_id_is_created_once(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    id = "1f" * 16
    with ThreadPoolExecutor(4) as pool:
        assert {*pool.map(lambda _: repository.create_experiment(sweep(), id=id), range(8))} == {id}
    assert (len(repository.experiments(1000)), repository.queue_length()) == (1, 1)
    get, looked = Session.get, iter([True])

    def get_before_the_other_has_written(session: Session, *key: Any) -> object:
        return None if next(looked, False) else get(session, *key)

    monkeypatch.setattr(Session, "get", get_before_the_other_has_written)
    assert repository.create_experiment(sweep(), id=id) == id
    assert next(looked, None) is None
    assert (len(repository.experiments(1000)), repository.queue_length()) == (1, 1)
    job = repository.enqueue(FetchJob("gsm8k"), 5)
    with pytest.raises(Taken):
        repository.create_experiment(sweep(), id=job)
    with pytest.raises(Taken):
        repository.create_experiment(sweep("other content"), id=id)
    assert len(repository.experiments(1000)) == 1


def test_the_status_of_an_experiment_is_that_of_its_work(repository: Repository) -> None:
    id = repository.create_experiment(sweep())
    job = repository.claim(("experiment",), 10)
    first, second, third = repository.experiment(id).runs
    repository.start_run(first.id, {})
    repository.record_generation(first.id, generation())
    found = repository.experiment(id)
    assert (found.status, found.prompts_done, found.decoding_seconds) == ("running", 1, 0.5)
    repository.finish_run(first.id, {"accuracy": 1.0})
    repository.fail_run(second.id, "The weights are missing.")
    repository.finish_run(third.id, {"accuracy": 0.5})
    assert repository.finish_job(job.id, job.claim_token, "finished")
    found = repository.experiment(id)
    assert (found.status, found.error) == ("failed", "The weights are missing.")
    assert found.finished_at == repository.run(third.id).finished_at


def test_what_was_solved_so_far_is_counted_by_run(repository: Repository) -> None:
    first, second, third = repository.experiment(repository.create_experiment(sweep())).runs
    for position, outcome in enumerate(("correct", "wrong", "failed", "correct")):
        repository.record_generation(first.id, generation(position, outcome=outcome))
    repository.record_generation(second.id, generation(0, outcome="unscored"))
    assert repository.scores([first.id, second.id, third.id]) == {first.id: (2, 4)}
    assert repository.scores([]) == {}


def test_a_generation_recorded_twice_is_there_once(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    repository.record_generation(run_id, generation(1, text="first\0"))
    repository.record_generation(run_id, generation(1, text="second"))
    (found,) = repository.generations(run_id)
    assert found.text == "first\ufffd"
    assert repository.run(run_id).prompts_done == 1
    assert repository.done_positions(run_id) == {1}
    assert repository.trace(found.id) == [STEP]


def test_a_generation_is_written_whole_or_not_at_all(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    with repository._database.session() as session:
        session.execute(text("DROP TABLE traces"))
    with pytest.raises(DatabaseUnavailable, match="lacks tables"):
        repository.record_generation(run_id, generation())
    assert repository.generations(run_id) == []
    assert repository.run(run_id).prompts_done == 0


def test_a_damaged_trace_is_told_of(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    repository.record_generation(run_id, generation())
    with repository._database.session() as session:
        session.execute(text("UPDATE traces SET data = x'00'"))
    with pytest.raises(DataDamaged, match="checksum"):
        repository.trace(repository.generations(run_id)[0].id)


@pytest.mark.wide
def test_traces_are_read_in_order_and_keep_nobody_from_writing(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    for position in reversed(range(120)):
        repository.record_generation(run_id, generation(position))
    read = []
    for position, records in repository.traces(run_id):
        repository.record_generation(run_id, generation(1000 + position))
        assert records == [STEP]
        read.append(position)
        if position == 119:
            break
    assert read == list(range(120))


def test_generations_are_filtered_and_paged(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    for position in range(10):
        outcome = "correct" if position % 2 else "wrong"
        repository.record_generation(run_id, generation(position, text=f"100% of {position}", outcome=outcome))
    assert [g.position for g in repository.generations(run_id, outcome="wrong", limit=2, offset=1)] == [2, 4]
    assert [g.position for g in repository.generations(run_id, search="OF 7")] == [7]
    assert repository.count_generations(run_id, search="0%") == 10
    assert repository.count_generations(run_id, search="0_") == 0  # no wildcard
    assert repository.count_generations(run_id, outcome="wrong") == 5


def test_the_end_of_a_run_is_final(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    repository.start_run(run_id, {"device": "cpu"})
    started = repository.run(run_id).started_at
    repository.start_run(run_id, {"device": "cpu"})  # after a lost worker
    assert repository.run(run_id).started_at == started
    repository.finish_run(run_id, {"accuracy": float("nan"), "tokens": 3})
    repository.cancel_run(run_id)
    repository.fail_run(run_id, "too late")
    found = repository.run(run_id)
    assert (found.status, found.error, found.metrics) == ("finished", None, {"accuracy": None, "tokens": 3})
    with pytest.raises(WrongState):
        repository.start_run(run_id, {})


@pytest.mark.wide
def test_hundreds_of_runs_are_found_with_two_queries(repository: Repository) -> None:
    ids = []
    for i in range(300):
        run_id = repository.create_run(run_config(threshold=0.01 * (i % 30), seed=i))
        if i % 3:
            repository.finish_run(run_id, {"accuracy": i / 300})
        ids.append(run_id)
    statements = []
    event.listen(repository._database.engine, "before_cursor_execute", lambda *args: statements.append(args[2]))
    best = repository.runs(order_by="accuracy", limit=100)
    assert len([s for s in statements if s.startswith("SELECT")]) == 2  # runs, and their sittings
    assert [run.metrics["accuracy"] for run in best] == sorted((i / 300 for i in range(300) if i % 3), reverse=True)[
        :100
    ]
    worst = repository.runs(order_by="accuracy", descending=False, limit=None)
    assert worst[0].metrics == {"accuracy": 1 / 300}
    assert worst[-1].metrics is None  # runs without a value come last either way
    assert [run.seed for run in repository.runs(order_by="seed", descending=False, limit=3, offset=10)] == [10, 11, 12]
    assert repository.count_runs(status="queued") == 100
    assert repository.count_runs(status="queued", pair="bundled", task="arithmetic", acceptance="fsd-reducible") == 100
    assert repository.count_runs(acceptance="speculative") == 0
    assert {run.decoding.acceptance for run in repository.runs(search="js 0.29")} == {FuzzyReducible(threshold=0.29)}
    assert [run.id for run in repository.runs(search=ids[5])] == [ids[5]]
    assert {run.id for run in repository.runs(ids[:2])} == set(ids[:2])
    assert repository.runs([]) == []
    assert len(repository.unsynced_runs()) == 200
    with pytest.raises(UnknownChoice, match="secret"):
        repository.runs(order_by="secret")


@pytest.mark.wide
def test_runs_of_an_experiment_are_found_by_its_name(repository: Repository) -> None:
    id = repository.create_experiment(sweep("Tuesday 100%"))
    repository.create_experiment(sweep("Wednesday"))
    assert {run.experiment_name for run in repository.runs(search="tuesday 100%")} == {"Tuesday 100%"}
    assert repository.count_runs(experiment_id=id) == 3


def test_unknown_ids_are_told_of(repository: Repository) -> None:
    for ask in (repository.run, repository.experiment, repository.job, repository.cancel_run):
        with pytest.raises(UnknownName):
            ask("nobody")
    with pytest.raises(UnknownName):
        repository.record_generation("nobody", generation())
    with pytest.raises(OutOfRange, match="255"):
        repository.create_experiment(sweep("x" * 256))


def test_threads_take_turns(repository: Repository) -> None:
    run_id = repository.create_run(run_config())
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: repository.record_generation(run_id, generation(i % 20)), range(40)))
    assert repository.run(run_id).prompts_done == 20


def test_an_infinite_threshold_is_kept(repository: Repository) -> None:
    decoding = DecodingConfig(acceptance=Fuzzy(divergence="kl", threshold=math.inf))
    experiment = repository.experiment(repository.create_experiment(SweepConfig(decodings=(decoding,))))
    assert experiment.config.decodings == (decoding,)
    assert experiment.runs[0].decoding == decoding


def test_a_setting_is_called_what_this_version_calls_it_when_it_is_run_again(repository: Repository) -> None:
    before = repository.create_run(run_config())
    with repository._database.session() as session:
        session.execute(update(SettingRow).values(label="as earlier"))
    assert repository.run(before).label == "as earlier"
    repository.create_run(run_config(seed=1))
    assert repository.run(before).label == "FSD reducible · js ≤ 0.1 · γ 5"


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


@pytest.fixture
def run(repository: Repository) -> str:
    return repository.experiment(add_finished(repository, limit=3)).runs[0].id


def told(repository: Repository, run: str) -> list[tuple[int, str, str | None, str]]:
    return [(mark.position, mark.who, mark.verdict, mark.note) for mark in repository.marks([run])]


def test_each_person_has_one_mark_on_an_output(repository: Repository, run: str) -> None:
    repository.mark(run, 1, "Ann", "good")
    repository.mark(run, 1, "Bob", "bad", "wrong unit")
    repository.mark(run, 1, "Ann", None, "on second thoughts")
    assert sorted(told(repository, run)) == [(1, "Ann", None, "on second thoughts"), (1, "Bob", "bad", "wrong unit")]
    repository.mark(run, 1, "Bob", None)
    repository.mark(run, 2, "Bob", None)
    assert told(repository, run) == [(1, "Ann", None, "on second thoughts")]
    assert repository.marks(["0" * 32]) == []


def test_what_is_no_output_or_no_mark_is_refused(repository: Repository, run: str) -> None:
    for output in ((run, 3), (run, -1), ("0" * 32, 0)):
        with pytest.raises(UnknownName):
            repository.mark(*output, "Ann", "good")
    with pytest.raises(UnknownChoice, match="good or bad"):
        repository.mark(run, 0, "Ann", "<script>")
    with pytest.raises(OutOfRange, match="10,001"):
        repository.mark(run, 0, "Ann", None, "x" * 10_001)
    assert told(repository, run) == []


def test_marks_go_with_their_run(repository: Repository, run: str) -> None:
    repository.mark(run, 0, "Ann", "bad")
    repository.delete_run(run)
    assert repository.marks([run]) == []


GOLDEN = Path(__file__).parents[1] / "golden" / "database.sql"
TWO, ONE = {"device": "cpu", "threads": 2}, {"device": "cpu", "threads": 1}


def stored(repository: Repository) -> int:
    with repository._database.session(readonly=True) as session:
        return session.scalar(text("SELECT count(*) FROM sittings")) or 0


def test_the_same_conditions_are_one_sitting_and_others_another(repository: Repository) -> None:
    id = repository.create_run(run_config())
    for position, conditions in enumerate((TWO, TWO, ONE, TWO, ONE)):
        repository.record_generation(id, generation(position), conditions)
    run = repository.run(id)
    assert [sitting.conditions for sitting in run.measurement_sessions] == [TWO, ONE]
    assert all(sitting.started_at for sitting in run.measurement_sessions)
    first, second = (sitting.id for sitting in run.measurement_sessions)
    assert repository.session_positions(id) == {first: [0, 1, 3], second: [2, 4]}
    assert [g.sitting_id for g in repository.generations(id)] == [first, first, second, first, second]
    assert run.speed_mixed == ("number of threads",)


def test_a_generation_that_is_recorded_twice_makes_no_sitting(repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, generation(0), TWO)
    repository.record_generation(id, generation(0), ONE)
    assert [sitting.conditions for sitting in repository.run(id).measurement_sessions] == [TWO]


def test_a_prompt_that_was_set_aside_has_no_sitting_and_mixes_nothing(repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, replace(generation(0, outcome="failed"), seconds=0.0))
    repository.record_generation(id, generation(1), TWO)
    assert repository.run(id).speed_mixed == ()
    assert repository.generations(id)[0].sitting_id is None


def test_a_sitting_goes_with_the_last_of_its_prompts(repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, generation(0), TWO)
    repository.record_generation(id, generation(1, outcome="failed"), ONE)
    repository.finish_run(id, {"failed": 1})
    repository.reopen_runs([id])
    assert [sitting.conditions for sitting in repository.run(id).measurement_sessions] == [TWO]
    repository.record_generation(id, generation(1), TWO)
    assert repository.run(id).speed_mixed == ()


def test_sittings_go_with_their_run(repository: Repository) -> None:
    id = repository.create_experiment(sweep(), enqueue=False)
    first, *others = (run.id for run in repository.experiment(id).runs)
    for run in (first, *others):
        repository.record_generation(run, generation(0), TWO)
        repository.record_generation(run, generation(1), ONE)
    assert [len(run.measurement_sessions) for run in repository.experiment(id).runs] == [2, 2, 2]
    repository.delete_run(first)
    assert stored(repository) == 4
    repository.delete_experiment(id)
    assert stored(repository) == 0


def test_of_former_prompts_no_sitting_is_known_until_their_run_goes_on(tmp_path: Path) -> None:
    file = tmp_path / "fsd.db"
    with sqlite3.connect(file) as old:
        old.executescript(GOLDEN.read_text(encoding="utf-8"))
    old.close()
    upgrade(sqlite_url(file))
    with sqlite3.connect(file) as now:
        assert now.execute("PRAGMA foreign_key_check").fetchall() == []
        assert now.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    now.close()
    database = open_database(sqlite_url(file))
    repository = Repository(database)
    runs = repository.runs(limit=10)
    assert stored(repository) == 0
    assert {(run.measurement_sessions, run.speed_mixed) for run in runs} == {((), ())}
    assert all(run.provenance and run.conditions[0]["threads"] for run in runs)  # for what is compared with others
    id = runs[0].id
    former = [g.position for g in repository.generations(id)]
    with database.session() as session:
        session.execute(text("UPDATE runs SET status = 'running' WHERE id = :id"), {"id": id})
    repository.record_generation(id, generation(9), TWO)
    repository.record_generation(id, generation(10), TWO)
    run = repository.run(id)
    assert [sitting.conditions for sitting in run.measurement_sessions] == [{}, TWO]
    assert list(repository.session_positions(id).values()) == [former, [9, 10]]
    assert run.speed_mixed == (UNRECORDED,)
    database.close()


def test_the_migration_can_be_undone(tmp_path: Path, repository: Repository) -> None:
    id = repository.create_run(run_config())
    repository.record_generation(id, generation(0), TWO)
    with repository._database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
        command.downgrade(opening.config(connection), "0002")
        assert "sitting_id" not in {row[1] for row in connection.exec_driver_sql("PRAGMA table_info(generations)")}
        assert connection.exec_driver_sql("SELECT count(*) FROM generations").scalar() == 1


def test_the_columns_are_added_without_copying_the_texts(tmp_path: Path) -> None:
    """A table that is rebuilt gets its definition anew; one that is altered keeps it, and its texts where they are."""
    file = tmp_path / "fsd.db"
    with sqlite3.connect(file) as old:
        old.executescript(GOLDEN.read_text(encoding="utf-8"))
        before = old.execute("SELECT rootpage FROM sqlite_master WHERE name = 'generations'").fetchone()
    old.close()
    upgrade(sqlite_url(file))
    with sqlite3.connect(file) as now:
        assert now.execute("SELECT rootpage FROM sqlite_master WHERE name = 'generations'").fetchone() == before
    now.close()


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"seconds": float("nan")}, "The value seconds of prompt 1 is nan: expected a finite number."),
        ({"tokens": -1}, "The value tokens of prompt 1 is -1: expected at least 0."),
        ({"energy": 1e16}, "The value energy of prompt 1 is 1e+16: expected at most 1e+15."),
        ({"outcome": "brilliant"}, "The value outcome of prompt 1 is 'brilliant': expected 'correct', 'wrong', "),
        ({"stop_reason": "bored"}, "The value stop_reason of prompt 1 is 'bored': expected 'eos', 'length', "),
    ],
)
def test_what_no_import_would_take_is_not_recorded(repository: Repository, values: dict[str, Any], told: str) -> None:
    id = repository.create_run(run_config())
    repository.start_run(id, {})
    with pytest.raises(InvalidSetting, match=re.escape(told)):
        repository.record_generation(id, replace(generation(0), **values))
    assert (repository.run(id).prompts_done, repository.generations(id)) == (0, [])
