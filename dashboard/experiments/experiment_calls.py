"""API endpoints for experiments, calibrations, pairs and engines, with the actions and roles of the page."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import gradio as gr
from typing_extensions import TypedDict

from dashboard.experiments.experiment_form import sweep_of
from dashboard.experiments.experiments_page import check_candidates
from dashboard.tables.run_record import ExperimentAnswer, experiment_record
from dashboard.ui import components
from dashboard.ui.api_call import ApiCall, call_of, checked_limit, does
from dashboard.ui.view import person_of
from fsd_core.actions import endpoints as endpoint_actions
from fsd_core.actions import pairs
from fsd_core.actions.action import actions_in
from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.request import build_calibration
from fsd_core.calibration.summary import calibration_status, status_json
from fsd_core.config import RULES, DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.model_names import dtype_of, models_of, template_arguments_of
from fsd_core.config.options import METHOD_OPTIONS, Option, in_python, loads_of, method, methods
from fsd_core.errors import NotApplicable, NotGiven, UnfitTask
from fsd_core.models.model_pairs import MODEL_PAIRS, check_drafter, check_folders, get_pair
from fsd_core.models.pair_check import badge_of
from fsd_core.review.evidence import fresh_rounds
from fsd_core.roles import require
from fsd_core.tasks.custom.custom_task import CustomTask, TaskFolder, find_task, keep, latest_custom_tasks, offered
from fsd_core.tasks.custom.custom_task import checked_name as checked_task_name
from fsd_core.tasks.custom.reading import check, grouped, noted
from fsd_core.texts import Id, Key
from fsd_core.worker import run_actions
from fsd_core.worker.endpoints import check_shared, endpoint_decodings, engine_to_calibrate
from fsd_core.worker.pair_names import (
    device_memory,
    recorded_name,
)
from fsd_core.worker.run_actions import begin

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.repository import Repository


class ChoicesAnswer(TypedDict):
    """What an experiment can be made of."""

    pairs: list[dict[str, Any]]
    own_pairs: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    options: list[dict[str, Any]]


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


class TaskAnswer(TypedDict):
    """A version of a task; ``task`` is the name that ``start_experiment`` takes."""

    task: str
    title: str
    scorer: str
    prompts: int
    added_by: str
    notes: list[str]


def calibration_calls(
    repository: Repository, home: Path, folder: TaskFolder, recorded: Callable[[str], str]
) -> list[ApiCall]:
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
        run_actions.go_on(repository, home, experiment, minutes)
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
        run_actions.time_finalists(repository, home, experiment)
        return read_calibration(experiment)

    return [start_calibration, read_calibration, continue_calibration, time_finalists]


def _evidence(repository: Repository, id: str, config: CalibrationConfig, outcome: Outcome) -> dict[str, list[str]]:
    """Return the evidence that ``propose`` takes: run ids of the setting and of the target on fresh prompts."""
    settings = map(config.setting_of, (outcome.chosen.decoding, config.target))
    runs, baselines = ([run.id for run in fresh_rounds(repository, id, setting.id)] for setting in settings)
    return {"runs": runs, "baselines": baselines}


def experiment_calls(repository: Repository, settings: Settings) -> list[ApiCall]:
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
        return components.perform(repository, home, person_of(request), "cancel", "experiment", experiment)

    @does(repeatable=True)
    def resume_experiment(experiment: Id, request: gr.Request) -> str:
        """Continue a cancelled or failed experiment, or the failed prompts of a finished one. Needs the role author.

        Args:
            experiment: its id
        """
        return components.perform(repository, home, person_of(request), "resume", "experiment", experiment)

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
    made = (*actions_in(pairs), *actions_in(endpoint_actions))
    endpoints += [call_of(action, repository, own_settings) for action in made]
    return [*endpoints, *calibration_calls(repository, home, folder, recorded)]


def _described(option: Option) -> dict[str, Any]:
    about: dict[str, Any] = {
        "option": option.name, "title": option.title, "about": option.help, "type": option.type.__name__,
        "default": option.default, "choices": list(option.choices), "low": option.low, "high": option.high,
        "of": list(option.owners),
    }  # fmt: skip
    return {key: value for key, value in about.items() if value not in (None, [], "")}
