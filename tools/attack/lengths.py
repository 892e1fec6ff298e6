"""Lengths: prompts of megabytes at every door, templates and headers made to be slow."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from fsd_core.config import DecodingConfig, Speculative
from fsd_core.errors import ModelUnavailable
from fsd_core.models.loading import load_pair
from fsd_core.storage.messages import PlaygroundJob
from fsd_core.testing import save_toy_pair
from tests.tools.worker_process import ROOT, Home

TEXT = "Eva has 3 apples. "


def long_prompts(folder: Path) -> str:
    """10 MB on standard input, as an argument of the queue, and as the prompt of a model whose template never ends."""
    times = []
    environment = {**os.environ, "FSD_HOME": str(folder / "home"), "FSD_THREADS": "1"}
    for text in (TEXT * 600_000, "a" * 10_000_000, TEXT * 50_000):
        begun = time.monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "fsd_core", "generate", "-"], cwd=ROOT, env=environment, input=text,
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        times.append(time.monotonic() - begun)
        assert (done.returncode, done.stdout) == (2, ""), done.stderr
        assert "Traceback" not in done.stderr
        assert "too long" in done.stderr or "shorten it" in done.stderr, done.stderr
    return f"{len(times)} texts of 0.9 to 10.8 MB refused, the slowest after {max(times):.0f} s with all imports"


def long_jobs(folder: Path) -> str:
    """A job of 10 MB that got into the queue past the pages: it is refused, and the next one done."""
    with closing(Home(folder)) as home:
        decoding = DecodingConfig(acceptance=Speculative(), max_new_tokens=8)
        jobs = [
            home.repository.enqueue(PlaygroundJob.of(home.pair, p, 0, [decoding]))
            for p in (TEXT * 600_000, "Eva has 3 apples.")
        ]
        home.worker()
        assert home.until_done(jobs[1]) == "finished"
        long = home.repository.job(jobs[0])
        assert long.started_at is not None
        assert long.finished_at is not None
        taken = (long.finished_at - long.started_at).total_seconds()
        (chunk,) = [chunk for _, chunk in home.repository.chunks(jobs[0])]
        assert "shorten it" in (chunk.error or ""), chunk
    return f"refused with a sentence {taken:.1f} s after the worker took it; the next job was done"


def endless_template(folder: Path) -> str:
    """A model whose chat template loops for years, in an experiment."""
    with closing(Home(folder)) as home:
        target = folder / "pair" / "target"
        loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}"
        (target / "chat_template.jinja").write_text(loop + "{% endfor %}" * 3)
        experiment = home.repository.create_experiment(home.sweep(limit=40))
        home.worker()
        begun = time.monotonic()
        home.until_done(home.job_of(experiment), timeout=120)
        for run in home.repository.experiment(experiment).runs:
            assert run.status == "failed", run
            assert "chat template of the model cannot be used" in (run.error or "")
        taken = time.monotonic() - begun
    return f"three runs ended with a sentence after {taken:.0f} s"


def template_bomb(folder: Path) -> str:
    """A model whose chat template doubles a text without end, in an experiment; then the model as it was."""
    with closing(Home(folder)) as home:
        template = folder / "pair" / "target" / "chat_template.jinja"
        double = "{% set all = namespace(text='a' * 1000) %}{% for i in range(99) %}{% set all.text = all.text * 2 %}"
        template.write_text(double + "{% endfor %}{{ messages[0].content }}")
        bombed = home.repository.create_experiment(home.sweep(limit=2))
        home.worker()
        home.until_done(home.job_of(bombed))
        for run in home.repository.experiment(bombed).runs:
            assert run.status == "failed", run
            assert "it took more than 512 MB of memory" in (run.error or ""), run.error
        template.unlink()
        mended = home.repository.create_experiment(home.sweep(limit=2))
        assert home.until_done(home.job_of(mended)) == "finished"
        lost = home.repository.experiment(bombed).lost_workers
        assert lost == 0
    return "three runs ended with a sentence, no worker was lost, and the next experiment was done"


def expression_bombs(folder: Path) -> str:
    """Task files whose regular expressions would take gigabytes or years."""
    expressions = ["a{1000000000}b", "(a{1000}){1000}", "((a{100}){100}){100}", "(((a*)*)*)*b", "(?:a?){1000}a{1000}"]
    environment = {**os.environ, "FSD_HOME": str(folder / "home"), "FSD_THREADS": "1"}
    refused = 0
    for number, expression in enumerate(expressions):
        file = folder / f"bomb-{number}.jsonl"
        file.write_text(json.dumps({"prompt": "Which?", "reference": expression}) + "\n")
        done = subprocess.run(
            [sys.executable, "-m", "fsd_core", "task", "check", str(file), "--scorer", "regex"], cwd=ROOT,
            env=environment, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert "Traceback" not in done.stderr, done.stderr
        refused += done.returncode != 0
    most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    assert most < 1000, most
    return f"{len(expressions)} expressions, {refused} refused with a sentence; at most {most:.0f} MB in all"


def forged_models(folder: Path) -> str:
    """Headers and configurations that are nested deeply or have wrong types."""
    forged = {
        "model.safetensors": [b"\x00" * 7, b"\xff" * 64, (100_000).to_bytes(8, "little") + b"[" * 100_000,
                              (9).to_bytes(8, "little") + b'{"a": 5} ' + bytes(8)],
        "config.json": [b'{"a":' * 50_000, b"[1]", b"\xff\xfe", b'{"model_type": "llama", "hidden_size": "x"}'],
        "tokenizer.json": [b"[" * 50_000, b"{}", b'{"version": "1.0", "model": {"type": "BPE", "vocab": 7}}'],
    }  # fmt: skip
    save_toy_pair(folder / "pair")
    count = 0
    for name, contents in forged.items():
        for content in contents:
            pair = folder / f"forged-{count}"
            shutil.copytree(folder / "pair", pair)
            (pair / "target" / name).write_bytes(content)
            with pytest.raises(ModelUnavailable, match=r"(?i)restore the folder|fetch it again"):
                load_pair(f"path:{pair}", "cpu")
            count += 1
    return f"{count} forged files, a sentence each"
