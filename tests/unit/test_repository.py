"""Experiments, runs and generations: written whole, found again."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import event, text, update
from sqlalchemy.orm import Session

from fsd_core.config import DecodingConfig, Fuzzy, FuzzyReducible, SweepConfig
from fsd_core.errors import DatabaseUnavailable, DataDamaged, OutOfRange, Taken, UnknownChoice, UnknownName, WrongState
from fsd_core.storage.messages import FetchJob
from fsd_core.storage.repository import Repository
from fsd_core.storage.tables import SettingRow
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
