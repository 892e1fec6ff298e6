"""Calibrations of a running engine: our own loop behind a server that is told its rule, beside our own loop itself."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import fsd_core
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.running import calibrate
from fsd_core.calibration.summary import finding_text, verdict
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig, engine_candidates, read_sweep
from fsd_core.config.options import method
from fsd_core.decoding import decoder, loop
from fsd_core.engines import client
from fsd_core.engines.client import PluginKnob, RestartKnob
from fsd_core.errors import EngineUnavailable, FsdError, InvalidSetting, NotApplicable, UnknownName
from fsd_core.evaluation import harness
from fsd_core.evaluation.runner import RunObserver
from fsd_core.models.loading import LoadedPair
from fsd_core.review.delivery import deliver
from fsd_core.review.review_service import ReviewService
from fsd_core.roles import Person
from fsd_core.rules import Rule, Served
from fsd_core.settings import Settings
from fsd_core.storage.records import RunView
from fsd_core.storage.repository import Repository
from fsd_core.storage.review_events import Requirements
from fsd_core.testing import save_toy_pair, toy_pair
from fsd_core.worker.run_actions import open_repository
from tests.tools.toy_engine import ToyEngine
from tests.tools.virtual_time import time_by_forwards

NOISE = 0.15
GAMMA = 5
SHORT: dict[str, Any] = {"max_new_tokens": 12, "draft_length": GAMMA}
SD = method({"acceptance": "speculative", **SHORT})
OWN = [SD, *(method({"acceptance": "fsd-reducible", "threshold": js, **SHORT}) for js in (0.1, 0.3))]
SMALL: dict[str, Any] = {"limit": 40, "choosing": 8, "minutes": 60.0, "goal": "accuracy", "margin": 20.0}


@pytest.fixture(scope="module")
def pair() -> LoadedPair:
    return toy_pair(NOISE)


@pytest.fixture
def saved(tmp_path: Path) -> str:
    return save_toy_pair(tmp_path / "pair", NOISE)


@pytest.fixture(scope="module")
def server(pair: LoadedPair) -> Iterator[ToyEngine]:
    with ToyEngine(pair, SD) as engine:
        yield engine


@pytest.fixture
def engine(server: ToyEngine) -> ToyEngine:
    server.reset(SD)
    server.has_knob = True
    return server


@pytest.fixture(autouse=True)
def clock(pair: LoadedPair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes while a model is asked, here and at the engine, and whatever this machine does at the moment."""
    time_by_forwards(monkeypatch, pair, loop, decoder, harness, client, client)


def no_pair(*_: str) -> LoadedPair:
    raise AssertionError("no pair is loaded for an engine")


def asked(saved: str, decodings: list[DecodingConfig], **more: object) -> CalibrationConfig:
    return CalibrationConfig.model_validate({"pair": saved, "decodings": tuple(decodings)} | SMALL | more)


def of_engine(saved: str, repository: Repository, engine: ToyEngine, **more: object) -> tuple[str, CalibrationConfig]:
    repository.add_engine(engine.served(), "", "Ann")
    config = asked(saved, engine_candidates(engine.served(), OWN), **more)
    return repository.create_experiment(config, enqueue=False), config


def rule_of(decoding: DecodingConfig) -> Rule | None:
    return decoding.acceptance.rule if isinstance(decoding.acceptance, Served) else decoding.acceptance


def figures(outcome: Outcome) -> list[Any]:
    return [
        (rule_of(finding.decoding), finding.prompts, finding.sure, finding.difference, finding.at_least)
        for finding in outcome.finalists
    ]


@pytest.mark.wide
def test_from_nothing_to_a_proposal_and_equal_to_our_own_loop(
    repository: Repository, saved: str, pair: LoadedPair, engine: ToyEngine
) -> None:
    own_config = asked(saved, OWN)
    own_id = repository.create_experiment(own_config, enqueue=False)
    own = calibrate(repository, own_id, own_config, lambda *_: pair)
    id, config = of_engine(saved, repository, engine)
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


class Stops:
    """Lets so many prompts be done, then interrupts as from the keyboard."""

    def __init__(self, prompts: int) -> None:
        self.left = prompts

    def __call__(self, run: RunView) -> None:
        if self.left == 0:
            raise KeyboardInterrupt
        self.left -= 1


