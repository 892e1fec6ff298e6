"""A target split over two processes by torchrun writes what it writes in one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from fsd_core.models.loading import load_pair
from tests.tools.split_texts import METHODS, TOGETHER, texts
from tests.tools.worker_process import free_port

pytestmark = [pytest.mark.processes, pytest.mark.wide("test_static.py")]


def torchrun(home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a module in two processes, which meet at a free port."""
    command = ["-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", str(free_port(29700))]
    environment = os.environ | {"FSD_HOME": str(home), "OMP_NUM_THREADS": "1", "FSD_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *command, "-m", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_texts_of_every_shape_are_those_of_one_process(toy: str, home: Path) -> None:
    told = torchrun(home, "tests.tools.split_texts", toy)
    assert told.returncode == 0, told.stderr
    split = json.loads(told.stdout.splitlines()[-1])
    assert split["computed_on"] == "cpu and 1 more"
    assert len(split["texts"]) == len(METHODS) + len(TOGETHER)
    assert split["texts"] == texts(load_pair(toy, "cpu", "float32"))


@pytest.mark.parametrize(
    ("command", "pair", "reason"),
    [("run", "bundled", "error: The pair 'bundled' has an adapter, an EAGLE head or a draft"),
     ("bench", None, "error: 'bench' also times transformers' own loops, which one process runs")],
)  # fmt: skip
def test_what_needs_the_whole_target_is_refused_and_nobody_waits(
    home: Path, toy: str, command: str, pair: str | None, reason: str
) -> None:
    refused = torchrun(home, "fsd_core", command, "--pair", pair or toy, "--task", "arithmetic", "--limit", "1")
    assert refused.returncode != 0
    assert reason in refused.stderr
