"""Calibrations with real models: cut off and continued, from the library, and from the command line."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import fsd_core
from fsd_core.calibration.running import EXACT_LENGTHS, calibrate
from fsd_core.config import FuzzyReducible, Speculative
from fsd_core.config.calibration_config import DRAFT_LENGTHS, CalibrationConfig, candidates, read_sweep
from fsd_core.config.options import methods
from fsd_core.decoding import decoder, loop
from fsd_core.errors import NotEnough, OutOfRange
from fsd_core.evaluation import harness
from fsd_core.evaluation.runner import RunObserver
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.ops import kernels
from fsd_core.replays import prediction
from fsd_core.rules.lossy import Margin
from fsd_core.settings import sqlite_url
from fsd_core.storage.opening import open_database
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.testing import save_toy_pair, toy_pair
from tests.tools.virtual_time import time_by_forwards


class Stops:
    """Lets so many prompts be done, then interrupts as from the keyboard."""

    def __init__(self, prompts: int) -> None:
        self.left = prompts

    def __call__(self, run: RunView) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


NOISE = 0.15  # of the draft: one in three of its tokens is the target's, and nearly all are forgivable
SMALL = {"limit": 32, "choosing": 8, "minutes": 60.0, "goal": "speed"}
SHORT = {"max_new_tokens": 12}
"""of 70 that an answer has: what is asked here is how calibrations go on, not what they find"""


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    """A toy pair; what a calibration finds with the bundled one is shown in docs/library.md, which is run."""
    return toy_pair(NOISE)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    """The name of the same pair for commands."""
    return save_toy_pair(tmp_path / "pair", NOISE)


@pytest.fixture(autouse=True)
def clock(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes while a model is asked, less of it for a draft, and whatever this machine does at the moment."""
    time_by_forwards(monkeypatch, pair, loop, decoder, harness, prediction, kernels)


def asked(**more: object) -> CalibrationConfig:
    found = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1,0.3", "draft_length": [5, 16], **SHORT})
    return CalibrationConfig.model_validate({"decodings": tuple(found)} | SMALL | more)


@pytest.mark.wide
def test_cut_off_anywhere_it_goes_on_and_no_prompt_is_done_twice(repository: Repository, pair: LoadedPair) -> None:
    config = asked()
    id = repository.create_experiment(config, enqueue=False)
    assert repository.experiment(id).config == config == read_sweep(config.as_json())
    for prompts in (3, 40, 10):
        with pytest.raises(KeyboardInterrupt):
            calibrate(repository, id, config, lambda *_: pair, RunObserver(Stops(prompts)))
    outcome = calibrate(repository, id, config, lambda *_: pair)
    assert outcome.reason == "sure"
    assert outcome.chosen.decoding.acceptance.kind == "fsd-reducible"
    runs = repository.experiment(id).runs
    assert {run.status for run in runs} == {"finished"}
    done = Counter((run.decoding, i) for run in runs for i in repository.prompts([run.id])[run.id])
    assert set(done.values()) == {1}
    choosing, fresh = (
        {i for run in runs if (run.config.first >= 8) == late for i in repository.prompts([run.id])[run.id]}
        for late in (False, True)
    )
    assert len(choosing) == 8
    assert choosing.isdisjoint(fresh)
    assert choosing != set(range(8))  # in an order that was drawn
    again = calibrate(repository, id, config, lambda *_: pair)
    assert (again.reason, again.chosen.decoding) == (outcome.reason, outcome.chosen.decoding)


@pytest.mark.wide
def test_replay_proposes_the_draft_length_of_every_rule_once(repository: Repository, pair: LoadedPair) -> None:
    found = candidates({"acceptance": ["fsd-reducible", "fsd"], "threshold": "0.1,0.3", "draft_length": 8, **SHORT})
    found += candidates({"acceptance": "margin", "logit_ratio": "1", "draft_length": 8, **SHORT})
    found += methods({"acceptance": "fsd-reducible", "drafter": "prompt-lookup", "threshold": "0.1", **SHORT})
    config = CalibrationConfig.model_validate({"decodings": tuple(found), "lengths": (1, 2, 16)} | SMALL)
    id = repository.create_experiment(config, enqueue=False)
    with pytest.raises(KeyboardInterrupt):
        calibrate(repository, id, config, lambda *_: pair, RunObserver(Stops(3)))
    begun = repository.experiment(id).runs
    lengths = Counter[tuple]()
    for run in begun:
        if run.decoding.drafter is not None:
            lengths[run.decoding.drafter.kind, run.decoding.acceptance] += 1
            assert run.decoding.topology.length in ((4, 8, 16) if not run.predicted else (1, 2, 16))
            assert (run.predicted is None) == (run.decoding.drafter.kind == "prompt-lookup")
    assert lengths["draft-model", FuzzyReducible(threshold=0.1)] == 1
    assert lengths["draft-model", Speculative()] == EXACT_LENGTHS
    assert lengths["prompt-lookup", FuzzyReducible(threshold=0.1)] == len(DRAFT_LENGTHS)
    assert ("draft-model", Margin(logit_ratio=1.0)) not in lengths  # forgives nothing that would make it faster
    outcome = calibrate(repository, id, config, lambda *_: pair)
    assert outcome.chosen.decoding in [run.decoding for run in begun]
    runs = repository.experiment(id).runs
    assert runs[: len(begun)] != begun
    assert [run.decoding for run in runs[: len(begun)]] == [run.decoding for run in begun]
    for run in runs:
        if run.config.first == 0 and run.predicted and run.decoding.acceptance == Speculative():
            assert run.metrics["target_passes"] == pytest.approx(run.predicted["target_passes"])  # greedily it is exact


