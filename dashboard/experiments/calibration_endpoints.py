"""API endpoints for calibrations, with the actions and roles of "Find the setting"."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import gradio as gr

from dashboard.experiments.experiment_answers import CalibrationAnswer
from dashboard.experiments.find_setting import check_candidates
from dashboard.ui.endpoint import Endpoint, does
from dashboard.ui.signed_in import person_of
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.request import build_calibration
from fsd_core.calibration.status import calibration_status
from fsd_core.calibration.summary import status_json
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import NotApplicable
from fsd_core.models.model_pairs import get_pair
from fsd_core.review.pooling import fresh_rounds
from fsd_core.roles import require
from fsd_core.tasks.custom.lookup import TaskFolder, find_task
from fsd_core.tasks.suitable import offered
from fsd_core.texts import Id, Key
from fsd_core.worker import more_time
from fsd_core.worker.endpoint_names import engine_to_calibrate
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def calibration_endpoints(
    repository: Repository, home: Path, folder: TaskFolder, recorded: Callable[[str], str]
) -> list[Endpoint]:
    """Return the endpoints. ``recorded`` returns the name under which runs of a pair are recorded."""

    @does()
    def start_calibration(
        request: gr.Request,
        settings: list[dict[str, Any]] = [],  # noqa: B006  # read, never written; a tuple would have no schema
        pair: str = "bundled",
        task: str = "",
        goal: Literal["accuracy", "acceptance", "speed"] = "accuracy",
        margin: float = 2.0,
        accepted: float = 0.9,
        minutes: float = 10.0,
        limit: int | None = None,
        choosing: int = 64,
        seed: int = 0,
        name: str = "",
        key: Key = "",
        endpoint: str = "",
    ) -> CalibrationAnswer:
        """Find the fastest setting that keeps a promise. Needs the role author.

        The worker chooses among the settings on some prompts and tries the best on fresh ones. Returns the calibration
        with its id at once. read_calibration reports its progress.

        Each of settings has options by name (see list_choices), such as [{"acceptance": ["fsd-reducible", "ensemble"],
        "draft_length": [4, 8]}, {"acceptance": "typical"}]. A list of values makes one setting per value, for
        acceptance, drafter, topology, divergence, draft_length and a rule's knob. Exact SD and the target alone are
        added.

        Args:
            settings: settings to choose from, as described above. Default: every lenient rule
            pair: model pair, or the name that somebody gave to models of their own
            task: name of a task, or a version of a custom task. Default: the task that suits the pair best
            goal: accuracy (see margin), acceptance (see accepted), or speed (the fastest, at any cost)
            margin: for the goal accuracy: points that may be lost against the target alone, above 0 to 20
            accepted: for the goal acceptance: least mean acceptance rate, above 0 and below 1
            minutes: minutes of decoding that may be spent
            limit: prompts that may be used. Default: the task's, up to 600
            choosing: prompts that choose the finalists. The rest try them
            seed: seed of all randomness, including the order of the prompts
            name: what the calibration should find out
            key: 32 hexadecimal digits, random for each calibration. Sent again with the same key, it is started once
            endpoint: running engine whose setting is looked for, as in list_endpoints. It is of the kind vllm and is
                told each rule while it runs. settings then have rules, knobs and sampling alone. Default: our own loop
        """
        require(person_of(request), "author", "Starting a calibration")
        pair = recorded(pair)
        folder.take_in(repository)
        config = build_calibration(
            find_task(task or offered(get_pair(pair))[0].name, repository), settings or [{}], pair=pair,
            limit=limit, name=name, goal=goal, margin=margin, acceptance=accepted, minutes=minutes, choosing=choosing,
            seeds=(seed,), endpoint=engine_to_calibrate(repository, endpoint),
        )  # fmt: skip
        check_candidates(config)
        return read_calibration(begin(repository, config, key))

    def read_calibration(experiment: Id) -> CalibrationAnswer:
        """Return the progress or the result of a calibration. Shares are from 0 to 1.

        Its standing is proposing, choosing, trying or ended, and its status is queued, running, finished, failed or
        cancelled. It has what is being written now and the setting that already keeps the promise, if any
        (sure_so_far). In the end it has the verdict in a sentence, the setting to use with its id and figures, the
        finalists and, as evidence, the runs and baselines on fresh prompts that propose takes. If the time ended it, it
        also has how many more prompts and minutes it is expected to need. What time does not tell apart from the
        setting to use is in equal_in_time, and taken_share says how much of the time other programs took.
        read_experiment has its runs.

        Args:
            experiment: its id, from start_calibration or list_experiments
        """
        view = repository.experiment(experiment)
        config = view.config
        if not isinstance(config, CalibrationConfig):
            raise NotApplicable(f"The experiment {view.id} is no calibration: read_experiment tells of it.")
        state = calibration_status(repository, config, view.runs)
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
            "evidence": _evidence(repository, view.id, config, state) if isinstance(state, Outcome) else None,
        }
        return cast(CalibrationAnswer, answer)

    @does()
    def continue_calibration(experiment: Id, request: gr.Request, minutes: float | None = None) -> CalibrationAnswer:
        """Give more time to a calibration that used up its minutes. Needs the role author.

        The worker tries the same finalists on more fresh prompts. Whatever was seen, the promise holds at the same
        level.

        Args:
            experiment: its id
            minutes: further minutes of decoding. Default: as many as read_calibration reports under more
        """
        require(person_of(request), "author", "Giving a calibration time")
        more_time.go_on(repository, home, experiment, minutes)
        return read_calibration(experiment)

    @does()
    def time_finalists(experiment: Id, request: gr.Request) -> CalibrationAnswer:
        """Time the finalists of an ended calibration again, with exact SD and the target. Needs the role author.

        The worker writes prompts that they have done once more, interleaved, for about a minute. Only times change:
        read_calibration then gives those, and says so (timed_again).

        Args:
            experiment: its id
        """
        require(person_of(request), "author", "Timing finalists again")
        more_time.time_finalists(repository, home, experiment)
        return read_calibration(experiment)

    return [start_calibration, read_calibration, continue_calibration, time_finalists]


def _evidence(repository: Repository, id: str, config: CalibrationConfig, outcome: Outcome) -> dict[str, list[str]]:
    """Return the evidence that ``propose`` takes: run ids of the setting and of the target on fresh prompts."""
    settings = map(config.setting_of, (outcome.chosen.decoding, config.target))
    runs, baselines = ([run.id for run in fresh_rounds(repository, id, setting.id)] for setting in settings)
    return {"runs": runs, "baselines": baselines}
