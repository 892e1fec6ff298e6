"""Experiments and calibrations are asked for at every door alike, and wait in one queue."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request

from dashboard.experiments.experiments_page import time_left
from dashboard.experiments.find_panel import calibration_of
from dashboard.web import calls_of
from fsd_core.accounts import KEY
from fsd_core.calibration.planning import CalibrationStep, Outcome
from fsd_core.calibration.request import build_calibration
from fsd_core.calibration.summary import calibration_status
from fsd_core.cli import measuring_commands
from fsd_core.config import DecodingConfig, SweepConfig
from fsd_core.config.calibration_config import DRAFT_LENGTHS, REPLAYED, CalibrationConfig
from fsd_core.config.options import OPTIONS
from fsd_core.errors import (
    EngineUnavailable,
    InvalidSetting,
    Malformed,
    NotApplicable,
    NotEnough,
    OutOfRange,
    Refused,
    Taken,
    UnknownName,
    WrongState,
)
from fsd_core.roles import Person
from fsd_core.rules import Served
from fsd_core.settings import Settings
from fsd_core.storage.records import Edit, ExperimentView, RunView
from fsd_core.storage.repository import Repository
from fsd_core.tasks import get_task
from tests.tools.plausible import finish
from tests.tools.run_views import MOMENT, decoding, metrics, run_view

FORM = {
    **{name: option.default for name, option in OPTIONS.items()},
    "baselines": ["autoregressive", "speculative"], "tuned": ["fsd-reducible"], "several": [], "divergence": ["js"],
    "threshold": "0.05, 0.3", "drafter": ["draft-model"], "topology": ["chain"], "seeds": "3", "name": "Mine",
    "draft_length": "5, 8", "task": "arithmetic",
}  # fmt: skip
MANY = {"acceptance": ["fsd-reducible"], "threshold": "0:0.6:100", "draft_length": [4, 8, 16]}
SERVED = Served(engine="vllm", endpoint="mine", url="http://127.0.0.1:8000", model="toy")
CHOSEN = {"acceptance": ["fsd-reducible"], "threshold": [0.05, 0.3], "draft_length": [5, 8]}


class Programs:
    """The endpoints, called as somebody of a role."""

    def __init__(self, repository: Repository, home: Path) -> None:
        self.repository = repository
        self._endpoints = {one.__name__: one for one in calls_of(repository, Settings(home=home))}

    def start(self, role: str = "author", **asked: Any) -> dict[str, Any]:
        request = Request({"type": "http", "state": {}, KEY: Person("Ann", role)})
        return self._endpoints["start_calibration"](request, **asked)

    def read(self, id: str) -> dict[str, Any]:
        return self._endpoints["read_calibration"](id)

    def more(self, id: str, role: str = "author", **asked: Any) -> dict[str, Any]:
        request = Request({"type": "http", "state": {}, KEY: Person("Ann", role)})
        return self._endpoints["continue_calibration"](id, request, **asked)

    def config(self, **asked: Any) -> CalibrationConfig:
        config = self.repository.experiment(self.start(**asked)["experiment"]).config
        assert isinstance(config, CalibrationConfig)
        return config


@pytest.fixture
def programs(repository: Repository, tmp_path: Path) -> Programs:
    return Programs(repository, tmp_path)


def test_command_line_library_page_and_programs_ask_for_the_same(programs: Programs) -> None:
    wanted = build_calibration(get_task("arithmetic"), [CHOSEN], name="Mine", margin=5.0, minutes=3.0, seeds=(3,))
    page = calibration_of(FORM, "accuracy", 5.0, 3.0, get_task)
    program = programs.config(settings=[CHOSEN], name="Mine", margin=5.0, minutes=3.0, seed=3)
    typed = {"acceptance": ["fsd-reducible"], "thresholds": "0.05,0.3", "draft_length": [5, 8], "seed": 3}
    command = measuring_commands._config(
        typed, programs_settings(), goal="accuracy", margin=5.0, acceptance=None, minutes=3.0, limit=None, choosing=None
    ).model_copy(update={"name": "Mine"})
    assert wanted == page == program == command
    assert (wanted.limit, wanted.choosing, wanted.seeds, wanted.pair) == (600, 64, (3,), "bundled")
    assert len(wanted.decodings) == 8  # four of the rule, exact SD and block at both lengths


def test_a_running_engine_s_calibration_is_the_same_at_each_door(programs: Programs) -> None:
    told, repository = SERVED, programs.repository
    repository.add_engine(told, "", "Ann")
    rules = {"acceptance": ["fsd-reducible"], "threshold": [0.05, 0.3]}
    wanted = build_calibration(
        get_task("arithmetic"), [rules], name="Mine", margin=5.0, minutes=3.0, seeds=(3,), endpoint=told
    )
    page = calibration_of(FORM, "accuracy", 5.0, 3.0, get_task, told)  # its drafts and lengths are left out
    program = programs.config(settings=[rules], name="Mine", margin=5.0, minutes=3.0, seed=3, endpoint="mine")
    assert wanted == page == program
    assert wanted.endpoint == told
    assert [one.acceptance.knob_value for one in wanted.decodings] == [None, 0.05, 0.3]
    alone = programs.config(endpoint="mine")
    told_rules = [one.acceptance.rule for one in alone.decodings if isinstance(one.acceptance, Served)]
    assert {rule.kind for rule in told_rules if rule} == {"speculative", "fsd-reducible"}
    with pytest.raises(NotApplicable, match="draft_length"):
        programs.start(settings=[CHOSEN], endpoint="mine")
    with pytest.raises(UnknownName, match="nobody"):
        programs.start(endpoint="nobody")
    repository.add_engine(told.model_copy(update={"endpoint": "cpp", "engine": "llama.cpp"}), "", "Ann")
    with pytest.raises(EngineUnavailable, match="no rule while it runs"):
        programs.start(endpoint="cpp")
    assert len(repository.experiments(1000)) == 2


def programs_settings() -> Settings:
    return Settings(device="auto")


def test_without_settings_every_rule_that_forgives_takes_part_at_lengths_that_replay_proposes(
    programs: Programs,
) -> None:
    config = programs.config()
    assert config == build_calibration(get_task("arithmetic"), margin=2.0)
    assert config.lengths == REPLAYED
    assert len({one.topology for one in config.decodings}) == 1  # of no length yet
    begun = programs.start()
    assert begun["standing"] == "proposing"
    some = programs.config(settings=[CHOSEN, {"acceptance": "typical"}])
    assert some.lengths == ()
    typical = [one for one in some.decodings if one.acceptance.kind == "typical"]
    assert {one.topology.length for one in typical if one.topology} == {*DRAFT_LENGTHS}
    form = {name: value for name, value in FORM.items() if name != "draft_length"}
    assert calibration_of(form, "speed", None, 1.0, get_task).lengths == REPLAYED
    assert len({one.acceptance.kind for one in config.decodings}) > 5
    assert config.name == "Find the setting on Arithmetic word problems"


def test_what_has_begun_says_what_is_written(programs: Programs) -> None:
    begun = programs.start(settings=[CHOSEN], goal="speed", limit=32, choosing=8)
    assert (begun["standing"], begun["status"], begun["verdict"]) == ("choosing", "queued", None)
    assert (begun["turn"]["first_prompt"], begun["turn"]["last_prompt"], begun["candidates"]) == (1, 8, 8)
    assert begun["turn"]["settings"][0]["label"] == "Target alone"
    assert len(begun["turn"]["settings"]) == 9
    assert programs.read(begun["experiment"]) == begun
    other = programs._endpoints["start_experiment"](
        [{"acceptance": "speculative"}], Request({"type": "http", "state": {}, KEY: Person("Ann", "author")}), limit=1
    )
    with pytest.raises(NotApplicable):
        programs.read(other["experiment"])


def test_a_call_with_the_same_key_is_done_once(programs: Programs) -> None:
    request = Request({"type": "http", "state": {}, KEY: Person("Ann", "author")})
    start = programs._endpoints["start_experiment"]
    begun = [programs.start(settings=[CHOSEN], key="1f" * 16)["experiment"] for _ in range(2)]
    begun += [start([{"acceptance": "speculative"}], request, limit=1, key="2e" * 16)["experiment"] for _ in range(2)]
    assert begun == ["1f" * 16] * 2 + ["2e" * 16] * 2
    assert len(programs.repository.experiments(1000)) == 2
    for key in ("1f", "1F" * 16, "<b>", "1f" * 17):
        with pytest.raises(Malformed):
            start(settings=[CHOSEN], key=key, request=request)
    with pytest.raises(Taken, match="that of another experiment"):
        programs.start(settings=[{"acceptance": ["typical"]}], key="1f" * 16)
    programs.repository.annotate("experiment", "1f" * 16, Edit(name="Renamed"), Person("Ann", "author"))
    assert programs.start(settings=[CHOSEN], key="1f" * 16)["experiment"] == "1f" * 16
    assert len(programs.repository.experiments(1000)) == 2


def ended(repository: Repository, id: str) -> Outcome:
    """A calibration whose prompts are all done in the time that they would take."""
    config = repository.experiment(id).config
    assert isinstance(config, CalibrationConfig)
    while isinstance(at := calibration_status(repository, config, repository.experiment(id).runs), CalibrationStep):
        ids = repository.extend_experiment(id, config.round_runs(at.decodings, at.start, at.end))
        for run in repository.runs(ids, limit=None):
            finish(repository, run)
    return at


def test_time_is_given_to_what_the_minutes_ended_alone(programs: Programs) -> None:
    id = programs.start(settings=[CHOSEN], goal="speed", limit=32, choosing=8, minutes=0.01)["experiment"]
    with pytest.raises(Refused, match="author"):
        programs.more(id, "viewer")
    with pytest.raises(WrongState):
        programs.more(id)
    repository = programs.repository
    done = ended(repository, id)
    assert done.more is not None
    assert programs.read(id)["more"] == done.more._asdict()
    with pytest.raises(WrongState):
        programs.more(id, minutes=3)
    job = repository.claim(("experiment",), lease_seconds=600)
    assert job is not None
    repository.finish_job(id, str(job.claim_token), "finished")
    with pytest.raises(OutOfRange, match="The time added"):
        programs.more(id, minutes=20_000)
    with pytest.raises(OutOfRange, match="The time added"):
        programs.more(id, minutes=-1)
    assert programs.more(id)["minutes"] == 0.01 + math.ceil(done.more.minutes)
    assert repository.experiment(id).status == "queued"
    assert ended(repository, id).reason != "minutes"
    with pytest.raises(WrongState):
        programs.more(id)
    other = repository.create_experiment(SweepConfig(decodings=(DecodingConfig(),), task="arithmetic"))
    with pytest.raises(NotApplicable):
        programs.more(other)


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"margin": 0.2}, "takes at least 2609 prompts beside the 64 that choose, 2673 in all, and the task"),
        ({"margin": 21.0}, "margin is 21.0: expected at most 20"),
        ({"goal": "acceptance", "accepted": 1.0}, "accepted is 1.0: expected less than 1"),
        ({"goal": "acceptance", "accepted": 0.0}, "accepted is 0.0: expected more than 0"),
        ({"minutes": 0.0}, "minutes is 0.0: expected more than 0"),
        ({"choosing": 4}, "choosing is 4: expected at least 8"),
        ({"limit": 601}, "a limit from 1 to 600"),
        (
            {"task": "everyday", "margin": 20.0, "choosing": 8},
            "'everyday' scores nothing, so no accuracy",
        ),
        ({"settings": [{"acceptance": "draft-only"}]}, "drafts nothing, so a calibration cannot choose it"),
        ({"settings": [{"speed": 3}]}, "There is no option 'speed'"),
        ({"settings": [CHOSEN, {**CHOSEN, "temperature": 1.0}]}, "so all are asked and sampled alike"),
        ({"settings": [MANY]}, "settings to choose from: expected at most 200"),
        ({"settings": [{"drafter": "eagle", "acceptance": "fsd"}], "pair": "qwen2.5-7b", "task": "arithmetic"}, "head"),
    ],
)
def test_what_cannot_be_is_refused_in_the_words_of_programs(
    programs: Programs, asked: dict[str, Any], told: str
) -> None:
    with pytest.raises(InvalidSetting, match=told):
        programs.start(**asked)
    assert len(programs.repository.experiments(1000)) == 0


def test_roles_and_names_hold(programs: Programs) -> None:
    with pytest.raises(Refused, match="Starting a calibration"):
        programs.start("viewer")
    with pytest.raises(UnknownName, match="nobody"):
        programs.start(pair="nobody")
    with pytest.raises(UnknownName, match=r"\.\./etc"):
        programs.start(task="../etc")
    assert len(programs.repository.experiments(1000)) == 0


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"tuned": [], "baselines": ["autoregressive"]}, "No algorithm is chosen"),
        ({"seeds": "1, 2"}, "A calibration has one seed"),
        ({"divergence": []}, "No divergence is chosen"),
        ({"task": "nope"}, "There is no task 'nope'"),
    ],
)
def test_the_form_answers_in_its_own_words(change: dict[str, Any], told: str) -> None:
    with pytest.raises((InvalidSetting, UnknownName), match=told):
        calibration_of(FORM | change, "accuracy", 5.0, 3.0, get_task)


@pytest.mark.parametrize(
    ("goal", "bound", "minutes", "told"),
    [
        ("accuracy", 101.0, 3.0, r"^The accuracy margin is 101.*: expected at most 20\.$"),
        ("accuracy", -1.0, 3.0, r"^The accuracy margin is -1.*: expected more than 0\.$"),
        ("accuracy", None, 3.0, r"^The accuracy margin is empty: expected a number\.$"),
        ("acceptance", 150.0, 3.0, "^The percent accepted is 150: expected more than 0 and less than 100"),
        ("acceptance", None, 3.0, r"^The percent accepted is empty: expected a number\.$"),
        ("speed", None, -1.0, r"^Minutes is -1.*: expected more than 0\.$"),
        ("speed", None, 1e9, r"^Minutes is .*: expected at most 10080\.$"),
        ("speed", None, None, r"^Minutes is empty: expected a number\.$"),
    ],
)
def test_a_number_that_cannot_be_names_its_field(
    goal: str, bound: float | None, minutes: float | None, told: str
) -> None:
    with pytest.raises(InvalidSetting, match=told):
        calibration_of(FORM, goal, bound, minutes, get_task)


def test_the_page_speaks_of_percent_and_of_what_it_lets_choose() -> None:
    with pytest.raises(OutOfRange, match="100"):
        calibration_of(FORM, "acceptance", 100.0, 3.0, get_task)
    with pytest.raises(NotEnough, match=r"5239.* raise the accuracy margin"):
        calibration_of(FORM, "accuracy", 0.1, 3.0, get_task)


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
