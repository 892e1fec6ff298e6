"""Calibrations with real models and of running engines: cut off, continued, at every door."""

from __future__ import annotations

import json
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import fsd_core
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.running import EXACT_LENGTHS, calibrate
from fsd_core.calibration.summary import finding_text, verdict
from fsd_core.config import DecodingConfig, FuzzyReducible, Speculative
from fsd_core.config.calibration_config import (
    DRAFT_LENGTHS,
    CalibrationConfig,
    candidates,
    engine_candidates,
    read_sweep,
)
from fsd_core.config.options import method, methods
from fsd_core.decoding import decoder, loop
from fsd_core.engines import client
from fsd_core.engines.client import PluginKnob, RestartKnob
from fsd_core.errors import (
    EngineUnavailable,
    FsdError,
    InvalidSetting,
    NotApplicable,
    NotEnough,
    OutOfRange,
    UnknownName,
)
from fsd_core.evaluation import harness
from fsd_core.evaluation.runner import RunObserver
from fsd_core.models.loading import LoadedPair, load_pair
from fsd_core.ops import kernels
from fsd_core.replays import prediction
from fsd_core.review.delivery import deliver
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.rules import Rule, Served
from fsd_core.rules.lossy import Margin
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.opening import open_database
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.testing import save_toy_pair, toy_pair
from fsd_core.worker.run_actions import open_repository
from tests.tools.toy_engine import ToyEngine
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


