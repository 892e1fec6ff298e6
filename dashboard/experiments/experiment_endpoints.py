"""What programs may do with experiments: the same as the page, with the same roles."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.calibration_endpoints import calibration_endpoints
from dashboard.experiments.sweep_form import sweep_of
from dashboard.tables.run_record import experiment_record
from dashboard.ui import actions
from dashboard.ui.endpoint import Endpoint
from dashboard.ui.signed_in import person_of
from fsd_core.config import RULES, DecodingConfig
from fsd_core.config.building import in_python
from fsd_core.config.options import METHOD_OPTIONS, Option
from fsd_core.config.sweeps import methods
from fsd_core.errors import InvalidSetting
from fsd_core.models.model_pairs import MODEL_PAIRS, check_drafter, get_pair
from fsd_core.roles import require
from fsd_core.tasks.custom.lookup import TaskFolder, find_task, own_tasks
from fsd_core.tasks.suitable import offered
from fsd_core.worker import gpu_billing

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository

_MOST_LISTED = 100


def experiment_endpoints(repository: Repository, settings: Settings) -> list[Endpoint]:
    home, folder = settings.home, TaskFolder(settings.tasks_folder)

    def list_choices() -> dict[str, Any]:
        """What an experiment can be made of: model pairs with the tasks that can be run (those that suit a pair first),
        acceptance rules, and the options of a setting with their ranges and defaults."""
        folder.take_in(repository)
        own = own_tasks(repository)
        return {
            "pairs": [
                {"pair": name, "title": pair.title, "tasks": [task.name for task in offered(pair, own)]}
                for name, pair in MODEL_PAIRS.items()
            ],
            "rules": [
                {"acceptance": kind, "title": rule.title, "lossless": rule.lossless, "about": rule.explanation}
                for kind, rule in RULES.items()
            ],
            "options": [_described(option) for option in METHOD_OPTIONS.values()],
        }

    def list_experiments(limit: int = 20, archived: bool = False) -> list[dict[str, Any]]:
        """The latest experiments with how far they are, the newest first.

        Args:
            limit: how many, 1 to 100
            archived: whether archived ones are among them
        """
        shown = max(1, min(limit, _MOST_LISTED))
        return [experiment_record(one) for one in repository.experiments(limit=shown, archived=archived)]

    def read_experiment(experiment: str) -> dict[str, Any]:
        """An experiment with its runs: options, status, and every metric with its 95 % interval. Its status is queued,
        running, finished, failed or cancelled.

        Args:
            experiment: its id, as start_experiment and list_experiments give it
        """
        return experiment_record(repository.experiment(experiment), runs=True)

    def start_experiment(
        settings: list[dict[str, Any]],
        request: gr.Request,
        pair: str = "bundled",
        task: str = "",
        limit: int = 50,
        seeds: list[int] = [0],  # noqa: B006  # read, never written; a tuple would have no schema
        name: str = "",
        batch: int = 1,
    ) -> dict[str, Any]:
        """Starts an experiment: several settings on the same prompts, taking turns, done by the worker. Returns it with
        its id at once; read_experiment tells how far it is. Needs the role author.

        Args:
            settings: options by name (list_choices has them), such as [{"acceptance": "autoregressive"}, {"acceptance":
                "speculative"}, {"acceptance": "fsd-reducible", "threshold": [0.02, 0.1], "draft_length": [5, 16]}]; of
                acceptance, drafter, topology, divergence, draft_length and a rule's knob a list makes one setting each
            pair: model pair
            task: task; of your own, its name or one of its versions; left out, the one that suits the pair best
            limit: how many of the task's prompts, from the first
            seeds: seeds of all randomness, a run of each setting for each
            name: what the experiment should find out
            batch: texts written side by side; 1 times each by itself
        """
        require(person_of(request), "author", "Starting an experiment")
        if not settings:
            raise InvalidSetting("No setting is given: give at least one, such as [{'acceptance': 'speculative'}].")
        chosen = task or offered(get_pair(pair))[0].name
        folder.take_in(repository)
        found = find_task(chosen, repository)
        found.check_limit(limit)
        decodings: dict[DecodingConfig, None] = {d: None for setting in settings for d in methods(setting)}
        for decoding in decodings:
            check_drafter(pair, decoding)
        sweep = sweep_of(
            decodings, in_python, name=name, pair=pair, task=found.name, limit=limit, seeds=seeds, batch=batch
        )
        gpu_billing.note(id := repository.create_experiment(sweep))
        return experiment_record(repository.experiment(id), runs=True)

    def cancel_experiment(experiment: str, request: gr.Request) -> str:
        """Stops an experiment after its current prompt; what is done is kept. Needs the role author.

        Args:
            experiment: its id
        """
        return actions.perform(repository, home, person_of(request), "cancel", "experiment", experiment)

    def resume_experiment(experiment: str, request: gr.Request) -> str:
        """Continues a cancelled or failed experiment, and the failed prompts of a finished one. Needs the role author.

        Args:
            experiment: its id
        """
        return actions.perform(repository, home, person_of(request), "resume", "experiment", experiment)

    own = [list_choices, list_experiments, read_experiment, start_experiment, cancel_experiment, resume_experiment]
    return [*own, *calibration_endpoints(repository, home, folder)]


def _described(option: Option) -> dict[str, Any]:
    about: dict[str, Any] = {
        "option": option.name, "title": option.title, "about": option.help, "type": option.type.__name__,
        "default": option.default, "choices": list(option.choices), "low": option.low, "high": option.high,
        "of": list(option.owners),
    }  # fmt: skip
    return {key: value for key, value in about.items() if value not in (None, [], "")}
