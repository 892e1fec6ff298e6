"""Kills of the worker at random moments: while it loads, generates, writes and mirrors.

What comes out must be what an undisturbed worker writes, text for text, and MLflow must hold the same as the database.
"""

from __future__ import annotations

import json
import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from fsd_core import system
from fsd_core.storage.records import RunView
from fsd_core.tasks import get_task
from fsd_core.tracking import _flat, _metrics, write_artifacts
from tests.tools.worker_process import Home, until

DEADLY = """
import os, signal
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.worker.worker import Worker
from fsd_core.settings import get_settings

generate = PairDecoder.generate
def deadly(self, prompt_ids, seed):
    if self.pair.tokenizer.decode(prompt_ids) == {prompt!r}:
        os.kill(os.getpid(), signal.SIGKILL)
    return generate(self, prompt_ids, seed)
PairDecoder.generate = deadly
Worker(get_settings()).run()
"""


def random_moments(folder: Path, kills: int, seed: int) -> str:
    """Kills workers one after the other until so many are dead; then one may finish."""
    with closing(Home(folder)) as home:
        home.settings = home.settings.model_copy(update={"mlflow_uri": None})
        chance, where = random.Random(seed), Counter[str]()
        words = home.settings.home / "worker.lock"
        disturbed = home.repository.create_experiment(home.sweep(limit=120))
        done = 0
        while done < kills:
            worker = home.worker()
            until(lambda pid=worker.pid: (system.holder(words) or {}).get("pid") == pid, "a worker that has the lock")
            time.sleep(chance.uniform(0.0, 4.0))
            finished = home.repository.job(home.job_of(disturbed)).status == "finished"
            if finished and not home.repository.unsynced_runs():
                break  # a machine so quick that nothing is left to disturb
            worker.kill()
            worker.wait()
            last = json.loads(words.read_text() or "{}")
            stage = (
                "writing a prompt" if last.get("prompts") else "between prompts" if last.get("claims") else "loading"
            )
            where["mirroring" if finished else stage] += 1
            done += 1
        undisturbed = home.repository.create_experiment(home.sweep(limit=120))
        home.worker()
        for experiment in (disturbed, undisturbed):
            assert home.until_done(home.job_of(experiment), timeout=180) == "finished"
        until(lambda: not home.repository.unsynced_runs(), "the copies in MLflow", 120)
        assert home.written(disturbed) == home.written(undisturbed)
        for run in home.repository.experiment(disturbed).runs:
            assert (run.status, run.prompts_done, (run.metrics or {})["failed"]) == ("finished", 120, 0)
            same_in_mlflow(home, run)
        job = home.repository.job(home.job_of(disturbed))
        told = ", ".join(f"{count} {stage}" for stage, count in where.items())
        return f"{done} kills ({told}), {job.lost_workers} counted; texts as undisturbed, MLflow as the database"


def same_in_mlflow(home: Home, run: RunView) -> None:
    """Fails unless MLflow has one copy of the run, with its parameters, tags, metrics and files."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=home.settings.resolved_mlflow_uri)
    experiment = client.get_experiment_by_name("FSD Lab")
    assert experiment
    (copy,) = client.search_runs([experiment.experiment_id], f"tags.`fsd.run_id` = '{run.id}'")
    assert (copy.info.run_id, copy.info.status) == (run.mlflow_run_id, run.status.upper())
    assert copy.data.params == {key: str(value) for key, value in _flat("", run.config.as_json())}
    provenance = {key: str(value) for key, value in _flat("fsd.provenance", run.provenance or {})}
    assert provenance == {key: value for key, value in copy.data.tags.items() if key.startswith("fsd.provenance.")}
    generations = home.repository.generations(run.id)
    expected: dict[str, list[tuple[int, float]]] = {}
    for metric in _metrics(run, generations):
        expected.setdefault(metric.key, []).append((metric.step, metric.value))
    found = {
        key: [(metric.step, metric.value) for metric in client.get_metric_history(copy.info.run_id, key)]
        for key in copy.data.metrics
    }
    assert {key: sorted(values) for key, values in found.items()} == {k: sorted(v) for k, v in expected.items()}
    folder = Path(copy.info.artifact_uri.removeprefix("file://"))
    with tempfile.TemporaryDirectory() as name:
        write_artifacts(Path(name), home.repository, run)
        assert dict(_contents(folder)) == dict(_contents(Path(name)))
    (parent,) = client.search_runs([experiment.experiment_id], f"tags.`fsd.experiment_id` = '{run.experiment_id}'")
    assert copy.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert parent.info.status == "FINISHED"


def _contents(folder: Path) -> Iterator[tuple[str, Any]]:
    """Files by name; of pictures and archives, which carry the hour, that they are there."""
    for file in sorted(folder.rglob("*")):
        if file.suffix == ".json":
            yield file.name, json.loads(file.read_text())
        elif file.is_file():
            yield file.name, file.stat().st_size > 0


def deadly_prompt(folder: Path) -> str:
    """One prompt kills whatever writes it."""
    with closing(Home(folder)) as home:
        prompt = get_task("arithmetic").examples(4)[2].prompt
        command = ("-c", DEADLY.format(prompt=prompt))
        sweep = home.sweep(limit=4)
        experiment = home.repository.create_experiment(sweep.model_copy(update={"decodings": sweep.decodings[:1]}))
        job_id, deaths = home.job_of(experiment), 0
        worker = home.worker(*command)
        while deaths < 10:
            until(
                lambda w=worker: w.poll() is not None or home.repository.job(job_id).finished_at, "a death or the end"
            )
            if worker.poll() is None:
                break
            deaths += 1
            worker = home.worker(*command)
        (run,) = home.repository.experiment(experiment).runs
        assert (deaths, run.status) == (3, "finished")
        failed = home.repository.generations(run.id, outcome="failed")
        assert [g.position for g in failed] == [2]
        worker.terminate()
        worker.wait()
        home.repository.reopen_runs([run.id])
        home.worker()  # one that it does not kill
        assert home.until_done(job_id) == "finished"
        assert home.repository.count_generations(run.id, outcome="failed") == 0
    return f"{deaths} deaths, then the prompt was set aside and the rest done; resumed, it was written"
