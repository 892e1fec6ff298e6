"""Calibration: finding the fastest setting that keeps a promise, and trying it."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, Literal

from fsd_core.calibration.planning import Outcome
from fsd_core.calibration.request import build_calibration
from fsd_core.calibration.running import calibrate as go_on
from fsd_core.calibration.summary import as_json, verdict
from fsd_core.config import DecodingConfig
from fsd_core.config.calibration_config import CalibrationConfig
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.evaluation.observer import RunObserver
from fsd_core.library.extras import lacks
from fsd_core.library.measuring import prompts_of, repository_of
from fsd_core.library.pairs import loaded, spec_of
from fsd_core.library.progress import OnProgress, shown
from fsd_core.models import threads
from fsd_core.models.loading import LoadedPair
from fsd_core.tasks import Task
from fsd_core.worker import local_runs
from fsd_core.worker.endpoint_names import engine_to_calibrate
from fsd_core.worker.pair_names import identified


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
            with local_runs.exclusive_writing(repository, folder, "experiment", id) as writing:
                outcome = go_on(repository, id, config, load, RunObserver(before_a_prompt, writing))
                return Calibration(config, outcome, id)