@pytest.mark.wide
def test_the_library_finds_a_setting_and_keeps_it(tmp_path: Path) -> None:
    pair = load_pair("bundled")  # where the rule is twice as fast as exact decoding
    options = {"acceptance": "fsd-reducible", "threshold": 0.1, "draft_length": 16}
    found = fsd_core.calibrate(pair=pair, goal="speed", limit=32, choosing=8, home=tmp_path / "kept", **options)
    assert found.setting.acceptance.kind == "fsd-reducible"
    assert "Use FSD reducible" in found.verdict
    assert found.to_dict()["chosen"]["over_exact"] > 1
    database = open_database(sqlite_url(tmp_path / "kept" / "fsd.db"))
    assert found.experiment_id is not None
    assert len(Repository(database).experiment(found.experiment_id).runs) > 3
    database.close()
    with pytest.raises(OutOfRange, match="accepted"):
        fsd_core.calibrate(pair=pair, goal="acceptance", accepted=2.0)
    with pytest.raises(NotEnough):
        fsd_core.calibrate(pair=pair, limit=100)


Call = Callable[..., tuple[int, str, str]]


def test_the_command_prints_a_verdict_and_resume_repeats_it(call: Call, saved: str) -> None:
    chosen = [
        "--acceptance",
        "ensemble",
        "--target-weights",
        "0.9",
        "--draft-length",
        "5",
        "--max-new-tokens",
        "12",
        "--json",
        "--pair",
        saved,
    ]
    out = printed(call, "calibrate", "--fastest", "--limit", "32", "--choosing", "8", *chosen)
    told = json.loads(out.splitlines()[-1])
    assert told["goal"] == "speed"
    assert told["verdict"].startswith(("Use ", "No setting is faster"))
    out = printed(call, "resume", told["experiment_id"])
    assert told["verdict"] in out
    assert f"Experiment {told['experiment_id']}" in out


@pytest.mark.wide
def test_the_command_times_the_finalists_again_and_nothing_else(call: Call, saved: str) -> None:
    """The prompts are written once more, token for token, and the verdict says that its times are of that time."""
    chosen = ["--acceptance", "fsd-reducible", "--thresholds", "0.3", "--draft-length", "5", "--max-new-tokens", "12"]
    out = printed(
        call, "calibrate", "--fastest", "--limit", "32", "--choosing", "8", *chosen, "--pair", saved, "--json"
    )
    before = json.loads(out.splitlines()[-1])
    assert before["timed_again"] is False
    again = printed(call, "calibrate", "--time-again", before["experiment_id"][:8], "--json")
    after = json.loads(again.splitlines()[-1])
    assert after["timed_again"] is True
    assert "Its times are those of a second time." in after["verdict"]
    assert after["reason"] == before["reason"]
    assert [one["label"] for one in after["finalists"]] == [one["label"] for one in before["finalists"]]
    status, _, err = call("calibrate", "--time-again", "ffffffff")
    assert status != 0
    assert "There is no run and no experiment 'ffffffff'" in err


@pytest.mark.wide
def test_the_same_command_with_more_minutes_goes_on_where_they_ended(call: Call, saved: str) -> None:
    chosen = ["--accepted", "0.1", "--limit", "32", "--choosing", "8", "--acceptance", "ensemble", "--pair", saved]
    begun = [
        "calibrate",
        *chosen,
        "--target-weights",
        "0.9",
        "--draft-length",
        "5",
        "--max-new-tokens",
        "12",
        "--minutes",
    ]
    first = printed(call, *begun, "0.01")
    assert "before the 0.01 minutes ended" in first
    assert re.search(r"The same command with --minutes \d+ continues\.", first)
    second = printed(call, *begun, "2000")
    assert second.startswith("Use ")
    assert "--minutes" not in second
    assert first.splitlines()[-1] == second.splitlines()[-1]  # the experiment
    third = printed(call, *begun, "0.01")
    assert third.splitlines()[-1] != second.splitlines()[-1]  # nothing was left


def printed(call: Call, *arguments: str) -> str:
    status, out, err = call(*arguments)
    assert status == 0, err
    return out
