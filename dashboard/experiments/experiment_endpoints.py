"""API endpoints for experiments, with the actions and roles of the page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import gradio as gr

from dashboard.experiments.calibration_endpoints import calibration_endpoints
from dashboard.experiments.engine_endpoints import engine_endpoints
from dashboard.experiments.experiment_answers import ChoicesAnswer, TaskAnswer
from dashboard.experiments.pair_endpoints import pair_endpoints
from dashboard.experiments.sweep_form import sweep_of
from dashboard.tables.run_record import ExperimentAnswer, experiment_record
from dashboard.ui import actions
from dashboard.ui.endpoint import Endpoint, checked_limit, does
from dashboard.ui.signed_in import person_of
from fsd_core.config import RULES, DecodingConfig
from fsd_core.config.building import in_python, method
from fsd_core.config.model_names import dtype_of, models_of, template_arguments_of
from fsd_core.config.options import METHOD_OPTIONS, Option
from fsd_core.config.sweeps import loads_of, methods
from fsd_core.errors import NotGiven, UnfitTask
from fsd_core.models.model_pairs import MODEL_PAIRS, check_drafter, get_pair
from fsd_core.models.model_roots import check_folders
from fsd_core.models.pair_check import badge_of
from fsd_core.roles import require
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import TaskFolder, find_task, keep, latest_custom_tasks
from fsd_core.tasks.custom.lookup import checked_name as checked_task_name
from fsd_core.tasks.custom.reading import check
from fsd_core.tasks.custom.similar import grouped, noted
from fsd_core.tasks.suitable import offered
from fsd_core.texts import Id, Key
from fsd_core.worker.device_memory import device_memory
from fsd_core.worker.endpoint_names import check_shared, endpoint_decodings
from fsd_core.worker.pair_names import recorded_name
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository


def experiment_endpoints(repository: Repository, settings: Settings) -> list[Endpoint]:
    home, folder, own_settings = settings.home, TaskFolder(settings.tasks_folder), settings

    def recorded(pair: str) -> str:
        """Return the name under which runs of a pair are recorded. Raises for one that may not be named here."""
        name = recorded_name(repository, pair)
        check_folders(name, own_settings)
        return name

    def list_choices() -> ChoicesAnswer:
        """Return what an experiment can be made of.

        These are model pairs with the tasks that can be run (suitable ones first), acceptance rules, and the options of
        a setting with their ranges and defaults.
        """
        folder.take_in(repository)
        custom_tasks, memory = latest_custom_tasks(repository), device_memory(repository)
        return {
            "pairs": [
                {
                    "pair": name,
                    "title": pair.title,
                    "tasks": [task.name for task in offered(pair, custom_tasks)],
                    "state": badge_of(name, memory),
                }
                for name, pair in MODEL_PAIRS.items()
            ],
            "own_pairs": [
                {
                    "pair": pair.name,
                    "models": models_of(pair.models),
                    "added_by": pair.added_by,
                    "template_arguments": template_arguments_of(pair.models),
                    "dtype": dtype_of(pair.models),
                    "state": badge_of(pair.models, memory),
                }
                for pair in repository.own_pairs()
            ],
            "rules": [
                {"acceptance": kind, "title": rule.title, "lossless": rule.lossless, "about": rule.explanation}
                for kind, rule in RULES.items()
            ],
            "options": [_described(option) for option in METHOD_OPTIONS.values()],
        }

    def list_experiments(limit: int = 20, archived: bool = False) -> list[ExperimentAnswer]:
        """Return the latest experiments with their progress, newest first.

        Args:
            limit: how many, 1 to 100
            archived: whether to include archived experiments
        """
        views = repository.experiments(limit=checked_limit(limit), archived=archived)
        return [experiment_record(view) for view in views]

    def read_experiment(experiment: Id) -> ExperimentAnswer:
        """Return an experiment with its runs: options, status, and every metric with its 95 % interval.

        Its status is queued, running, finished, failed or cancelled.

        Args:
            experiment: its id, from start_experiment or list_experiments
        """
        return experiment_record(repository.experiment(experiment), runs=True)

    @does()
    def start_experiment(
        settings: list[dict[str, Any]],
        request: gr.Request,
        pair: str = "bundled",
        task: str = "",
        limit: int = 50,
        seeds: list[int] = [0],  # noqa: B006  # read, never written; a tuple would have no schema
        name: str = "",
        batch: int = 1,
        key: Key = "",
        endpoints: list[str] = [],  # noqa: B006  # as above
        batches: list[int] = [],  # noqa: B006
        endpoint_options: dict[str, Any] = {},  # noqa: B006
        rates: list[float] = [],  # noqa: B006
    ) -> ExperimentAnswer:
        """Start an experiment: several settings on the same prompts, taking turns. Needs the role author.

        The worker runs it. Returns the experiment with its id at once. read_experiment reports its progress.

        Each of settings has options by name (see list_choices), such as [{"acceptance": "autoregressive"},
        {"acceptance": "speculative"}, {"acceptance": "fsd-reducible", "threshold": [0.02, 0.1], "draft_length": [5,
        16]}]. A list of values makes one setting per value, for acceptance, drafter, topology, divergence, draft_length
        and a rule's knob.

        Args:
            settings: settings to run, as described above
            pair: model pair, or the name that somebody gave to models of their own
            task: name of a task, or a version of a custom task. Default: the task that suits the pair best
            limit: how many of the task's prompts, from the first
            seeds: seeds of all randomness. Each seed makes one run of each setting
            name: what the experiment should find out
            batch: batch size, the number of texts decoded together. 1 decodes each by itself
            key: 32 hexadecimal digits, random for each experiment. Sent again with the same key, it is started once
            endpoints: running engines by name (see list_endpoints), measured beside settings, or alone
            batches: several batch sizes in place of one, such as [1, 2, 4]. Each setting is measured under each load
            endpoint_options: what endpoints are asked with, such as {"temperature": 1, "max_new_tokens": 256}. Default:
                as the first setting
            rates: prompts that arrive in a second, such as [1, 2, 4], at endpoints alone. Each is measured under each
                rate, with arrivals at random. batch is then how many may be open at once (1: 64)
        """
        require(person_of(request), "author", "Starting an experiment")
        pair = recorded(pair)
        if not settings and not endpoints:
            raise NotGiven("No setting is given: give at least one, such as [{'acceptance': 'speculative'}].")
        task_name = task or offered(get_pair(pair))[0].name
        folder.take_in(repository)
        resolved = find_task(task_name, repository)
        resolved.check_limit(limit)
        decodings: dict[DecodingConfig, None] = {d: None for setting in settings for d in methods(setting)}
        for decoding in decodings:
            check_drafter(pair, decoding)
        check_shared(endpoint_options, in_python)
        sampled = method(endpoint_options) if endpoint_options else next(iter(decodings), DecodingConfig())
        engines = endpoint_decodings([repository.engine(known) for known in endpoints], sampled.shared)
        sweep = sweep_of(
            [*decodings, *engines], in_python, name=name, pair=pair, task=resolved.name, limit=limit, seeds=seeds,
            **loads_of(batches or [batch], rates),
        )  # fmt: skip
        return experiment_record(repository.experiment(begin(repository, sweep, key)), runs=True)

    @does(repeatable=True)
    def cancel_experiment(experiment: Id, request: gr.Request) -> str:
        """Stop an experiment after its current prompt and keep what is done. Needs the role author.

        Args:
            experiment: its id
        """
        return actions.perform(repository, home, person_of(request), "cancel", "experiment", experiment)

    @does(repeatable=True)
    def resume_experiment(experiment: Id, request: gr.Request) -> str:
        """Continue a cancelled or failed experiment, or the failed prompts of a finished one. Needs the role author.

        Args:
            experiment: its id
        """
        return actions.perform(repository, home, person_of(request), "resume", "experiment", experiment)

    @does(repeatable=True)
    def add_task(
        name: str,
        lines: list[dict[str, Any]],
        request: gr.Request,
        scorer: str = "",
        title: str = "",
        all_turns: bool = False,
        group_similar: bool = False,
    ) -> TaskAnswer:
        """Add a task of one's own, or a new version of one. Needs the role author.

        Runs name the version that they measured, so what was measured stays. The same lines make no other version.

        Args:
            name: 1 to 40 small letters, digits and hyphens, such as support-questions
            lines: as in a file of JSON Lines: each has prompt or messages, and reference where it is scored
            scorer: number, choice, exact, contains, regex or none. Default: none, or what the first line says
            title: name that people see
            all_turns: whether the user turns of conversations are asked one after another
            group_similar: whether near-duplicates are made groups, each of which counts once
        """
        person = person_of(request)
        require(person, "author", "Adding a task")
        content = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()
        checked_task_name(name)
        checked = check(content, scorer or None, all_turns=all_turns)
        checked = grouped(checked) if group_similar else noted(checked, "or set group_similar")
        if checked.problems:
            raise UnfitTask(f"The task cannot be used. {checked.problems[0].sentence}")
        stored = keep(repository, CustomTask.of(name, checked, title.strip()), person.name)
        return {
            "task": stored.full_name,
            "title": stored.title,
            "scorer": stored.scorer,
            "prompts": stored.prompts,
            "added_by": stored.added_by,
            "notes": list(checked.notes),
        }

    endpoints = [
        add_task,
        list_choices,
        list_experiments,
        read_experiment,
        start_experiment,
        cancel_experiment,
        resume_experiment,
    ]
    endpoints += [*pair_endpoints(repository, settings), *engine_endpoints(repository, settings)]
    return [*endpoints, *calibration_endpoints(repository, home, folder, recorded)]


def _described(option: Option) -> dict[str, Any]:
    about: dict[str, Any] = {
        "option": option.name, "title": option.title, "about": option.help, "type": option.type.__name__,
        "default": option.default, "choices": list(option.choices), "low": option.low, "high": option.high,
        "of": list(option.owners),
    }  # fmt: skip
    return {key: value for key, value in about.items() if value not in (None, [], "")}
