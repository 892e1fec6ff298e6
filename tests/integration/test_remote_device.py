"""A device that is lent for each call, and the pairs that stay in its memory."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Generator, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import pytest

from fsd_core.config import DecodingConfig
from fsd_core.errors import DeviceUnavailable, InsufficientMemory, UnknownName
from fsd_core.evaluation.runner import execute_runs
from fsd_core.metrics import EXECUTOR, SHARED_EXECUTOR
from fsd_core.models.loading import load_pair
from fsd_core.storage.messages import BoundsJob, PlaygroundJob
from fsd_core.tasks import get_task
from fsd_core.tasks.custom.custom_task import CustomTask, keep
from fsd_core.tasks.custom.reading import check
from fsd_core.testing import save_toy_pair, toy_pair
from fsd_core.worker import device, lent_gpu, remote_device
from fsd_core.worker.device import PairCache
from fsd_core.worker.remote_device import (
    Call,
    DescribeCall,
    Failed,
    PairRef,
    PlaygroundCall,
    RemoteDevice,
    RemoteGenerator,
    RunBatch,
    RunSlice,
    WrittenPrompt,
    answer,
)
from fsd_core.worker.worker import Worker
from tests.tools.sizes import PATIENCE, some
from tests.tools.worker_process import Home, until

TAKEN_BACK = DeviceUnavailable("taken back")
visitor: ContextVar[str] = ContextVar("visitor", default="nobody")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.close()


class Lender:
    """Each call ends after as many answers as it is told, with an error if there is one; calls after those end well."""

    def __init__(self, *calls: tuple[int, Exception | None]) -> None:
        self.calls, self.slices = list(calls), []

    def ask(self, call: Call) -> Generator[Any]:
        assert isinstance(call, RunSlice)
        self.slices.append(call)
        most, error = self.calls.pop(0) if self.calls else (-1, None)
        for number, found in enumerate(answer(call, "cpu", None)):
            if number == most:
                break
            yield found
        if error is not None:
            raise error


def describe(where: PairRef) -> dict[str, Any]:
    return next(answer(DescribeCall(where), "cpu", None)) | {EXECUTOR: "a lender"}


def runs_of(home: Home, limit: int) -> tuple[str, list[str]]:
    experiment = home.repository.create_experiment(home.sweep(limit), enqueue=False)
    return experiment, [run.id for run in home.repository.experiment(experiment).runs]


@pytest.mark.wide
def test_slices_write_what_one_process_writes(home: Home) -> None:
    lent, ids = runs_of(home, 4)
    lender = Lender((3, None), (1, None), (4, None))
    execute_runs(home.repository, ids, RemoteGenerator(lender.ask, describe))
    assert [len(one.batches) for one in lender.slices] == [12, 9, 8, 4]  # the rest of the plan each time
    own, others = runs_of(home, 4)
    execute_runs(home.repository, others, lambda name, *_: load_pair(name, "cpu"))
    assert home.written(lent) == home.written(own)
    for run in home.repository.experiment(lent).runs:
        assert (run.status, run.prompts_done, run.speed_mixed) == ("finished", 4, (SHARED_EXECUTOR,))


def test_a_call_brings_tasks_of_ones_own_along(home: Home) -> None:
    """The process that writes has no database, and is given values that travel by pickle."""
    content = "".join(f'{{"prompt": "{n} apples", "reference": {n}}}\n' for n in range(4)).encode()
    kept = keep(home.repository, CustomTask.of("mine", check(content, "contains")), "Ann")
    lender, config = Lender((2, None)), home.sweep(3).model_copy(update={"task": kept.full_name})
    experiment = home.repository.create_experiment(config, enqueue=False)
    ids = [run.id for run in home.repository.experiment(experiment).runs]
    execute_runs(
        home.repository, ids, RemoteGenerator(lambda call: lender.ask(pickle.loads(pickle.dumps(call))), describe)
    )
    assert len(lender.slices) == 2
    for run in ids:
        written = home.repository.generations(run)
        assert [(one.prompt, one.reference) for one in written] == [(f"{n} apples", str(n)) for n in range(3)]
        assert {one.outcome for one in written} <= {"correct", "wrong", "truncated"}


@pytest.mark.parametrize("batch", some([1, 2], 2))
def test_a_call_continues_the_conversations_that_it_or_an_earlier_one_began(
    home: Home, tmp_path: Path, batch: int
) -> None:
    pair = toy_pair()
    pair.tokenizer.chat_template = "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    for role, model in (("target", pair.target), ("draft", pair.draft)):
        model.module.save_pretrained(tmp_path / "m" / role)
        pair.tokenizer.save_pretrained(tmp_path / "m" / role)
    content = b'{"turns": ["One?", "Two?", "Three?"]}\n{"turns": ["A?", "B?"]}\n'
    kept = keep(home.repository, CustomTask.of("chats", check(content)), "Ann")
    told = {"task": kept.full_name, "pair": f"path:{tmp_path / 'm'}", "batch": batch}
    config = home.sweep(5).model_copy(update=told)

    def begin() -> tuple[str, list[str]]:
        experiment = home.repository.create_experiment(config, enqueue=False)
        return experiment, [run.id for run in home.repository.experiment(experiment).runs]

    (lent, ids), (own, others) = begin(), begin()
    lender = Lender((4, None), (2, None))
    execute_runs(
        home.repository, ids, RemoteGenerator(lambda call: lender.ask(pickle.loads(pickle.dumps(call))), describe)
    )
    execute_runs(home.repository, others, lambda name, *_: load_pair(name, "cpu"))
    assert home.written(lent) == home.written(own)
    assert len(home.written(lent)) == 5 * len(ids)
    assert lender.slices[1].batches[0].asked or lender.slices[2].batches[0].asked  # within a conversation
    for run in home.repository.experiment(lent).runs:
        assert run.status == "finished"


def test_a_device_that_is_taken_back_is_asked_for_again_while_it_brings_something(home: Home) -> None:
    lent, ids = runs_of(home, 3)
    lender = Lender((2, TAKEN_BACK), (3, TAKEN_BACK))
    execute_runs(home.repository, ids, RemoteGenerator(lender.ask, describe))
    assert len(lender.slices) == 3
    assert len(home.written(lent)) == 9


@pytest.mark.parametrize("error", some([TAKEN_BACK, None], TAKEN_BACK))
def test_a_call_that_brings_nothing_leaves_the_rest_to_be_continued(home: Home, error: Exception | None) -> None:
    lent, ids = runs_of(home, 3)
    with pytest.raises(DeviceUnavailable):
        execute_runs(home.repository, ids, RemoteGenerator(Lender((2, None), (0, error)).ask, describe))
    assert len(home.written(lent)) == 2
    assert not any(run.ended for run in home.repository.experiment(lent).runs)
    execute_runs(home.repository, ids, RemoteGenerator(Lender().ask, describe))
    assert len(home.written(lent)) == 9


def test_what_goes_wrong_with_one_run_fails_that_run_alone(home: Home) -> None:
    """In the process that writes: here a run whose task is gone when it looks."""
    lent, ids = runs_of(home, 2)

    def ask(call: Call) -> Generator[Any]:
        assert isinstance(call, RunSlice)
        broken = [RunBatch(**vars(one) | {"task": "gone"}) if one.run_id == ids[1] else one for one in call.batches]
        return answer(RunSlice(tuple(broken)), "cpu", None)

    execute_runs(home.repository, ids, RemoteGenerator(ask, describe))
    runs = home.repository.experiment(lent).runs
    assert [run.status for run in runs] == ["finished", "failed", "finished"]
    assert "gone" in (runs[1].error or "")


def test_a_slice_ends_when_its_time_is_over_but_not_before_its_first_piece(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, ids = runs_of(home, 2)
    generator = RemoteGenerator(Lender().ask, describe)
    generator.plan([(home.repository.run(id), [position]) for position in (0, 1) for id in ids])
    examples = dict(enumerate(get_task("arithmetic").examples(2)))
    pieces = generator._next_batches(home.repository.run(ids[0]), [0], examples)
    assert [(piece.run_id, piece.positions) for piece in pieces[:2]] == [(ids[0], (0,)), (ids[1], (0,))]
    assert len(pieces) == 6
    found = list(answer(RunSlice(pieces), "cpu", 1e-6))
    assert [type(one) for one in found] == [WrittenPrompt]
    settings = home.sweep(1, tokens=60).decodings[:1]
    asked = PlaygroundJob.of(home.pair, "Ava has 3 apples.", 1, settings)
    monkeypatch.setattr(remote_device.playground, "FLUSH_SECONDS", 0.0)
    *written, last = answer(PlaygroundCall(PairRef(home.pair), asked, ()), "cpu", 1e-6)
    assert len(written) == 1
    assert isinstance(last, Failed)
    assert "FSD_GPU_SECONDS" in last.sentence


@pytest.mark.wide
def test_the_worker_works_as_a_thread_where_nothing_is_lent(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPACES_ZERO_GPU", raising=False)
    worker = Worker(home.settings, RemoteDevice)
    thread = threading.Thread(target=worker.run_as_thread)
    thread.start()
    try:
        experiment = home.repository.create_experiment(home.sweep(1, tokens=8))
        assert home.until_done(home.job_of(experiment)) == "finished"
        job = PlaygroundJob.of(home.pair, "Ava has 3 apples.", 1, home.sweep(1).decodings[:2])
        asked = home.repository.enqueue(job, priority=10)
        assert home.until_done(asked) == "finished"
        assert sum(chunk.done for _, chunk in home.repository.chunks(asked)) == 2
        unknown = PlaygroundJob.of("no such pair", "x", 1, [DecodingConfig()])
        failed = home.repository.enqueue(unknown, priority=10)
        assert home.until_done(failed) == "failed"
        assert "no such pair" in (home.repository.job(failed).error or "")
        run = home.repository.experiment(experiment).runs[1]
        assert [sitting.conditions[EXECUTOR] for sitting in run.measurement_sessions] == ["the web process"]
        bounds = home.repository.enqueue(BoundsJob(run.id, 1.0), priority=10)
        assert home.until_done(bounds) == "finished"
        metrics = home.repository.run(run.id).metrics
        assert metrics["bounds"][0]["positions"] == metrics["tokens"]
        until(lambda: (found := home.repository.worker()) and found.device == "the web process", "its heartbeat")
    finally:
        worker.stop()
        thread.join(PATIENCE)
    assert not thread.is_alive()


def test_a_gpu_is_asked_for_in_the_context_of_who_asked_while_that_is_good(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lent_gpu, "_contexts", None)
    lent_gpu.remember_requester("before anybody keeps them")
    assert lent_gpu.context_of("before anybody keeps them").run(visitor.get) == "nobody"
    lent_gpu.store_contexts()
    token = visitor.set("Ann")
    lent_gpu.remember_requester("job")
    visitor.reset(token)
    assert lent_gpu.context_of("job").run(visitor.get) == "Ann"
    assert lent_gpu.context_of("other").run(visitor.get) == "nobody"
    moment = lent_gpu.time.monotonic() + lent_gpu.GOOD_FOR + 1
    monkeypatch.setattr(lent_gpu.time, "monotonic", lambda: moment)
    assert lent_gpu.context_of("job").run(visitor.get) == "nobody"


@pytest.fixture
def names(tmp_path: Path) -> list[str]:
    return [save_toy_pair(tmp_path / letter, seed=i) for i, letter in enumerate("abcd")]


def test_pairs_stay_while_there_is_room(names: list[str]) -> None:
    pairs = PairCache("cpu")
    loaded = [pairs(name) for name in names[:3]]
    assert [pairs(name) for name in names[:3]] == loaded  # LoadedPair compares by its models, which compare by identity
    assert all(pairs(name).target is pair.target for name, pair in zip(names, loaded, strict=False))
    pairs(names[0])
    pairs(names[3])  # one too many: b has waited longest
    assert pairs(names[0]).target is loaded[0].target
    assert pairs(names[2]).target is loaded[2].target
    assert pairs(names[1]).target is not loaded[1].target


def test_a_pair_that_does_not_fit_beside_others_evicts_them(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pairs, room = PairCache("cpu"), 1.2e9  # each needs half a gigabyte and a little

    def free(device: object) -> float:
        return room - 0.5e9 * len(pairs._pairs)

    monkeypatch.setattr("fsd_core.models.load_failures.free_bytes", free)
    first, second = pairs(names[0]), pairs(names[1])
    assert pairs(names[1]).target is second.target
    assert pairs(names[0]).target is first.target
    third = pairs(names[2])
    assert pairs(names[0]).target is first.target
    assert pairs(names[2]).target is third.target
    assert len(pairs._pairs) == 2
    room = 0.4e9
    with pytest.raises(InsufficientMemory, match="needs about"):
        pairs(names[3])


def test_what_cannot_be_loaded_leaves_the_others(names: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    pairs = PairCache("cpu")
    first = pairs(names[0])
    with pytest.raises(UnknownName):
        pairs("nobody")
    assert pairs(names[0]).target is first.target
    assert pairs(names[0], dtype="bfloat16").target is not first.target
    asked = []
    monkeypatch.setattr(device, "load_pair", lambda *key: asked.append(key) or first)
    PairCache("cpu")(names[0], "cuda:1")
    assert asked[0][:3] == (names[0], "cuda:1", "auto")
