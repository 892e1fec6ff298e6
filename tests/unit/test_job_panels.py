"""What the playground says of its settings: to the worker, and to the person when they are done."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from dashboard.playground.job_panels import (
    OTHER_PROGRAMS_BUSY,
    FollowedJob,
    OutputPanel,
    comparison,
    slow_pair,
    slow_prompt,
)
from dashboard.playground.playground_page import payload
from fsd_core.config import DecodingConfig, Fuzzy, RunConfig, SamplingConfig, SettingConfig, Speculative
from fsd_core.errors import DataDamaged, InvalidSetting
from fsd_core.storage.messages import EmittedToken, StreamFigures
from fsd_core.storage.repository import Repository
from tests.tools.tracking_examples import chunk

GREEDY = SamplingConfig()


def panel(ids: list[int], speed: float = 100.0, sampling: SamplingConfig = GREEDY, **more: Any) -> OutputPanel:
    method = DecodingConfig(acceptance=Speculative(), sampling=sampling)
    figures = StreamFigures.of(tokens=len(ids), rounds=1, drafted=0, accepted=0, seconds=len(ids) / speed)
    return OutputPanel(method, tuple(EmittedToken("a", i, "strict") for i in ids), figures, done=True, **more)


def test_chunks_are_taken_in_by_their_setting() -> None:
    methods = [DecodingConfig()] * 2
    job = FollowedJob("x", payload("bundled", "Hi", 0, methods), tuple(map(OutputPanel, methods)))
    more = job.with_chunks([(0, chunk(4, setting=1)), (1, chunk(5, setting=1, done=True))])
    assert [panel.ids for panel in more.panels] == [[], [4, 5]]
    assert ([panel.after for panel in more.panels], more.after) == ([-1, 1], 1)
    assert [panel.ids for panel in job.panels] == [[], []]  # another page may show it
    with pytest.raises(DataDamaged, match="no setting 3"):
        more.with_chunks([(2, chunk(6, setting=2))])


def test_the_comparison_tells_the_pace_and_where_texts_part() -> None:
    assert comparison([panel([1, 2]), panel([1, 2], 131)]) == [
        "SD · γ 5 wrote 1.31× as fast as SD · γ 5; their texts are identical."
    ]
    assert "differ from token 2 (2 tokens and 2)" in comparison([panel([1, 2]), panel([1, 3])])[0]
    assert "differ from token 3" in comparison([panel([1, 2]), panel([1, 2, 3])])[0]


@pytest.mark.parametrize(("cpu", "doubted"), [(0.9, False), (0.5, True), (None, False)])
def test_speeds_on_a_busy_machine_are_doubted(cpu: float | None, doubted: bool) -> None:
    busy = panel([1, 2])
    assert busy.figures is not None
    told = None if cpu is None else cpu * busy.figures.seconds
    busy = replace(busy, figures=StreamFigures.read(asdict(replace(busy.figures, cpu_seconds=told))))
    assert (OTHER_PROGRAMS_BUSY in comparison([panel([1, 2]), busy])) == doubted


def test_sampled_lossless_texts_may_differ_and_greedy_ones_are_not_excused() -> None:
    sampled = SamplingConfig(temperature=1)
    assert (
        "only their distribution is the same"
        in comparison([panel([1], sampling=sampled), panel([2], sampling=sampled)])[0]
    )
    assert "only their distribution is the same" not in comparison([panel([1]), panel([2])])[0]


def test_nothing_is_compared_with_a_setting_that_failed() -> None:
    assert comparison([panel([], error="No."), panel([1])]) == []
    assert comparison([panel([1]), panel([], error="No.")]) == []


@pytest.mark.parametrize(("prompt", "seed"), [("  \n", 0), ("Hi", -1), ("Hi", 2**31)])
def test_a_job_that_cannot_be_done_is_refused_with_a_sentence(prompt: str, seed: int) -> None:
    with pytest.raises(InvalidSetting, match=r"^The (prompt|seed) .*: "):
        payload("bundled", prompt, seed, [DecodingConfig()])


def _drafted(accepted: int, alone: float | None, cpu: float | None = None) -> OutputPanel:
    figures = StreamFigures.of(
        tokens=50, rounds=20, drafted=100, accepted=accepted, seconds=1, cpu_seconds=cpu, target_tokens_per_second=alone
    )
    return OutputPanel(DecodingConfig(acceptance=Speculative(), sampling=GREEDY), (), figures, done=True)


def test_a_prompt_on_which_no_draft_pays_is_told() -> None:
    slow = _drafted(14, 60)
    told = "On this prompt 14 % accepted: speculation does not pay here; try math, or copying (prompt lookup)."
    assert slow_prompt([slow, panel([1])]) == slow_prompt([_drafted(9, 90), slow]) == told
    assert slow_prompt([slow, _drafted(60, 40)]) == ""  # one of them pays
    assert slow_prompt([slow, _drafted(14, None)]) == ""  # of one it is not known
    assert slow_prompt([_drafted(14, 60, cpu=0.3)]) == ""  # other programs were busy
    assert slow_prompt([panel([1])]) == ""


def test_a_pair_that_was_measured_slower_than_the_target_alone_is_told(repository: Repository) -> None:
    def measured(rule: Any, speed: float) -> None:
        setting = SettingConfig(decoding=DecodingConfig(acceptance=rule))
        id = repository.create_run(RunConfig(setting=setting, task="everyday"))
        repository.start_run(id, {})
        ends = {
            f"speedup_versus_target{end}": speed + more for end, more in (("", 0.0), ("_low", -0.04), ("_high", 0.04))
        }
        repository.finish_run(id, {"acceptance_rate": 0.14, **ends})

    assert slow_pair(repository, "bundled") == ""
    measured(Speculative(), 0.81)
    measured(Fuzzy(threshold=0.3), 1.4)  # a lossy one is no answer
    told = slow_pair(repository, "bundled")
    assert "of everyday: 14 % accepted, 0.81 × as fast as the target alone. Speculation does not pay there" in told
    assert slow_pair(repository, "smollm2-135m") == ""
    measured(Speculative(), 1.2)
    assert slow_pair(repository, "bundled") == ""
