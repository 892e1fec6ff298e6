from __future__ import annotations

import pytest

from dashboard.experiments.experiments_page import time_left
from fsd_core.config import SweepConfig
from fsd_core.storage.records import ExperimentView, RunView
from tests.tools.run_views import MOMENT, decoding, metrics, run_view

SLOW, FAST = decoding("autoregressive"), decoding("speculative")


def experiment(*runs: RunView, seconds: float) -> ExperimentView:
    return ExperimentView(
        id="e", name="", config=SweepConfig(decodings=(SLOW,)), status="running", error=None, cancel_requested=False,
        job_id="e", lost_workers=0, runs=runs, decoding_seconds=seconds, created_at=MOMENT, started_at=MOMENT,
        finished_at=None, mlflow_run_id=None,
    )  # fmt: skip


def under_way(prompts_done: int) -> tuple[RunView, RunView]:
    slow, fast = (run_view(d, limit=50, status="running", prompts_done=prompts_done) for d in (SLOW, FAST))
    return slow, fast


def test_the_prompts_to_come_take_as_long_as_those_done() -> None:
    assert time_left(experiment(*under_way(10), seconds=20 * 0.6)) == pytest.approx(80 * 0.6)


def test_nothing_is_known_before_the_first_prompt() -> None:
    assert time_left(experiment(*under_way(0), seconds=0.0)) is None


def test_what_has_ended_takes_no_time() -> None:
    done = run_view(SLOW, metrics(speed=100), limit=50)
    gone = run_view(FAST, limit=50, status="failed", prompts_done=3)
    assert time_left(experiment(done, gone, seconds=50.0)) == 0
    assert time_left(experiment(done, gone, *under_way(10), seconds=73 * 0.5)) == pytest.approx(80 * 0.5)