@pytest.fixture
def clock(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes while a model is asked, less of it for a draft, and whatever this machine does at the moment."""
    time_by_forwards(monkeypatch, pair, loop, decoder, harness, prediction, kernels)


def asked(**more: object) -> CalibrationConfig:
    found = candidates({"acceptance": ["fsd-reducible"], "threshold": "0.1,0.3", "draft_length": [5, 16], **SHORT})
    return CalibrationConfig.model_validate({"decodings": tuple(found)} | SMALL | more)


@pytest.mark.usefixtures("clock")
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


@pytest.mark.usefixtures("clock")
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


@pytest.mark.usefixtures("clock")
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


@pytest.mark.usefixtures("clock")
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


@pytest.mark.usefixtures("clock")
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


@pytest.mark.usefixtures("clock")
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


ENGINE_NOISE = 0.15
GAMMA = 5
ENGINE_SHORT: dict[str, Any] = {"max_new_tokens": 12, "draft_length": GAMMA}
SD = method({"acceptance": "speculative", **ENGINE_SHORT})
OWN = [SD, *(method({"acceptance": "fsd-reducible", "threshold": js, **ENGINE_SHORT}) for js in (0.1, 0.3))]
ENGINE_SMALL: dict[str, Any] = {"limit": 40, "choosing": 8, "minutes": 60.0, "goal": "accuracy", "margin": 20.0}


@pytest.fixture(scope="module")
def engine_pair() -> LoadedPair:
    return toy_pair(ENGINE_NOISE)


@pytest.fixture
def engine_saved(tmp_path: Path) -> str:
    return save_toy_pair(tmp_path / "pair", ENGINE_NOISE)


@pytest.fixture(scope="module")
def server(engine_pair: LoadedPair) -> Iterator[ToyEngine]:
    with ToyEngine(engine_pair, SD) as engine:
        yield engine


@pytest.fixture
def engine(server: ToyEngine) -> ToyEngine:
    server.reset(SD)
    server.has_knob = True
    return server


@pytest.fixture
def engine_clock(engine_pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes while a model is asked, here and at the engine, and whatever this machine does at the moment."""
    time_by_forwards(monkeypatch, engine_pair, loop, decoder, harness, client, client)


def no_pair(*_: str) -> LoadedPair:
    raise AssertionError("no pair is loaded for an engine")


def engine_asked(saved: str, decodings: list[DecodingConfig], **more: object) -> CalibrationConfig:
    return CalibrationConfig.model_validate({"pair": saved, "decodings": tuple(decodings)} | ENGINE_SMALL | more)


def of_engine(saved: str, repository: Repository, engine: ToyEngine, **more: object) -> tuple[str, CalibrationConfig]:
    repository.add_engine(engine.served(), "", "Ann")
    config = engine_asked(saved, engine_candidates(engine.served(), OWN), **more)
    return repository.create_experiment(config, enqueue=False), config


def rule_of(decoding: DecodingConfig) -> Rule | None:
    return decoding.acceptance.rule if isinstance(decoding.acceptance, Served) else decoding.acceptance


def figures(outcome: Outcome) -> list[Any]:
    return [
        (rule_of(finding.decoding), finding.prompts, finding.sure, finding.difference, finding.at_least)
        for finding in outcome.finalists
    ]


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_from_nothing_to_a_proposal_and_equal_to_our_own_loop(
    repository: Repository, engine_saved: str, engine_pair: LoadedPair, engine: ToyEngine
) -> None:
    own_config = engine_asked(engine_saved, OWN)
    own_id = repository.create_experiment(own_config, enqueue=False)
    own = calibrate(repository, own_id, own_config, lambda *_: engine_pair)
    id, config = of_engine(engine_saved, repository, engine)
    assert repository.experiment(id).config == config == read_sweep(config.as_json())
    outcome = calibrate(repository, id, config, no_pair)
    assert rule_of(outcome.chosen.decoding) == own.chosen.decoding.acceptance
    assert outcome.reason == own.reason == "unsolved"  # toys solve nothing, so that each finalist loses nothing
    assert all(finding.sure for finding in outcome.finalists)
    assert figures(outcome) == figures(own)
    for mine, others in zip(outcome.finalists, own.finalists, strict=True):
        assert mine.acceptance == pytest.approx(others.acceptance)
        assert mine.over_exact == pytest.approx(others.over_exact, rel=0.05)
    assert outcome.chosen.over_exact > 1
    assert verdict(config, outcome).startswith("The strict engine solves 0 of ")
    text = finding_text(outcome.finalists[0])
    assert "as fast as exact SD there, by time per answer" in text
    assert "points of accuracy against the strict engine" in text
    # Each answer has its own counts, and what the engine remembers of a prompt is kept to a run.
    runs = repository.experiment(id).runs
    assert all(g.drafted > 0 for run in runs for g in repository.generations(run.id))
    assert {body["cache_salt"] for body in engine.asked} == {run.id for run in runs}
    # What was found is proposed, with the fresh prompts as evidence, and leaves as arguments of vLLM.
    setting = next(run.setting_id for run in runs if run.decoding == outcome.chosen.decoding)
    fresh = {setting: [run.id for run in runs if run.config.first >= 8 and run.setting_id == setting] for setting in
             {run.setting_id for run in runs}}  # fmt: skip
    strict = next(run.setting_id for run in runs if run.decoding == config.target)
    service, ann = ReviewService(repository), Person("Ann", "admin")
    service.describe(ann, "Sums", requirements=Requirements(margin=None, least_speedup=0.01))
    review = service.review(service.propose(ann, "sums", fresh[setting], fresh[strict]))
    assert review.proposal.setting == setting
    (one,) = review.evidence
    assert one.shared == outcome.chosen.prompts
    service.submit_review(Person("Bob", "reviewer"), review, "approve", "Fast enough.", review.use.sequence)
    assert service.use("sums").named("approved") == setting
    served_rule = json.dumps({"fsd_lab": engine_rule(outcome.chosen.decoding)})
    assert f"--additional-config '{served_rule}'" in deliver(repository.setting(setting).config, "vllm")


def engine_rule(decoding: DecodingConfig) -> dict[str, Any]:
    rule = rule_of(decoding)
    assert rule is not None
    return rule.as_json()


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_cut_off_it_goes_on_and_asks_no_prompt_twice(
    repository: Repository, engine_saved: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"goal": "speed", "limit": 24}
    whole = calibrate(repository, *of_engine(engine_saved, repository, engine, **short), no_pair)
    total, _ = len(engine.asked), engine.asked.clear()
    id, config = of_engine(engine_saved, repository, engine, **short)
    for prompts in (3, 20):
        with pytest.raises(KeyboardInterrupt):
            calibrate(repository, id, config, no_pair, RunObserver(Stops(prompts)))
    # Somebody restarts the engine meanwhile: it forgets what it was told.
    engine.told, engine.decoding = {"kind": "off"}, SD
    outcome = calibrate(repository, id, config, no_pair)
    assert (outcome.reason, outcome.chosen.decoding, figures(outcome)) == (
        whole.reason, whole.chosen.decoding, figures(whole)
    )  # fmt: skip
    done = Counter(
        (run.decoding, i) for run in repository.experiment(id).runs for i in repository.done_positions(run.id)
    )
    assert set(done.values()) == {1}
    assert len(engine.asked) == total


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_the_library_finds_the_setting_of_a_running_engine(engine_saved: str, engine: ToyEngine, home: Path) -> None:
    repository = open_repository(Settings(home=home))
    repository.add_engine(engine.served(), "", "Ann")
    options = {"acceptance": "fsd-reducible", "threshold": [0.1, 0.3], "max_new_tokens": 12}
    found = fsd_core.calibrate(
        "arithmetic", pair=engine_saved, endpoint="toy", goal="speed", limit=24, choosing=8, home=home, **options
    )
    assert found.verdict.startswith("Use Served · vLLM toy · FSD reducible · js ≤ ")
    assert found.experiment_id is not None
    runs = repository.experiment(found.experiment_id).runs
    assert {run.label for run in runs} == {decoding.label for decoding in found.config.decodings}
    assert len(engine.asked) == sum(run.prompts_done for run in runs)
    with pytest.raises(NotApplicable, match="draft_length"):
        fsd_core.calibrate("arithmetic", pair=engine_saved, endpoint="toy", draft_length=4, home=home)
    with pytest.raises(UnknownName, match="toy"):  # nobody has named one where nothing is kept
        fsd_core.calibrate("arithmetic", pair=engine_saved, endpoint="toy")


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_a_knob_that_does_nothing_is_noticed(repository: Repository, engine_saved: str, engine: ToyEngine) -> None:
    engine.obeys = False
    id, config = of_engine(engine_saved, repository, engine)
    with pytest.raises(FsdError, match=r"The knob of the endpoint 'toy' does nothing: at its strict value and at .*"
                       r"js ≤ 0.3 it wrote the same 8 texts, and accepted \d+ of \d+ drafted tokens each"):  # fmt: skip
        calibrate(repository, id, config, no_pair)
    assert len(engine.asked) == 8 * len(OWN)
    with pytest.raises(FsdError, match="does nothing"):  # and a second time, without a prompt
        calibrate(repository, id, config, no_pair)
    assert len(engine.asked) == 8 * len(OWN)


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_an_engine_that_says_that_another_rule_is_in_force_is_not_measured(
    repository: Repository, engine_saved: str, engine: ToyEngine
) -> None:
    engine.admits = True
    id, config = of_engine(engine_saved, repository, engine)
    with pytest.raises(EngineUnavailable, match="ignores its knob"):
        calibrate(repository, id, config, no_pair)
    runs = repository.experiment(id).runs
    assert not any(run.prompts_done for run in runs if not run.decoding.acceptance.is_exact)


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_somebody_else_turns_the_knob_in_the_middle_and_that_answer_is_not_kept(
    repository: Repository, engine_saved: str, engine: ToyEngine
) -> None:
    def turned(request: Any) -> None:
        request.answer()
        engine.told = {"kind": "typical", "posterior_threshold": 0.3}

    id, config = of_engine(engine_saved, repository, engine)
    engine.faults += [turned]
    with pytest.raises(EngineUnavailable, match="somebody else turns it"):
        calibrate(repository, id, config, no_pair)
    assert sum(run.prompts_done for run in repository.experiment(id).runs) == 0


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_without_its_address_and_without_counts_an_engine_is_refused_in_a_sentence(
    repository: Repository, engine_saved: str, engine: ToyEngine
) -> None:
    engine.has_knob = False
    id, config = of_engine(engine_saved, repository, engine)
    with pytest.raises(EngineUnavailable, match="VLLM_SERVER_DEV_MODE=1"):
        calibrate(repository, id, config, no_pair)
    engine.has_knob, engine.metrics = True, False
    id, config = of_engine(engine_saved, repository, engine, goal="acceptance", acceptance=0.5)
    with pytest.raises(FsdError, match="no drafted tokens"):
        calibrate(repository, id, config, no_pair)
    other = engine.served(engine="llama.cpp", rule=OWN[1].acceptance)
    with pytest.raises(EngineUnavailable, match="no rule while it runs"):
        PluginKnob().tell(None, other)  # pyright: ignore[reportArgumentType]


SERVE = """
import json, sys
from pathlib import Path
from fsd_core.config.options import method
from fsd_core.config.vllm_plugin import served_rule
from fsd_core.models.loading import load_pair
from fsd_core.rules import Speculative
from tests.tools.toy_engine import ToyEngine
folder, port, starts, rule = sys.argv[1:]
with Path(starts).open("a") as file:
    file.write(rule + "\\n")
rule = served_rule(rule)
strict = method({"acceptance": "speculative", "draft_length": 5})
decoding = strict.model_copy(update={"acceptance": rule or Speculative()})
with ToyEngine(load_pair(folder, "cpu", "float32"), decoding, port=int(port)) as engine:
    engine.wait()
"""


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.wide
def test_an_engine_that_a_command_restarts(
    repository: Repository, engine_saved: str, engine: ToyEngine, tmp_path: Path
) -> None:
    """Real processes, one for each value, which write what the engine writes whose knob is turned.

    Our clock stands still while they write, so nothing is faster than the strict value, and the first prompts are all.
    """
    knobs = [OWN[0], OWN[2]]
    with ToyEngine(engine.pair, SD) as gone:
        served = gone.served("restarted")  # its port is free again
    repository.add_engine(served, "", "Ann")
    config = engine_asked(engine_saved, engine_candidates(served, knobs), limit=24, goal="speed")
    starts, port = tmp_path / "its starts; $(touch nothing)", served.url.rpartition(":")[2]
    command = f"{sys.executable} -c '{SERVE}' '{engine_saved}' {port} '{starts}' {{rule}}"
    rules = [rule for decoding in config.decodings if (rule := rule_of(decoding))]
    id = repository.create_experiment(config, enqueue=False)
    with RestartKnob(command, rules) as knob:
        outcome = calibrate(repository, id, config, no_pair, knob=knob)
    with pytest.raises(EngineUnavailable):  # it ended with the knob
        client.check_engine(served)
    told = [json.loads(line) for line in starts.read_text().splitlines()]
    assert told == [{"kind": "off"}, OWN[2].acceptance.as_json()]
    config = engine_asked(engine_saved, engine_candidates(engine.served(), knobs), limit=24, goal="speed")
    repository.add_engine(engine.served(), "", "Ann")
    turned_id = repository.create_experiment(config, enqueue=False)
    with pytest.raises(KeyboardInterrupt):
        calibrate(repository, turned_id, config, no_pair, RunObserver(Stops(16)))
    texts = [
        {(rule_of(run.decoding), g.position): g.text for run in repository.experiment(id).runs
         for g in repository.generations(run.id)}
        for id in (id, turned_id)
    ]  # fmt: skip
    assert len(texts[0]) == 16
    assert texts[0] == texts[1]
    assert outcome.reason == "nothing-faster"


@pytest.mark.usefixtures("engine_clock")
@pytest.mark.parametrize(
    ("command", "rules", "message"),
    [
        ("serve --port 8000", [OWN[1].acceptance], "The command has no place for the rule"),
        ("serve 'x {rule}", [OWN[1].acceptance], "The command cannot be read"),
        ("serve {knob}", [SD.acceptance], "turns the knob of one rule that can be strict"),
        ("serve {knob}", [OWN[1].acceptance, method({"acceptance": "lenience"}).acceptance], "fsd-reducible and len"),
    ],
)
def test_a_command_that_cannot_turn_a_knob_is_refused(command: str, rules: list[Rule], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        RestartKnob(command, rules)


@pytest.mark.usefixtures("engine_clock")
def test_a_key_that_a_command_prints_is_in_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-live-4711")
    served = Served(engine="vllm", endpoint="a", url="http://127.0.0.1:9", model="m", rule=OWN[1].acceptance)
    command = f"{sys.executable} -c 'import os, sys; print(os.environ[\"ENGINE_KEY\"]); sys.exit(3)' {{rule}}"
    with (
        RestartKnob(command, [OWN[1].acceptance], "ENGINE_KEY") as knob,
        pytest.raises(EngineUnavailable, match=r"^The command ended with 3\. Its last line: \*\*\*$"),
    ):
        knob.tell(None, served)  # pyright: ignore[reportArgumentType] - the command is its own way
