"""Figures that were measured elsewhere, logged beside runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig
from fsd_core.errors import Malformed, TrackingUnavailable
from fsd_core.evaluation.logged_figures import LoggedFigures, checked_origin, plain
from fsd_core.rules import MeasuredSeries
from fsd_core.rules.measured_series import LONGEST_SERIES_NAME, one_line
from fsd_core.settings import Settings, get_settings
from fsd_core.worker import local_runs

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
    repository = local_runs.open_repository(settings)
    id, _ = repository.log_run(config, logged.metrics(), facts, key or "")
    if mlflow:
        from fsd_core.tracking.mlflow_mirror import MlflowMirror  # seconds to import

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
