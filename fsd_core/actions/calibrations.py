"""What is done with calibrations: started, read, and given more time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, cast

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, action
from fsd_core.actions.experiments import Experiment, check_size
from fsd_core.actions.pairs import recorded
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.request import build_calibration
from fsd_core.calibration.summary import calibration_status, status_json
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import NotApplicable
from fsd_core.models.model_pairs import get_pair
from fsd_core.review.evidence import fresh_rounds
from fsd_core.tasks.custom.custom_task import TaskFolder, find_task, offered
from fsd_core.texts import Id, Key
from fsd_core.worker import run_actions
from fsd_core.worker.endpoints import engine_to_calibrate
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.storage.repository import Repository

Goal = Literal["accuracy", "acceptance", "speed"]


class _Calibration(TypedDict):
    experiment: str
    name: str
    pair: str
    status: str
    error: str | None
    candidates: int
    minutes: float
    minutes_spent: float
    standing: str
    promise: str
    verdict: str | None
    goal: str
    task: str
    evidence: dict[str, list[str]] | None


class CalibrationAnswer(_Calibration, total=False):
    """A calibration: ``turn`` and ``sure_so_far`` until it has ended, and then what it has found."""

    turn: dict[str, Any]
    sure_so_far: dict[str, Any] | None
    reason: str
    chosen: dict[str, Any]
    finalists: list[dict[str, Any]]
    more: dict[str, Any] | None
    equal_in_time: list[dict[str, Any]]
    equal_within: float | None
    taken_share: float | None
    timed_again: bool
    target: dict[str, Any] | None


def _evidence(repository: Repository, id: str, config: CalibrationConfig, outcome: Outcome) -> dict[str, list[str]]:
    """Return the evidence that ``propose`` takes: run ids of the setting and of the target on fresh prompts."""
    settings = map(config.setting_of, (outcome.chosen.decoding, config.target))
    runs, baselines = ([run.id for run in fresh_rounds(repository, id, setting.id)] for setting in settings)
    return {"runs": runs, "baselines": baselines}


def check_candidates(config: CalibrationConfig) -> None:
    """Raise ``InvalidSetting`` for more settings to choose from than an experiment may have."""
    check_size(len(config.decodings), "settings to choose from", "thresholds or draft lengths")


@action(role="author", doing="Starting a calibration", writes=True)
def start_calibration(
    ask: Ask,
    settings: Annotated[
        list[dict[str, Any]], "settings to choose from, as described above. Default: every lenient rule"
    ] = [],  # noqa: B006  # read, never written; a tuple would have no schema
    pair: Annotated[str, "model pair, or the name that somebody gave to models of their own"] = "bundled",
    task: Annotated[
        str, "name of a task, or a version of a custom task. Default: the task that suits the pair best"
    ] = "",
    goal: Annotated[
        Goal, "accuracy (see margin), acceptance (see accepted), or speed (the fastest, at any cost)"
    ] = "accuracy",
    margin: Annotated[
        float, "for the goal accuracy: points that may be lost against the target alone, above 0 to 20"
    ] = 2.0,
    accepted: Annotated[float, "for the goal acceptance: least mean acceptance rate, above 0 and below 1"] = 0.9,
    minutes: Annotated[float, "minutes of decoding that may be spent"] = 10.0,
    limit: Annotated[int | None, "prompts that may be used. Default: the task's, up to 600"] = None,
    choosing: Annotated[int, "prompts that choose the finalists. The rest try them"] = 64,
    seed: Annotated[int, "seed of all randomness, including the order of the prompts"] = 0,
    name: Annotated[str, "what the calibration should find out"] = "",
    key: Annotated[
        Key, "32 hexadecimal digits, random for each calibration. Sent again with the same key, it is started once"
    ] = "",
    endpoint: Annotated[
        str,
        "running engine whose setting is looked for, as in list_endpoints. It is of the kind vllm and is told each "
        "rule while it runs. settings then have rules, knobs and sampling alone. Default: our own loop",
    ] = "",
) -> CalibrationAnswer:
    """Find the fastest setting that keeps a promise.

    The worker chooses among the settings on some prompts and tries the best on fresh ones. Returns the calibration with
    its id at once. read_calibration reports its progress.

    Each of settings has options by name (see list_choices), such as [{"acceptance": ["fsd-reducible", "ensemble"],
    "draft_length": [4, 8]}, {"acceptance": "typical"}]. A list of values makes one setting per value, for acceptance,
    drafter, topology, divergence, draft_length and a rule's knob. Exact SD and the target alone are added.
    """
    pair = recorded(ask, pair)
    TaskFolder(ask.settings.tasks_folder).take_in(ask.repository)
    config = build_calibration(
        find_task(task or offered(get_pair(pair))[0].name, ask.repository), settings or [{}], pair=pair,
        limit=limit, name=name, goal=goal, margin=margin, acceptance=accepted, minutes=minutes, choosing=choosing,
        seeds=(seed,), endpoint=engine_to_calibrate(ask.repository, endpoint),
    )  # fmt: skip
    check_candidates(config)
    return read_calibration(ask, begin(ask.repository, config, key))


@action()
def read_calibration(ask: Ask, experiment: Experiment) -> CalibrationAnswer:
    """Return the progress or the result of a calibration. Shares are from 0 to 1.

    Its standing is proposing, choosing, trying or ended, and its status is queued, running, finished, failed or
    cancelled. It has what is being written now and the setting that already keeps the promise, if any (sure_so_far). In
    the end it has the verdict in a sentence, the setting to use with its id and figures, the finalists and, as
    evidence, the runs and baselines on fresh prompts that propose takes. If the time ended it, it also has how many
    more prompts and minutes it is expected to need. What time does not tell apart from the setting to use is in
    equal_in_time, and taken_share says how much of the time other programs took. read_experiment has its runs.
    """
    view = ask.repository.experiment(experiment)
    config = view.config
    if not isinstance(config, CalibrationConfig):
        raise NotApplicable(f"The experiment {view.id} is no calibration: read_experiment tells of it.")
    state = calibration_status(ask.repository, config, view.runs)
    answer: dict[str, Any] = {
        "experiment": view.id,
        "name": view.name,
        "pair": config.pair,
        "status": view.status,
        "error": view.error,
        "candidates": len(config.decodings),
        "minutes": config.all_minutes,
        "minutes_spent": view.decoding_seconds / 60,
        **status_json(config, state),
        "evidence": _evidence(ask.repository, view.id, config, state) if isinstance(state, Outcome) else None,
    }
    return cast(CalibrationAnswer, answer)


@action(role="author", doing="Giving a calibration time", writes=True)
def continue_calibration(
    ask: Ask,
    experiment: Annotated[Id, "its id"],
    minutes: Annotated[
        float | None, "further minutes of decoding. Default: as many as read_calibration reports under more"
    ] = None,
) -> CalibrationAnswer:
    """Give more time to a calibration that used up its minutes.

    The worker tries the same finalists on more fresh prompts. Whatever was seen, the promise holds at the same level.
    """
    run_actions.go_on(ask.repository, ask.settings.home, experiment, minutes)
    return read_calibration(ask, experiment)


@action(role="author", doing="Timing finalists again", writes=True)
def time_finalists(ask: Ask, experiment: Annotated[Id, "its id"]) -> CalibrationAnswer:
    """Time the finalists of an ended calibration again, with exact SD and the target.

    The worker writes prompts that they have done once more, interleaved, for about a minute. Only times change:
    read_calibration then gives those, and says so (timed_again).
    """
    run_actions.time_finalists(ask.repository, ask.settings.home, experiment)
    return read_calibration(ask, experiment)
