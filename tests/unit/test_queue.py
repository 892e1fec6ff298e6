from __future__ import annotations

import pytest
from run_views import MOMENT, decoding, metrics, run_view

from fsd_core.config import SweepConfig
from fsd_core.jobs.queue import Progress, progress, time_left
from fsd_core.tracking.records import ExperimentView


def test_a_setting_costs_its_own_mean_time() -> None:
    runs = [Progress("fast", done=10, left=0, seconds=5), Progress("slow", done=2, left=8, seconds=4)]
    assert time_left(runs) == pytest.approx(8 * 2.0)


def test_a_setting_that_has_not_begun_is_expected_to_be_typical() -> None:
    runs = [Progress("a", 4, 0, 4.0), Progress("b", 4, 0, 12.0), Progress("c", 0, 10, 0.0)]
    assert time_left(runs) == pytest.approx(10 * (1.0 + 3.0) / 2)


def test_another_seed_of_a_setting_is_expected_to_take_as_long_as_the_first() -> None:
    runs = [Progress("a", 4, 0, 4.0), Progress("b", 4, 0, 12.0), Progress("a", 0, 10, 0.0)]
    assert time_left(runs) == pytest.approx(10.0)


def test_nothing_is_known_before_the_first_prompt() -> None:
    assert time_left([Progress("a", 0, 10, 0.0)]) is None


@pytest.mark.parametrize("runs", [[], [Progress("a", 10, 0, 3.0)], [Progress("a", 0, 0, 0.0)]])
def test_what_has_ended_takes_no_time(runs: list[Progress]) -> None:
    assert time_left(runs) == 0


def test_time_that_no_finished_run_accounts_for_is_that_of_the_run_at_work() -> None:
    slow, fast, failed = decoding("autoregressive"), decoding("speculative"), decoding("draft-only")
    done = run_view(slow, metrics(speed=100), limit=50)  # 60 tokens a prompt: 30 s
    working = run_view(fast, limit=50, status="running", prompts_done=10)
    waiting = run_view(slow, limit=50, seed=1)
    gone = run_view(failed, limit=50, status="failed")
    experiment = ExperimentView(
        id="e", name="", config=SweepConfig(decodings=(slow,)), status="running", error=None, cancel_requested=False,
        job_id="e", lost_workers=0, runs=(done, working, waiting, gone), decoding_seconds=34.0, created_at=MOMENT,
        started_at=MOMENT, finished_at=None, mlflow_run_id=None,
    )  # fmt: skip
    found = progress(experiment)
    assert [(p.done, p.left) for p in found] == [(50, 0), (10, 40), (0, 50), (0, 0)]
    assert [p.seconds for p in found] == pytest.approx([30.0, 4.0, 0.0, 0.0])
    assert time_left(found) == pytest.approx(40 * 0.4 + 50 * 0.6)
