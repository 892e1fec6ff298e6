"""Calibrations with real models: cut off and continued, from the library, and from the command line."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import fsd_core
from fsd_core.benchmarks.calibration.proposing import EXACT_LENGTHS
from fsd_core.benchmarks.calibration.running import calibrate
from fsd_core.config import FuzzyReducible, Speculative
from fsd_core.config.calibration import LENGTHS, CalibrationConfig, candidates, read_sweep
from fsd_core.config.sweeps import methods
from fsd_core.errors import InvalidSetting
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.rules.margin import Margin
from fsd_core.settings import sqlite_url
from fsd_core.tracking.database.repository import Repository
from fsd_core.tracking.database.session import open_database
from fsd_core.tracking.records import RunView


class Stops:
    """Lets so many prompts be done, then interrupts as from the keyboard."""

    def __init__(self, prompts: int) -> None:
        self.left = prompts

    def __call__(self, run: RunView) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


SMALL = {"limit": 32, "choosing": 8, "minutes": 60.0, "goal": "speed"}


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return load_pair("bundled")


def asked(**more: object) -> CalibrationConfig:
    found = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1,0.3", "draft_length": [5, 16]})
    return CalibrationConfig.model_validate({"decodings": tuple(found)} | SMALL | more)


def test_cut_off_anywhere_it_goes_on_and_no_prompt_is_done_twice(repository: Repository, pair: LoadedPair) -> None:
    config = asked()
    id = repository.create_experiment(config, enqueue=False)
    assert repository.experiment(id).config == config == read_sweep(config.as_json())
    for prompts in (3, 40, 10):
        with pytest.raises(KeyboardInterrupt):
            calibrate(repository, id, config, lambda *_: pair, Stops(prompts))
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


def test_replay_proposes_the_draft_length_of_every_rule_once(repository: Repository, pair: LoadedPair) -> None:
    found = candidates({"acceptance": ["fsd-reducible", "margin", "fsd"], "threshold": "0.1,0.3", "draft_length": 8})
    found += methods({"acceptance": "fsd-reducible", "drafter": "prompt-lookup", "threshold": "0.1"})
    config = CalibrationConfig.model_validate({"decodings": tuple(found), "lengths": (1, 2, 16)} | SMALL)
    id = repository.create_experiment(config, enqueue=False)
    with pytest.raises(KeyboardInterrupt):
        calibrate(repository, id, config, lambda *_: pair, Stops(3))
    begun = repository.experiment(id).runs
    lengths = Counter[tuple]()
    for run in begun:
        if run.decoding.drafter is not None:
            lengths[run.decoding.drafter.kind, run.decoding.acceptance] += 1
            assert run.decoding.topology.length in ((4, 8, 16) if not run.predicted else (1, 2, 16))
            assert (run.predicted is None) == (run.decoding.drafter.kind == "prompt-lookup")
    assert lengths["draft-model", FuzzyReducible(threshold=0.1)] == 1
    assert lengths["draft-model", Speculative()] == EXACT_LENGTHS
    assert lengths["prompt-lookup", FuzzyReducible(threshold=0.1)] == len(LENGTHS)
    assert ("draft-model", Margin(logit_ratio=0.98)) not in lengths  # forgives nothing that would make it faster
    outcome = calibrate(repository, id, config, lambda *_: pair)
    assert outcome.chosen.decoding in [run.decoding for run in begun]
    runs = repository.experiment(id).runs
    assert runs[: len(begun)] != begun
    assert [run.decoding for run in runs[: len(begun)]] == [run.decoding for run in begun]
    for run in runs:
        if run.config.first == 0 and run.predicted and run.decoding.acceptance == Speculative():
            assert run.metrics["target_passes"] == pytest.approx(run.predicted["target_passes"])  # greedily it is exact


def test_the_library_finds_a_setting_and_keeps_it(tmp_path: Path, pair: LoadedPair) -> None:
    options = {"acceptance": "fsd-reducible", "threshold": 0.1, "draft_length": 16}
    found = fsd_core.calibrate(pair=pair, goal="speed", limit=32, choosing=8, home=tmp_path / "kept", **options)
    assert found.setting.acceptance.kind == "fsd-reducible"
    assert "Use FSD reducible" in found.verdict
    assert found.to_dict()["chosen"]["over_exact"] > 1
    database = open_database(sqlite_url(tmp_path / "kept" / "fsd.db"))
    assert found.experiment_id is not None
    assert len(Repository(database).experiment(found.experiment_id).runs) > 3
    database.close()
    with pytest.raises(InvalidSetting, match="accepted is 2"):
        fsd_core.calibrate(pair=pair, goal="acceptance", accepted=2.0)
    with pytest.raises(InvalidSetting, match="takes at least 149 prompts"):
        fsd_core.calibrate(pair=pair, limit=100)


def test_the_command_prints_a_verdict_and_resume_repeats_it(home: Path) -> None:
    chosen = ["--acceptance", "ensemble", "--target-weights", "0.9", "--draft-length", "5", "--json"]
    told = json.loads(command("calibrate", "--fastest", "--limit", "32", "--choosing", "8", *chosen).splitlines()[-1])
    assert told["goal"] == "speed"
    assert told["verdict"].startswith(("Use ", "No setting is faster"))
    out = command("resume", told["experiment_id"])
    assert told["verdict"] in out
    assert f"Experiment {told['experiment_id']}" in out


def test_the_same_command_with_more_minutes_goes_on_where_they_ended(home: Path) -> None:
    chosen = ["--accepted", "0.3", "--limit", "32", "--choosing", "8", "--acceptance", "ensemble"]
    begun = ["calibrate", *chosen, "--target-weights", "0.9", "--draft-length", "5", "--minutes"]
    first = command(*begun, "0.01")
    assert "before the 0.01 minutes ended" in first
    assert re.search(r"The same command with --minutes \d+ continues\.", first)
    second = command(*begun, "20")
    assert second.startswith("Use ")
    assert "--minutes" not in second
    assert first.splitlines()[-1] == second.splitlines()[-1]  # the experiment
    third = command(*begun, "0.01")
    assert third.splitlines()[-1] != second.splitlines()[-1]  # nothing was left


def command(*arguments: str) -> str:
    """What a command prints on standard output."""
    done = subprocess.run(
        [sys.executable, "-m", "fsd_core", *arguments], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
