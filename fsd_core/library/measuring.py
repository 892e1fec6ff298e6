"""Settings measured together, prompt by prompt, as in an experiment of the pages."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from fsd_core.config import DecodingConfig, RunConfig, SettingConfig, SweepConfig
from fsd_core.config.baselines import with_baselines
from fsd_core.config.building import checked, in_python, method
from fsd_core.config.sweeps import experiment_name, loads_of, methods
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import FsdError, NotGiven
from fsd_core.evaluation.observer import UNOBSERVED, RunObserver, Writing
from fsd_core.evaluation.runner import execute_runs
from fsd_core.library.comparison import Comparison
from fsd_core.library.pairs import loaded, spec_of
from fsd_core.library.progress import OnProgress, shown
from fsd_core.models import threads
from fsd_core.models.loading import LoadedPair
from fsd_core.settings import Settings, sqlite_url
from fsd_core.storage.database import connection
from fsd_core.storage.database.repository import Repository
from fsd_core.tasks import Task
from fsd_core.tasks.custom.custom_task import CustomTask
from fsd_core.tasks.custom.lookup import TaskFolder, find_task, keep
from fsd_core.worker import local_runs
from fsd_core.worker.endpoint_names import endpoint_decodings
from fsd_core.worker.pair_names import identified

Setting = Mapping[str, Any] | DecodingConfig


def compare(
    settings: Setting | Sequence[Setting],
    task: str | Task | None = None,
    limit: int = 20,
    *,
    pair: LoadedPair | str | Path = "bundled",
    seed: int = 0,
    batch: int | Sequence[int] = 1,
    endpoints: Sequence[str] = (),
    rates: Sequence[float] = (),
    home: str | Path | None = None,
    name: str = "",
    on_progress: OnProgress | None = None,
) -> Comparison:
    """Measure several decoding methods on the same prompts. The first one is the baseline.

    The methods take turns prompt by prompt, so that a machine that slows down does so for all of them. Include
    ``{"acceptance": "autoregressive"}`` to compare their texts to the target's own as well.

    Args:
        settings: Methods, each as options (those of :class:`fsd_core.Decoder`) or as a ``DecodingConfig``.
        task: A name that ``fsd-lab tasks`` lists, or your own task: the result of :func:`fsd_core.load_task`, or the
            name of one that ``home`` has. ``None`` is the pair's task: ``arithmetic`` for ``bundled``, ``everyday`` for
            most others.
        limit: Number of prompts, from the task's first.
        pair: A loaded pair, or an argument of :func:`fsd_core.load_pair`.
        seed: Seed of all randomness, 0 to 2³¹ - 1.
        batch: Batch size. 1 measures each text alone. Several, such as ``[1, 2, 4]``, measure each setting under each
            load, and ``figure("throughput_by_load")`` draws speed over it.
        endpoints: Names of running engines that ``home`` has (``fsd-lab endpoints add``), measured on the same prompts
            behind the settings, sampled as the first of them.
        rates: Prompts that arrive in a second, such as ``[1, 2, 4]``, at ``endpoints`` alone, without ``settings``.
            Each endpoint is measured under each rate; ``batch`` is then how many may be open at once (1: 64).
        home: The folder that stores the runs, like ``FSD_HOME``. Pages and command line then show them, ``fsd-lab
            resume`` continues an interrupted comparison, and the next worker there copies them to MLflow.
            ``FSD_DATABASE_URL`` applies here too. ``None`` stores nothing.
        name: Name of the stored experiment.
        on_progress: Called before each prompt with the number done and the total, over all settings. By default a bar
            of tqdm in a terminal and in a notebook, and nothing elsewhere; ``lambda done, total: None`` shows none.

    Raises:
        InvalidSetting: A setting, or a combination of them, cannot work.
        UnknownName: No task or pair has this name.
        FsdError: No setting could be measured, with the reason. If only some could not, the table's ``error`` has
            the reason.

    >>> import fsd_core
    >>> pair = fsd_core.load_pair("bundled")
    >>> exact = {"acceptance": "speculative", "max_new_tokens": 64}
    >>> measured = fsd_core.compare([exact, exact | {"draft_length": 3}], limit=2, pair=pair)
    >>> [run.status for run in measured.runs]
    ['finished', 'finished']
    """
    several = [settings] if isinstance(settings, Mapping | DecodingConfig) else settings
    decodings = [setting if isinstance(setting, DecodingConfig) else method(setting) for setting in several]
    if not decodings and not endpoints:
        raise NotGiven("There is nothing to compare: give at least one setting.")
    task = task or spec_of(pair).tasks[0]
    batches = [batch] if isinstance(batch, int) else [*batch]
    if not batches:
        raise NotGiven("batch is empty: give a number, or several.")
    for rows in batches:
        checked(RunConfig, in_python, limit=limit, seed=seed, batch=rows)  # rejected before anything is loaded
    with repository_of(home) as (repository, folder):
        shared = (decodings[0] if decodings else DecodingConfig()).shared
        served = endpoint_decodings([repository.engine(name) for name in endpoints], shared)
        prompts = prompts_of(task, repository, folder)
        prompts.check_limit(limit)
        models = loaded(pair)
        for decoding in decodings:
            checked(SettingConfig, in_python, pair=models.spec.name, decoding=decoding)
            PairDecoder(models, decoding)
        config = checked(
            SweepConfig, in_python, name=name or _name(decodings or served, prompts), pair=models.spec.name,
            task=prompts.name, limit=limit, seeds=(seed,), decodings=(*decodings, *served), dtype=models.dtype,
            device=models.device,
            **loads_of(batches, rates),
        )  # fmt: skip
        threads.adopt(models)
        id = repository.create_experiment(identified(repository, config, models.identity), enqueue=False)
        with shown(on_progress, "Measuring") as progress:
            if folder is None:
                return _run(repository, id, models, progress)
            with local_runs.exclusive_writing(repository, folder, "experiment", id) as writing:
                return _run(repository, id, models, progress, writing, stored=True)


def sweep(
    task: str | Task | None = None,
    limit: int = 20,
    *,
    pair: LoadedPair | str | Path = "bundled",
    baselines: bool | Literal["all"] = True,
    seed: int = 0,
    batch: int | Sequence[int] = 1,
    endpoints: Sequence[str] = (),
    home: str | Path | None = None,
    name: str = "",
    on_progress: OnProgress | None = None,
    **options: Any,
) -> Comparison:
    """Measure every combination of several rules, drafters, topologies, draft lengths, divergences and knob values.

    Args:
        baselines: Whether to measure the target alone, which then is the baseline, and exact speculative decoding.
            ``"all"`` adds block verification, the draft alone and, for rules that truncate, the target with the same
            truncation. :meth:`Comparison.matched` shows these beside the rules.
        options: Those of :class:`fsd_core.Decoder`. ``acceptance``, ``drafter``, ``topology``, ``draft_length`` and
            ``divergence`` may be lists. A knob such as ``threshold`` is a number, a list of numbers, or a string:
            ``"0.1,0.3,off"``, or ``"0:0.6:7"`` for seven values from 0 to 0.6.

    The other arguments and the exceptions are those of :func:`fsd_core.compare`.

    >>> import fsd_core
    >>> swept = fsd_core.sweep(limit=1, threshold=[0.1, 0.3], max_new_tokens=16)
    >>> [run.label for run in swept.runs]
    ['Target alone', 'SD · γ 5', 'FSD reducible · js ≤ 0.1 · γ 5', 'FSD reducible · js ≤ 0.3 · γ 5']
    """
    decodings, task = methods(options), task or spec_of(pair).tasks[0]
    name = name or _name(decodings, task)
    return compare(
        with_baselines(decodings, everything=baselines == "all") if baselines else decodings, task, limit,
        pair=pair, seed=seed, batch=batch, endpoints=endpoints, home=home, name=name, on_progress=on_progress,
    )  # fmt: skip


def _name(decodings: Sequence[DecodingConfig], task: Task | str) -> str:
    return experiment_name(decodings, (task if isinstance(task, str) else task.name).partition("@")[0])


def prompts_of(task: Task | str, repository: Repository, folder: Path | None) -> Task:
    """Return the task. A custom task is stored where the runs are. Raises ``UnknownName``."""
    if isinstance(task, CustomTask):
        return find_task(keep(repository, task, "library").full_name, repository)
    if folder is not None:
        for message in TaskFolder(Settings(home=folder).tasks_folder).take_in(repository):
            warnings.warn(message, stacklevel=3)
    return find_task(task if isinstance(task, str) else task.name, repository)


@contextmanager
def repository_of(home: str | Path | None) -> Iterator[tuple[Repository, Path | None]]:
    """Yield the database and folder of a home, or a temporary database and ``None``."""
    if home is not None:
        settings = Settings(home=Path(home))
        yield local_runs.open_repository(settings), settings.home
        return
    with TemporaryDirectory(prefix="fsd-lab-") as folder:
        url = sqlite_url(Path(folder) / "fsd.db")
        connection.upgrade(url)
        database = connection.open_database(url)
        try:
            yield Repository(database), None
        finally:
            database.close()


def _run(
    repository: Repository,
    id: str,
    pair: LoadedPair,
    on_progress: OnProgress,
    writing: Writing = UNOBSERVED.writing,
    *,
    stored: bool = False,
) -> Comparison:
    runs = repository.experiment(id).runs
    started, total = count(), sum(run.prompts_total for run in runs)

    def before_a_prompt(_: Any) -> None:
        threads.fit()
        on_progress(next(started), total)

    execute_runs(repository, [run.id for run in runs], lambda *_: pair, RunObserver(before_a_prompt, writing))
    on_progress(total, total)
    runs = repository.experiment(id).runs
    if not any(run.metrics for run in runs):
        raise FsdError(" ".join(dict.fromkeys(run.error for run in runs if run.error)) or "No run was finished.")
    return Comparison(runs, repository.prompts(run.id for run in runs), id if stored else None)