@pytest.mark.wide
def test_cut_off_it_goes_on_and_asks_no_prompt_twice(
    repository: Repository, saved: str, engine: ToyEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = {"goal": "speed", "limit": 24}
    whole = calibrate(repository, *of_engine(saved, repository, engine, **short), no_pair)
    total, _ = len(engine.asked), engine.asked.clear()
    id, config = of_engine(saved, repository, engine, **short)
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


@pytest.mark.wide
def test_the_library_finds_the_setting_of_a_running_engine(saved: str, engine: ToyEngine, home: Path) -> None:
    repository = open_repository(Settings(home=home))
    repository.add_engine(engine.served(), "", "Ann")
    options = {"acceptance": "fsd-reducible", "threshold": [0.1, 0.3], "max_new_tokens": 12}
    found = fsd_core.calibrate(
        "arithmetic", pair=saved, endpoint="toy", goal="speed", limit=24, choosing=8, home=home, **options
    )
    assert found.verdict.startswith("Use Served · vLLM toy · FSD reducible · js ≤ ")
    assert found.experiment_id is not None
    runs = repository.experiment(found.experiment_id).runs
    assert {run.label for run in runs} == {decoding.label for decoding in found.config.decodings}
    assert len(engine.asked) == sum(run.prompts_done for run in runs)
    with pytest.raises(NotApplicable, match="draft_length"):
        fsd_core.calibrate("arithmetic", pair=saved, endpoint="toy", draft_length=4, home=home)
    with pytest.raises(UnknownName, match="toy"):  # nobody has named one where nothing is kept
        fsd_core.calibrate("arithmetic", pair=saved, endpoint="toy")


@pytest.mark.wide
def test_a_knob_that_does_nothing_is_noticed(repository: Repository, saved: str, engine: ToyEngine) -> None:
    engine.obeys = False
    id, config = of_engine(saved, repository, engine)
    with pytest.raises(FsdError, match=r"The knob of the endpoint 'toy' does nothing: at its strict value and at .*"
                       r"js ≤ 0.3 it wrote the same 8 texts, and accepted \d+ of \d+ drafted tokens each"):  # fmt: skip
        calibrate(repository, id, config, no_pair)
    assert len(engine.asked) == 8 * len(OWN)
    with pytest.raises(FsdError, match="does nothing"):  # and a second time, without a prompt
        calibrate(repository, id, config, no_pair)
    assert len(engine.asked) == 8 * len(OWN)


@pytest.mark.wide
def test_an_engine_that_says_that_another_rule_is_in_force_is_not_measured(
    repository: Repository, saved: str, engine: ToyEngine
) -> None:
    engine.admits = True
    id, config = of_engine(saved, repository, engine)
    with pytest.raises(EngineUnavailable, match="ignores its knob"):
        calibrate(repository, id, config, no_pair)
    runs = repository.experiment(id).runs
    assert not any(run.prompts_done for run in runs if not run.decoding.acceptance.is_exact)


@pytest.mark.wide
def test_somebody_else_turns_the_knob_in_the_middle_and_that_answer_is_not_kept(
    repository: Repository, saved: str, engine: ToyEngine
) -> None:
    def turned(request: Any) -> None:
        request.answer()
        engine.told = {"kind": "typical", "posterior_threshold": 0.3}

    id, config = of_engine(saved, repository, engine)
    engine.faults += [turned]
    with pytest.raises(EngineUnavailable, match="somebody else turns it"):
        calibrate(repository, id, config, no_pair)
    assert sum(run.prompts_done for run in repository.experiment(id).runs) == 0


@pytest.mark.wide
def test_without_its_address_and_without_counts_an_engine_is_refused_in_a_sentence(
    repository: Repository, saved: str, engine: ToyEngine
) -> None:
    engine.has_knob = False
    id, config = of_engine(saved, repository, engine)
    with pytest.raises(EngineUnavailable, match="VLLM_SERVER_DEV_MODE=1"):
        calibrate(repository, id, config, no_pair)
    engine.has_knob, engine.metrics = True, False
    id, config = of_engine(saved, repository, engine, goal="acceptance", acceptance=0.5)
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


@pytest.mark.wide
def test_an_engine_that_a_command_restarts(
    repository: Repository, saved: str, engine: ToyEngine, tmp_path: Path
) -> None:
    """Real processes, one for each value, which write what the engine writes whose knob is turned.

    Our clock stands still while they write, so nothing is faster than the strict value, and the first prompts are all.
    """
    knobs = [OWN[0], OWN[2]]
    with ToyEngine(engine.pair, SD) as gone:
        served = gone.served("restarted")  # its port is free again
    repository.add_engine(served, "", "Ann")
    config = asked(saved, engine_candidates(served, knobs), limit=24, goal="speed")
    starts, port = tmp_path / "its starts; $(touch nothing)", served.url.rpartition(":")[2]
    command = f"{sys.executable} -c '{SERVE}' '{saved}' {port} '{starts}' {{rule}}"
    rules = [rule for decoding in config.decodings if (rule := rule_of(decoding))]
    id = repository.create_experiment(config, enqueue=False)
    with RestartKnob(command, rules) as knob:
        outcome = calibrate(repository, id, config, no_pair, knob=knob)
    with pytest.raises(EngineUnavailable):  # it ended with the knob
        client.check_engine(served)
    told = [json.loads(line) for line in starts.read_text().splitlines()]
    assert told == [{"kind": "off"}, OWN[2].acceptance.as_json()]
    config = asked(saved, engine_candidates(engine.served(), knobs), limit=24, goal="speed")
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


def test_a_key_that_a_command_prints_is_in_no_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGINE_KEY", "sk-live-4711")
    served = Served(engine="vllm", endpoint="a", url="http://127.0.0.1:9", model="m", rule=OWN[1].acceptance)
    command = f"{sys.executable} -c 'import os, sys; print(os.environ[\"ENGINE_KEY\"]); sys.exit(3)' {{rule}}"
    with (
        RestartKnob(command, [OWN[1].acceptance], "ENGINE_KEY") as knob,
        pytest.raises(EngineUnavailable, match=r"^The command ended with 3\. Its last line: \*\*\*$"),
    ):
        knob.tell(None, served)  # pyright: ignore[reportArgumentType] - the command is its own way
