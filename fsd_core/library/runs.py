"""Runs of a notebook that are calibrated, recorded and replayed, or logged from elsewhere."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any, Literal

from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.request import build_calibration
from fsd_core.calibration.running import calibrate as go_on
from fsd_core.calibration.summary import as_json, verdict
from fsd_core.config import DecodingConfig, RunConfig, SamplingConfig, SettingConfig, TemplateConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.config.options import checked, in_python
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import Malformed, TrackingUnavailable
from fsd_core.evaluation.logged_figures import LoggedFigures, checked_origin, plain
from fsd_core.evaluation.runner import RunObserver
from fsd_core.library.measuring import OnProgress, prompts_of, repository_of, shown
from fsd_core.library.text_decoder import lacks, loaded, need, spec_of
from fsd_core.models import threads
from fsd_core.models.loading import LoadedPair
from fsd_core.replays import recording, trace_file
from fsd_core.replays.prediction import Prediction, Replay, settings_of
from fsd_core.replays.recording import Validated
from fsd_core.replays.trace_file import Trace
from fsd_core.rules import MeasuredSeries
from fsd_core.rules.measured import LONGEST_SERIES_NAME, one_line
from fsd_core.settings import Settings, get_settings
from fsd_core.statistics.intervals import Estimate, keyed
from fsd_core.tasks import Task, get_task
from fsd_core.texts import DASH, number_text
from fsd_core.worker import run_actions
from fsd_core.worker.endpoints import engine_to_calibrate
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class Calibration:
    """The result of :func:`fsd_core.calibrate`."""

    config: CalibrationConfig
    outcome: Outcome
    experiment_id: str | None
    """its id in the home; ``None`` if nothing was stored"""

    @property
    def setting(self) -> DecodingConfig:
        """The setting to use."""
        return self.outcome.chosen.decoding

    @property
    def verdict(self) -> str:
        """How it ended, in sentences."""
        return verdict(self.config, self.outcome)

    def to_dict(self) -> dict[str, Any]:
        """Return the setting, the finalists and their results on fresh prompts, as plain data; shares from 0 to 1."""
        return as_json(self.config, self.outcome)

    def __repr__(self) -> str:
        return f"Calibration({self.verdict})"

    def _repr_html_(self) -> str | None:
        """Return the verdict and the finalists as the pages show them; ``None`` without Jinja."""
        if lacks("jinja2"):
            return None
        from fsd_core.library.notebook_view import calibration_view

        return calibration_view(self)


def calibrate(
    task: str | Task | None = None,
    *,
    pair: LoadedPair | str | Path = "bundled",
    goal: Literal["accuracy", "acceptance", "speed"] = "accuracy",
    margin: float = 2.0,
    accepted: float = 0.9,
    minutes: float = 10.0,
    limit: int | None = None,
    choosing: int = 64,
    seed: int = 0,
    endpoint: str = "",
    home: str | Path | None = None,
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Calibration:
    """Find the fastest setting that keeps a promise: some prompts narrow the settings down, others try the best.

    Args:
        goal: ``accuracy``: within ``margin`` points of the target alone; ``acceptance``: a mean acceptance rate of
            ``accepted`` or more; ``speed``: the fastest, whatever it costs. At a confidence of 95 %.
        minutes: Decoding time that may be spent.
        limit: Maximum number of prompts; by default the task's, up to 600.
        choosing: Number of prompts that narrow the settings down.
        seed: Seed of all randomness; it also draws the order of the prompts.
        endpoint: Name of a running engine that ``home`` has (``fsd-lab endpoints add``). It is told each rule while it
            runs, and its setting is looked for in place of our own loop's. The pair's models are not loaded. Options
            are then rules, knobs and sampling alone; by default the rule is ``fsd-reducible``.
        on_progress: Called before each prompt with the number done and 0, since how many it takes is not known before.
            By default a bar where somebody looks, as in :func:`fsd_core.compare`.
        options: Those of :func:`fsd_core.sweep`. Without ``acceptance`` all rules take part that have a knob and are
            lossy at the temperature. Without ``draft_length`` replay proposes the lengths.

    The other arguments and the exceptions are those of :func:`fsd_core.compare`. ``InvalidSetting`` is also raised if
    the prompts are too few for the margin, ``UnknownName`` if no endpoint has the name, and ``FsdError`` if the engine
    cannot be told a rule or its knob does nothing.
    """
    with repository_of(home) as (repository, folder):
        prompts = prompts_of(task or spec_of(pair).tasks[0], repository, folder)
        config = build_calibration(
            prompts, [options], pair=spec_of(pair).name, limit=limit, seeds=(seed,), goal=goal, margin=margin,
            acceptance=accepted, minutes=minutes, choosing=choosing, endpoint=engine_to_calibrate(repository, endpoint),
        )  # fmt: skip
        models = loaded(pair) if config.endpoint is None else None
        if models is not None:
            for decoding in config.decodings:
                PairDecoder(models, decoding)
            config = config.model_copy(update={"dtype": models.dtype, "device": models.device})
            threads.adopt(models)
        config = identified(repository, config, models.identity if models else None)
        id = repository.create_experiment(config, enqueue=False)

        done = count()
        with shown(on_progress, "Calibrating") as progress:

            def load(*_: str) -> LoadedPair:
                return models or loaded(pair)

            def before_a_prompt(_: Any) -> None:
                threads.fit()
                progress(next(done), 0)

            if folder is None:
                outcome = go_on(repository, id, config, load, RunObserver(before_a_prompt))
                return Calibration(config, outcome, None)
            with run_actions.exclusive_writing(repository, folder, "experiment", id) as writing:
                outcome = go_on(repository, id, config, load, RunObserver(before_a_prompt, writing))
                return Calibration(config, outcome, id)


Figure = float | Sequence[float | None]
"""a number, or a number with the ends of its 95 % interval"""
_LONGEST_KEY = 200


def log_run(
    name: str,
    family: str,
    knob: float | Mapping[str, float] | None = None,
    *,
    prompts: int,
    correct: int | None = None,
    seconds: float | Sequence[float] | None = None,
    tokens: float | Sequence[float] | None = None,
    failed: int = 0,
    figures: Mapping[str, Figure] | None = None,
    task: str = "elsewhere",
    model: str = "",
    origin: Mapping[str, Any] | None = None,
    key: str | None = None,
    home: str | Path | None = None,
    mlflow: bool = True,
) -> str:
    """Log a point of a measured series: figures of any method, measured by any program. Returns the run's id.

    Runs, Compare, exports and MLflow show it beside runs, marked *measured elsewhere*. Nothing here can verify its
    figures, so it gets no verdict, and no proposal can rest on it.

    Args:
        name: Of this point, such as ``"ViTTM, 4 process tokens"``.
        family: The series. Figures draw a family as one line.
        knob: The number that varies in the family, or several by name; the first one is drawn.
        prompts: How many prompts, images or requests were measured.
        correct: How many of them were solved; the accuracy gets Wilson's interval.
        seconds: Time of all prompts, or of each of several equal parts of them: from three parts on speeds have an
            interval.
        tokens: Tokens of all answers, or of each part, as for ``seconds``. Without them the speed is in answers a
            second.
        failed: How many prompts brought no answer.
        figures: Further figures, each a number or ``(value, low, high)``: by the key of a metric
            (``acceptance_rate``, ``time_to_first_token`` and so on, shares from 0 to 1, times in seconds), or by a name
            of their own with its unit, such as ``"MFLOP per image"``.
        task: Name of the prompts. Points of one task are compared.
        model: Name of the measured model. Default: the family.
        origin: Where the figures come from, as facts by name, such as the machine, the commit, the date.
        key: A name of this measurement. What is logged again under its key is not stored again.
        home: The folder that stores the run, like ``FSD_HOME``, which is the default.
        mlflow: Whether to copy it to MLflow now. Otherwise, and while MLflow is down, the next worker does.

    Raises:
        InvalidSetting: A figure, a name or the key cannot be used, with the reason.

    >>> import fsd_core, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     id = fsd_core.log_run(
    ...         "ViT", "ViT", prompts=360, correct=352, seconds=[0.31, 0.3, 0.32],
    ...         figures={"MFLOP per image": 13.1}, home=folder, mlflow=False,
    ...     )
    >>> len(id)
    32
    """
    if not isinstance(key, str | None) or len(key or "") > _LONGEST_KEY:
        raise Malformed(f"The key cannot be used: expected a text of at most {_LONGEST_KEY} characters.")
    logged = LoggedFigures.checked(
        prompts=prompts, correct=correct, failed=failed, seconds=seconds, tokens=tokens, figures=dict(figures or {})
    )
    series = MeasuredSeries.checked(name=name, family=family, values=_knobs(knob))
    setting = SettingConfig(
        pair=one_line(str(model or series.family), "model's name", LONGEST_SERIES_NAME),
        decoding=DecodingConfig(acceptance=series),
    )
    task = one_line(str(task), "task's name", LONGEST_SERIES_NAME)
    config = RunConfig(setting=setting, limit=logged.prompts, task=task)
    facts = {"logged with": "fsd_core.log_run", "logged on": f"{datetime.now(UTC):%Y-%m-%d}"}
    facts |= checked_origin(origin or {})
    settings = get_settings() if home is None else Settings(home=Path(home))
    repository = run_actions.open_repository(settings)
    id, _ = repository.log_run(config, logged.metrics(), facts, key or "")
    if mlflow:
        from fsd_core.tracking import MlflowMirror

        try:
            MlflowMirror(settings.resolved_mlflow_uri).sync(repository, id)
        except TrackingUnavailable as error:
            warnings.warn(str(error), stacklevel=2)
    return id


def _knobs(knob: Any) -> tuple[tuple[str, Any], ...]:
    if knob is None:
        return ()
    if isinstance(knob, Mapping):
        return tuple((name, plain(value)) for name, value in knob.items())
    return (("knob", plain(knob)),)


def prediction_row(prediction: Prediction) -> dict[str, Any]:
    """Return a prediction as a flat row, with intervals in ``_low`` and ``_high``."""
    config = prediction.config
    rule = config.acceptance
    return {
        "label": config.label, "acceptance": rule.kind, "knob": rule.knob.field if rule.knob else None,
        "value": rule.knob_value, "draft_length": prediction.draft_length,
        **keyed("acceptance_rate", prediction.acceptance_rate), **keyed("tokens_per_pass", prediction.tokens_per_pass),
        **keyed("passes", prediction.passes), **keyed("tokens_per_second", prediction.tokens_per_second),
        **keyed("speed_up", prediction.speed_up), "best_draft_length": prediction.is_best,
        "near_best_draft_length": prediction.is_near_best,
        "acceptance_at_position": list(prediction.acceptance_at),
    }  # fmt: skip


def checked_row(checked: Validated) -> dict[str, Any]:
    """Return the same row with the measurements, in ``measured_…``."""
    return prediction_row(checked.prediction) | {
        **keyed("measured_acceptance_rate", checked.acceptance_rate),
        **keyed("acceptance_error", checked.acceptance_error),
        **keyed("measured_tokens_per_pass", checked.tokens_per_pass), **keyed("measured_passes", checked.passes),
        "measured_length_ratio": checked.length, **keyed("measured_speed_up", checked.speed_up),
    }  # fmt: skip


def markdown(trace: Trace, checks: Sequence[Validated], commands: Sequence[str] = ()) -> str:
    """Return predicted against measured as a page: by rule, then every setting."""
    info = trace.info
    lines = [
        f"# Replay against measurement: {info.task}, temperature {info.sampling.temperature:g}", "",
        f"{len(trace.prompts)} prompts of `{info.pair}`, {len(checks)} settings. Predicted from one strict run with "
        f"drafts of {info.draft_length}, measured by decoding the same prompts. Errors are predicted less measured; "
        "docs/replay.md of FSD Lab says where they come from.", "",
    ]  # fmt: skip
    if commands:
        lines += ["```", *commands, "```", ""]
    lines += ["## By rule", "", *_table(_BY_RULE, [_rule_row(kind, group) for kind, group in _by_rule(checks).items()])]
    lines += ["", "## Every setting", "", "Predicted / measured. Brackets: the interval of 95 % over prompts, paired."]
    lines += ["", *_table(_EVERY, [_setting_row(check) for check in checks]), ""]
    return "\n".join(lines)


_BY_RULE = (
    "Rule", "Settings", "Acceptance: mean error, points", "largest", "interval without 0", "Passes: mean error",
    "largest", "Answer length, × strict", "Speed: mean error",
)  # fmt: skip
_EVERY = (
    "Setting", "Acceptance, %", "Error, points", "Mean acceptance length", "Passes per answer",
    "Answer length, × strict", "× target alone",
)  # fmt: skip


def _by_rule(checks: Sequence[Validated]) -> dict[str, list[Validated]]:
    groups: dict[str, list[Validated]] = {}
    for check in checks:
        groups.setdefault(check.prediction.config.acceptance.kind, []).append(check)
    return groups


def _rule_row(kind: str, checks: Sequence[Validated]) -> list[str]:
    errors = [100 * check.acceptance_error.value for check in checks]
    sure = sum(_excludes_zero(check.acceptance_error) for check in checks)
    passes = [100 * (check.prediction.passes.value / check.passes.value - 1) for check in checks]
    lengths = [check.length for check in checks]
    speeds = [
        100 * (check.prediction.speed_up.value / check.speed_up.value - 1)
        for check in checks
        if check.prediction.speed_up
    ]
    return [
        f"`{kind}`", str(len(checks)), _signed(mean(errors)), _signed(max(errors, key=abs)), str(sure),
        f"{_signed(mean(passes))} %", f"{_signed(max(passes, key=abs))} %", f"{min(lengths):.2f} – {max(lengths):.2f}",
        f"{_signed(mean(speeds))} %" if speeds else DASH,
    ]  # fmt: skip


def _excludes_zero(error: Estimate) -> bool:
    return error.low is not None and error.high is not None and not error.low <= 0 <= error.high


def _setting_row(check: Validated) -> list[str]:
    prediction, error = check.prediction, check.acceptance_error
    ends = "" if error.low is None or error.high is None else (
        f" [{_signed(100 * error.low)}, {_signed(100 * error.high)}]"
    )  # fmt: skip
    speed = f"{prediction.speed_up.value:.2f} / " if prediction.speed_up else ""
    return [
        prediction.config.label,
        f"{100 * prediction.acceptance_rate.value:.1f} / {100 * check.acceptance_rate.value:.1f}",
        _signed(100 * error.value) + ends,
        f"{prediction.tokens_per_pass.value:.2f} / {check.tokens_per_pass.value:.2f}",
        f"{prediction.passes.value:.2f} / {check.passes.value:.2f}", f"{check.length:.2f}",
        f"{speed}{check.speed_up.value:.2f}",
    ]  # fmt: skip


def _signed(value: float) -> str:
    return number_text(value, 1, signed=True)


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(cells)} |" for cells in (columns, ["---"] * len(columns), *rows)]


def record(
    file: str | Path,
    task: str | Task | None = None,
    limit: int = 20,
    *,
    pair: LoadedPair | str | Path = "bundled",
    seed: int = 0,
    draft_length: int = 8,
    max_new_tokens: int = 128,
    temperature: float = 0.0,
    top_k: int = 0,
    top_p: float = 1.0,
    min_p: float = 0.0,
    template_arguments: str = "",
    template_date: str = TemplateConfig().date,
    told_apart: int = recording.TOP,
    on_prompt: Callable[[int], None] | None = None,
) -> Trace:
    """Decode a task strictly once, and write what :func:`fsd_core.replay` needs to a new file.

    Args:
        file: The new file.
        task: A name that ``fsd-lab tasks`` lists, or a result of :func:`fsd_core.load_task`. ``None`` is the pair's.
        limit: Number of prompts, from the task's first.
        draft_length: The longest draft that replay can predict, 1 to 32.
        template_arguments: Arguments of the pair's chat template, as JSON.
        template_date: The day that the template is told as today's.
        told_apart: Tokens of either model that are stored individually at a position; 0 stores full rows.
        on_prompt: Called after each prompt with the number done. By default a bar in a terminal and in a notebook.

    Raises:
        InvalidSetting: The file exists already, or a value is out of range.
        FsdError: As :func:`fsd_core.load_pair` and :func:`fsd_core.compare` do.

    >>> import fsd_core, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> trace = fsd_core.record(f"{folder}/run.gz", limit=2, draft_length=4, max_new_tokens=24)
    >>> len(trace.prompts), trace.info.draft_length
    (2, 4)
    """
    path = Path(file)
    trace_file.check_new(path)
    recording.check(draft_length, told_apart)
    checked(RunConfig, in_python, limit=limit, seed=seed)
    sampling = checked(SamplingConfig, in_python, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    template = checked(TemplateConfig, in_python, arguments=template_arguments, date=template_date)
    loaded_task = task if isinstance(task, Task) else get_task(task or spec_of(pair).tasks[0])
    loaded_task.check_limit(limit)
    loaded_task.check_alone("replay")
    given = None if on_prompt is None else lambda done, _: on_prompt(done)
    with shown(given, "Recording") as progress:
        trace = recording.record(
            loaded(pair), loaded_task, limit, seed=seed, sampling=sampling, template=template,
            draft_length=draft_length, max_new_tokens=max_new_tokens, top=told_apart,
            on_prompt=lambda done: progress(done, limit),
        )  # fmt: skip
    trace_file.write(trace, path)
    return trace


@dataclass(frozen=True, repr=False)
class Predictions:
    """The result of :func:`fsd_core.replay`: one prediction for each setting."""

    trace: Trace
    settings: tuple[Prediction, ...]

    def __repr__(self) -> str:
        return f"Predictions({len(self.settings)} settings from {len(self.trace.prompts)} answers)"

    @property
    def best(self) -> tuple[Prediction, ...]:
        """Predictions at the fastest draft length of their rule and knob."""
        return tuple(prediction for prediction in self.settings if prediction.is_best)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per setting.

        Columns: ``acceptance_rate``, ``tokens_per_pass``, ``passes`` per answer, ``tokens_per_second`` and
        ``speed_up``, with the ends of their 95 % intervals in ``_low`` and ``_high``; ``acceptance_at_position`` in the
        draft; and whether no other draft length is faster. Raises ``PackageMissing`` without pandas.
        """
        need("pandas", "A table")
        import pandas as pd

        return pd.DataFrame([prediction_row(prediction) for prediction in self.settings])


