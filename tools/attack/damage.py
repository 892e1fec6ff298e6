"""Damaged bytes: a database with some bytes changed at random is read and written through every door of the repository.

Whatever the damage, the answer is a value or a sentence. ``python -m tools.attack.damage --trials 300``
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from fsd_core.errors import FsdError
from fsd_core.settings import sqlite_url
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.storage.opening import open_database, upgrade
from fsd_core.storage.repository import Repository
from tests.tools.tracking_examples import chunk, generation, playground_job, sweep


def filled(path: Path) -> None:
    """A database with two experiments, jobs and a stream."""
    upgrade(sqlite_url(path))
    database = open_database(sqlite_url(path))
    repository = Repository(database)
    for name in ("first", "second"):
        id = repository.create_experiment(sweep(name))
        for run in repository.experiment(id).runs:
            repository.start_run(run.id, {"device": "cpu"})
            for position in range(2):
                repository.record_generation(run.id, generation(position), {"device": "cpu", "threads": 1 + position})
            repository.finish_run(run.id, {"accuracy": 0.5, "n": 2})
    job = repository.enqueue(playground_job(), priority=1)
    repository.append_chunks(job, [chunk(1, 2)] * 3)
    repository.report_worker(1, "host", "cpu", "idle")
    database.close()


def uses(repository: Repository) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every way of reading, and some of writing."""
    runs: list[str] = []

    def all_runs() -> None:
        runs.extend(run.id for run in repository.runs(limit=None))

    def claim() -> None:
        job = repository.claim(("experiment", "playground"), 10)
        if job is not None and job.kind == PlaygroundJob.kind:
            repository.chunks(job.id)
            PlaygroundJob.read(job.payload)

    yield "runs", all_runs
    yield "sorted", lambda: repository.runs(order_by="accuracy")
    yield "search", lambda: repository.runs(search="first fsd")
    yield "counts", lambda: (repository.count_runs(), len(repository.experiments(1000)), repository.queue_length())
    yield "experiments", lambda: repository.experiments()
    yield "unsynced", lambda: repository.unsynced_runs()
    yield "worker", lambda: repository.worker()
    yield "claim", claim
    for run in runs[:4]:
        yield "generations", lambda run=run: repository.generations(run, search="so")
        yield "traces", lambda run=run: [len(records) for _, records in repository.traces(run)]
        yield "sittings", lambda run=run: repository.session_positions(run)
        yield (
            "record",
            lambda run=run: repository.record_generation(run, generation(7), {"device": "cpu", "threads": 1}),
        )
        yield "reopen", lambda run=run: repository.reopen_runs([run])
    yield "create", lambda: repository.create_experiment(sweep("third"))
    yield "prune", lambda: repository.report_worker(2, "host", "cpu", "busy")


def trial(whole: bytes, path: Path, seed: int) -> Counter[str]:
    """What the uses of one damaged database came to; raises whatever is no sentence."""
    chance = random.Random(seed)
    damaged = bytearray(whole)
    for _ in range(chance.choice((1, 4, 40))):
        damaged[chance.randrange(100, len(damaged))] = chance.randrange(256)
    path.write_bytes(damaged)
    seen: Counter[str] = Counter()
    try:
        database = open_database(sqlite_url(path), busy_timeout=0.2)
    except FsdError as error:
        return Counter({type(error).__name__: 1})
    for name, use in uses(Repository(database)):
        try:
            use()
            seen["answered"] += 1
        except FsdError as error:
            seen[type(error).__name__] += 1
        except Exception as error:
            raise AssertionError(f"Seed {seed}, {name}: {type(error).__name__}: {error}") from error
    database.close()
    return seen


def attack(folder: Path, trials: int, first_seed: int = 0) -> Counter[str]:
    """All trials in ``folder``; how often each kind of answer came."""
    filled(folder / "whole.db")
    whole, seen = (folder / "whole.db").read_bytes(), Counter[str]()
    for seed in range(first_seed, first_seed + trials):
        seen += trial(whole, folder / "damaged.db", seed)
        shutil.rmtree(folder / "damaged.db-journal", ignore_errors=True)
    return seen
