"""What programs may do with calibrations: the same as "Find the setting", with the same roles."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import gradio as gr

from dashboard.experiments.find_setting import check_candidates
from dashboard.ui.endpoint import Endpoint
from dashboard.ui.signed_in import person_of
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.request import asked_for
from fsd_core.calibration.status import standing
from fsd_core.calibration.summary import standing_json
from fsd_core.config import SettingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.errors import InvalidSetting
from fsd_core.models.model_pairs import get_pair
from fsd_core.review.pooling import fresh_turns
from fsd_core.roles import require
from fsd_core.tasks.custom.lookup import TaskFolder, find_task
from fsd_core.tasks.suitable import offered
from fsd_core.worker import gpu_billing, more_time

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


def calibration_endpoints(repository: Repository, home: Path, folder: TaskFolder) -> list[Endpoint]:
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
    ) -> dict[str, Any]:
        """Looks for the fastest setting that keeps a promise, done by the worker: some prompts choose among the
        settings, fresh ones try the best. Returns it with its id at once; read_calibration tells how far it is. Needs
        the role author.

        Args:
            settings: what to choose from: options by name (list_choices has them), such as [{"acceptance":
                ["fsd-reducible", "ensemble"], "draft_length": [4, 8]}, {"acceptance": "typical"}]; of acceptance,
                drafter, topology, divergence, draft_length and a rule's knob a list makes one setting each. Exact SD
                and the target alone are added. Left out, every rule that forgives anything
            pair: model pair
            task: task; of your own, its name or one of its versions; left out, the one that suits the pair best
            goal: accuracy (within margin points of the target alone), acceptance (accepted or more of the drafted
                tokens), or speed (the fastest, whatever it costs)
            margin: points of accuracy that may be lost, above 0 to 20, where the goal is accuracy
            accepted: least mean acceptance rate, above 0 and below 1, where the goal is acceptance
            minutes: of decoding that may be spent
            limit: prompts that may be used; left out, the task's, up to 600
            choosing: prompts that choose the finalists; the others try them
            seed: seed of all randomness, which also draws the order of the prompts
            name: what the calibration should find out
        """
        require(person_of(request), "author", "Starting a calibration")
        folder.take_in(repository)
        config = asked_for(
            find_task(task or offered(get_pair(pair))[0].name, repository), settings or [{}], pair=pair,
            limit=limit, name=name, goal=goal, margin=margin, acceptance=accepted, minutes=minutes, choosing=choosing,
            seeds=(seed,),
        )  # fmt: skip
        check_candidates(config)
        gpu_billing.note(id := repository.create_experiment(config))
        return read_calibration(id)

    def read_calibration(experiment: str) -> dict[str, Any]:
        """How far a calibration is (its standing: proposing, choosing, trying or ended), with what is written now and
        the setting that keeps the promise already, if one does (sure_so_far); in the end the verdict in a sentence, the
        setting to use with its id and figures, the finalists, where the time ended it how many more prompts and minutes
        it is expected to want, and as evidence the runs and baselines on fresh prompts that propose takes. Shares are
        from 0 to 1. Its status is queued, running, finished, failed or cancelled; read_experiment has its runs.

        Args:
            experiment: its id, as start_calibration and list_experiments give it
        """
        found = repository.experiment(experiment)
        config = found.config
        if not isinstance(config, CalibrationConfig):
            raise InvalidSetting(f"The experiment {found.id} is no calibration: read_experiment tells of it.")
        at = standing(repository, config, found.runs)
        return {
            "experiment": found.id,
            "name": found.name,
            "pair": config.pair,
            "status": found.status,
            "error": found.error,
            "candidates": len(config.decodings),
            "minutes": config.all_minutes,
            "minutes_spent": found.decoding_seconds / 60,
            **standing_json(config, at),
            "evidence": _evidence(repository, found.id, config, at) if isinstance(at, Outcome) else None,
        }

    def continue_calibration(experiment: str, request: gr.Request, minutes: float | None = None) -> dict[str, Any]:
        """Gives more time to a calibration that its minutes ended: the worker tries the same finalists on more fresh
        prompts. Whatever was seen, the promise holds at the same level. Needs the role author.

        Args:
            experiment: its id
            minutes: of decoding that may be spent beyond those that were given; left out, as many as it is expected
                to want, which read_calibration tells as more
        """
        require(person_of(request), "author", "Giving a calibration time")
        more_time.go_on(repository, home, experiment, minutes)
        return read_calibration(experiment)

    return [start_calibration, read_calibration, continue_calibration]


def _evidence(repository: Repository, id: str, config: CalibrationConfig, outcome: Outcome) -> dict[str, list[str]]:
    """What ``propose`` takes: ids of the setting's and of the target's turns on fresh prompts."""
    settings = (SettingConfig(pair=config.pair, decoding=one) for one in (outcome.chosen.decoding, config.target))
    runs, baselines = ([run.id for run in fresh_turns(repository, id, setting.id)] for setting in settings)
    return {"runs": runs, "baselines": baselines}