def replay(trace: Trace | str | Path, **options: Any) -> Predictions:
    """Predict every rule, knob and draft length from a recorded run, without a model.

    Args:
        trace: A result of :func:`fsd_core.record`, or a file that it has written, here or elsewhere.
        options: Options of rules, to select some. ``acceptance`` and ``draft_length`` may be lists, and a knob as in
            :func:`fsd_core.sweep`.

    docs/replay.md explains what is predicted, and how wrong it can be.

    Raises:
        InvalidSetting: The file does not exist, or the trace cannot predict an option.
        DataDamaged: The file is not what was written.

    >>> import fsd_core, tempfile
    >>> folder = tempfile.mkdtemp()
    >>> trace = fsd_core.record(f"{folder}/run.gz", limit=3, draft_length=4, max_new_tokens=24)
    >>> fsd_core.replay(trace, acceptance=["speculative", "fsd"], threshold=[0.1, 0.3])
    Predictions(12 settings from 3 answers)
    >>> strict, loose = fsd_core.replay(trace, acceptance="fsd", threshold=[0.0, 0.6], draft_length=4).settings
    >>> strict.tokens_per_pass.value <= loose.tokens_per_pass.value
    True
    """
    loaded_trace = trace if isinstance(trace, Trace) else trace_file.read(Path(trace))
    return Predictions(loaded_trace, tuple(Replay(loaded_trace).predict(settings_of(loaded_trace.info, options))))
