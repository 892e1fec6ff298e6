"""What is done with experiments: started, read, cancelled and resumed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, action
from fsd_core.actions.answers import ExperimentAnswer, checked_limit, experiment_record
from fsd_core.actions.pairs import recorded
from fsd_core.config import RULES, DecodingConfig, SweepConfig
from fsd_core.config.model_names import dtype_of, models_of, template_arguments_of
from fsd_core.config.options import METHOD_OPTIONS, Named, Option, checked, in_python, loads_of, method, methods
from fsd_core.errors import NotGiven, OutOfRange
from fsd_core.models.model_pairs import MODEL_PAIRS, check_drafter, get_pair
from fsd_core.models.pair_check import badge_of
from fsd_core.tasks.custom.custom_task import TaskFolder, find_task, latest_custom_tasks, offered
from fsd_core.texts import Id, Key
from fsd_core.worker import run_actions
from fsd_core.worker.endpoints import check_shared, endpoint_decodings
from fsd_core.worker.pair_names import device_memory
from fsd_core.worker.run_actions import begin

_MOST_RUNS = 200

Experiment = Annotated[Id, "its id, from start_experiment or list_experiments"]


class ChoicesAnswer(TypedDict):
    """What an experiment can be made of."""

    pairs: list[dict[str, Any]]
    own_pairs: list[dict[str, Any]]
    rules: list[dict[str, Any]]
    options: list[dict[str, Any]]


def sweep_of(
    decodings: Iterable[DecodingConfig], named: Named, *, name: str, seeds: Iterable[int], **run: Any
) -> SweepConfig:
    """Return the experiment of these methods. ``named`` gives the name of an option in sentences.

    Raises ``InvalidSetting`` for invalid values and for too many runs.
    """
    sweep = checked(SweepConfig, named, name=name.strip()[:120], seeds=tuple(seeds), decodings=tuple(decodings), **run)
    check_size(len(sweep.runs()), "runs", "thresholds or seeds")
    return sweep


def check_size(count: int, what: str, fewer: str) -> None:
    """Raise ``InvalidSetting`` for more runs or settings than one experiment may have."""
    if count > _MOST_RUNS:
        raise OutOfRange(f"These are {count} {what}: expected at most {_MOST_RUNS}. Choose fewer {fewer}.")


def _described(option: Option) -> dict[str, Any]:
    about: dict[str, Any] = {
        "option": option.name, "title": option.title, "about": option.help, "type": option.type.__name__,
        "default": option.default, "choices": list(option.choices), "low": option.low, "high": option.high,
        "of": list(option.owners),
    }  # fmt: skip
    return {key: value for key, value in about.items() if value not in (None, [], "")}


@action()
def list_choices(ask: Ask) -> ChoicesAnswer:
    """Return what an experiment can be made of.

    These are model pairs with the tasks that can be run (suitable ones first), acceptance rules, and the options of a
    setting with their ranges and defaults.
    """
    TaskFolder(ask.settings.tasks_folder).take_in(ask.repository)
    custom_tasks, memory = latest_custom_tasks(ask.repository), device_memory(ask.repository)
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
            for pair in ask.repository.own_pairs()
        ],
        "rules": [
            {"acceptance": kind, "title": rule.title, "lossless": rule.lossless, "about": rule.explanation}
            for kind, rule in RULES.items()
        ],
        "options": [_described(option) for option in METHOD_OPTIONS.values()],
    }


@action()
def list_experiments(
    ask: Ask,
    limit: Annotated[int, "how many, 1 to 100"] = 20,
    archived: Annotated[bool, "whether to include archived experiments"] = False,
) -> list[ExperimentAnswer]:
    """Return the latest experiments with their progress, newest first."""
    views = ask.repository.experiments(limit=checked_limit(limit), archived=archived)
    return [experiment_record(view) for view in views]


@action()
def read_experiment(ask: Ask, experiment: Experiment) -> ExperimentAnswer:
    """Return an experiment with its runs: options, status, and every metric with its 95 % interval.

    Its status is queued, running, finished, failed or cancelled.
    """
    return experiment_record(ask.repository.experiment(experiment), runs=True)


@action(role="author", doing="Starting an experiment", writes=True)
def start_experiment(
    ask: Ask,
    settings: Annotated[list[dict[str, Any]], "settings to run, as described above"],
    pair: Annotated[str, "model pair, or the name that somebody gave to models of their own"] = "bundled",
    task: Annotated[
        str, "name of a task, or a version of a custom task. Default: the task that suits the pair best"
    ] = "",
    limit: Annotated[int, "how many of the task's prompts, from the first"] = 50,
    seeds: Annotated[list[int], "seeds of all randomness. Each seed makes one run of each setting"] = [0],  # noqa: B006  # read, never written; a tuple would have no schema
    name: Annotated[str, "what the experiment should find out"] = "",
    batch: Annotated[int, "batch size, the number of texts decoded together. 1 decodes each by itself"] = 1,
    key: Annotated[
        Key, "32 hexadecimal digits, random for each experiment. Sent again with the same key, it is started once"
    ] = "",
    endpoints: Annotated[
        list[str], "running engines by name (see list_endpoints), measured beside settings, or alone"
    ] = [],  # noqa: B006  # as above
    batches: Annotated[
        list[int], "several batch sizes in place of one, such as [1, 2, 4]. Each setting is measured under each load"
    ] = [],  # noqa: B006
    endpoint_options: Annotated[
        dict[str, Any],
        'what endpoints are asked with, such as {"temperature": 1, "max_new_tokens": 256}. Default: as the first '
        "setting",
    ] = {},  # noqa: B006
    rates: Annotated[
        list[float],
        "prompts that arrive in a second, such as [1, 2, 4], at endpoints alone. Each is measured under each rate, "
        "with arrivals at random. batch is then how many may be open at once (1: 64)",
    ] = [],  # noqa: B006
) -> ExperimentAnswer:
    """Start an experiment: several settings on the same prompts, taking turns.

    The worker runs it. Returns the experiment with its id at once. read_experiment reports its progress.

    Each of settings has options by name (see list_choices), such as [{"acceptance": "autoregressive"},
    {"acceptance": "speculative"}, {"acceptance": "fsd-reducible", "threshold": [0.02, 0.1], "draft_length": [5, 16]}].
    A list of values makes one setting per value, for acceptance, drafter, topology, divergence, draft_length and a
    rule's knob.
    """
    pair = recorded(ask, pair)
    if not settings and not endpoints:
        raise NotGiven("No setting is given: give at least one, such as [{'acceptance': 'speculative'}].")
    task_name = task or offered(get_pair(pair))[0].name
    TaskFolder(ask.settings.tasks_folder).take_in(ask.repository)
    resolved = find_task(task_name, ask.repository)
    resolved.check_limit(limit)
    decodings: dict[DecodingConfig, None] = {d: None for setting in settings for d in methods(setting)}
    for decoding in decodings:
        check_drafter(pair, decoding)
    check_shared(endpoint_options, in_python)
    sampled = method(endpoint_options) if endpoint_options else next(iter(decodings), DecodingConfig())
    engines = endpoint_decodings([ask.repository.engine(known) for known in endpoints], sampled.shared)
    sweep = sweep_of(
        [*decodings, *engines], in_python, name=name, pair=pair, task=resolved.name, limit=limit, seeds=seeds,
        **loads_of(batches or [batch], rates),
    )  # fmt: skip
    return experiment_record(ask.repository.experiment(begin(ask.repository, sweep, key)), runs=True)


@action(role="author", doing="Cancelling work", writes=True, repeatable=True)
def cancel_experiment(ask: Ask, experiment: Annotated[Id, "its id"]) -> str:
    """Stop an experiment after its current prompt and keep what is done."""
    return run_actions.cancel(ask.repository, "experiment", experiment)


@action(role="author", doing="Resuming work", writes=True, repeatable=True)
def resume_experiment(ask: Ask, experiment: Annotated[Id, "its id"]) -> str:
    """Continue a cancelled or failed experiment, or the failed prompts of a finished one."""
    name = run_actions.resume(ask.repository, ask.settings.home, "experiment", experiment)
    return f"{name} continues at its next prompt."
