"""Settings measured together, as a table and as figures in a notebook."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Literal

from fsd_core.analysis import cells
from fsd_core.analysis.cells import metrics
from fsd_core.config import DecodingConfig, RunConfig, SettingConfig, SweepConfig
from fsd_core.config.options import (
    METHOD_OPTIONS,
    checked,
    effective_options,
    experiment_name,
    in_python,
    loads_of,
    method,
    methods,
)
from fsd_core.config.run_config import with_baselines
from fsd_core.decoding.decoder import PairDecoder
from fsd_core.errors import FsdError, InvalidSetting, NotGiven, UnknownChoice, UnknownName
from fsd_core.evaluation.runner import UNOBSERVED, RunObserver, Writing, execute_runs
from fsd_core.library.text_decoder import lacks, loaded, need, spec_of
from fsd_core.metrics import METRICS
from fsd_core.models import threads
from fsd_core.models.loading import LoadedPair
from fsd_core.settings import Settings, sqlite_url
from fsd_core.statistics.tradeoff import RATIOS
from fsd_core.storage import opening
from fsd_core.storage.records import Prompts, RunView
from fsd_core.storage.repository import Repository
from fsd_core.tasks import Task
from fsd_core.tasks.custom.custom_task import CustomTask, TaskFolder, find_task, keep
from fsd_core.worker import run_actions
from fsd_core.worker.endpoints import endpoint_decodings
from fsd_core.worker.pair_names import identified

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


OnProgress = Callable[[int, int], None]
"""(prompts done, prompts of all settings; 0 where these are not known)"""


@contextmanager
def shown(given: OnProgress | None, title: str) -> Iterator[OnProgress]:
    """Yield a reporter of progress: ``given``, or else a bar of tqdm in a terminal or a notebook."""
    if given is not None or not _somebody_looks():
        yield given or (lambda done, total: None)
        return
    from tqdm.auto import tqdm

    with tqdm(desc=title, unit=" prompts") as bar:

        def on_progress(done: int, total: int) -> None:
            bar.total = total or None
            bar.update(done - bar.n)

        yield on_progress


def _somebody_looks() -> bool:
    """Return whether standard error is a terminal, or this process the kernel of a notebook, whose streams are none."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


DIVERGENCE = "divergence"


@dataclass(frozen=True, repr=False)
class Comparison:
    """The result of :func:`fsd_core.compare` and :func:`fsd_core.sweep`. The first setting is the baseline.

    >>> import fsd_core
    >>> measured = fsd_core.compare([{"acceptance": "autoregressive"}, {"threshold": 0.2}], limit=2)
    >>> measured
    Comparison(Target alone; FSD reducible · js ≤ 0.2 · γ 5; 2 prompts of arithmetic)
    """

    runs: tuple[RunView, ...]
    """one per setting, in the given order"""
    prompts: Prompts = field(default_factory=dict)
    """counts of each prompt, by run and position"""
    experiment_id: str | None = None
    """its id in the home; ``None`` if nothing was stored"""

    @property
    def outcomes(self) -> dict[str, dict[int, str]]:
        """``correct``, ``wrong``, ``truncated``, ``failed`` or ``unscored``, by run and position of the prompt."""
        return {
            run: {position: done.outcome for position, done in counts.items()} for run, counts in self.prompts.items()
        }

    @property
    def baseline(self) -> RunView:
        """The first run that has metrics. Differences and speed-ups are relative to it."""
        return next(run for run in self.runs if run.metrics)

    def __repr__(self) -> str:
        first = self.runs[0]
        labels = "; ".join(run.label for run in self.runs)
        return f"Comparison({labels}; {first.prompts_total} prompts of {first.task})"

    def _repr_html_(self) -> str | None:
        """Return the table and the figure of the page Compare, for a notebook; ``None`` without what draws them."""
        if lacks("jinja2", "plotly"):
            return None
        from fsd_core.library.notebook_view import comparison_view

        return comparison_view(self)

    def to_frame(self) -> pd.DataFrame:
        """Return one row per setting.

        Columns: ``label``; the options that the setting reads; ``baseline``, ``status``, ``error``, ``prompts`` and
        ``failed`` (the number of failed prompts); each metric of :data:`fsd_core.metrics.METRICS` by its key, with the
        ends of its 95 % interval, if it has one, in ``_low`` and ``_high``; and the differences from the baseline, or
        ratios to it, that the page Compare shows (``accuracy_difference``, ``mcnemar_p``, ``tokens_per_second_ratio``
        and so on). ``speed_mixed`` and ``speed_ratio_mixed`` name the conditions, such as the number of threads, that
        differ within a setting's speeds or within their ratios. Shares are from 0 to 1, times in seconds, likelihoods
        in nats.

        Raises ``PackageMissing`` without pandas.

        >>> import fsd_core
        >>> frame = fsd_core.compare([{"acceptance": "autoregressive"}, {"threshold": 0.2}], limit=2).to_frame()
        >>> frame[["acceptance", "baseline", "prompts"]].values.tolist()
        [['autoregressive', True, 2], ['fsd-reducible', False, 2]]
        """
        need("pandas", "A comparison as a table")
        import pandas as pd

        options = [effective_options(run.config) for run in self.runs]
        deltas = cells.cells(self.runs, self.baseline, self.prompts)
        first = ["label", *(name for name in METHOD_OPTIONS if any(name in values for values in options))]
        rows = [
            {"label": run.label} | values | self._row(run, deltas[run.id])
            for run, values in zip(self.runs, options, strict=True)
        ]
        return pd.DataFrame(rows, columns=list(dict.fromkeys([*first, *(name for row in rows for name in row)])))

    def _row(self, run: RunView, deltas: Sequence[cells.Cell]) -> dict[str, Any]:
        """Return all columns but the options."""
        measured = metrics(run)
        row: dict[str, Any] = {"baseline": run.id == self.baseline.id, "status": run.status, "error": run.error}
        row |= {"prompts": measured.get("n", 0), "failed": measured.get("failed")}
        for key in METRICS:
            row[key] = measured.get(key)
            row |= {name: measured[name] for name in (f"{key}_low", f"{key}_high") if name in measured}
        return row | cells.delta_columns(deltas)

    def matched(
        self, cost: str = "target_passes", ratios: Sequence[float] = RATIOS, margins: Sequence[float] | None = None
    ) -> pd.DataFrame:
        """Return rules at matched points, as the page Compare shows them: one row per rule and point.

        Columns: ``point`` is ``ratio`` (equal cost: ``at`` times fewer than exact SD, or than the target alone if SD
        was not measured), ``margin`` (equal accuracy: the fastest that loses at most ``at`` points) or ``beside`` (a
        setting without a curve, such as SD, block, the target and the draft alone). ``rank`` is ``leads``, ``tied``
        (not distinguishable from the first), ``behind`` (significantly worse, all rules considered) or ``outside`` (not
        measured there). ``difference`` is in ``quality``: accuracy less the target's, or excess NLL in nats a token for
        prompts without a score. ``low`` and ``high`` are the 95 % interval of the quantity that the point asks for.
        ``knob`` is the knob's values around it. ``prompts_to_decide`` is about how many prompts would decide a tie, or
        show a gain. ``cost``, ``reference``, ``target`` and ``prompts`` say what was compared.

        Args:
            cost: ``target_passes`` or ``seconds`` per answer.
            ratios: Times fewer, each from 0.01 to 100.
            margins: Points of accuracy, or hundredths of a nat a token, each 0 to 20. Default: 1, 2 and 5, or 2, 5 and
                10.

        Raises ``UnknownName`` for an unknown cost, ``InvalidSetting`` for an invalid ratio or margin, or with the
        reason for runs that cannot be matched, and ``PackageMissing`` without pandas.

        >>> import fsd_core
        >>> swept = fsd_core.sweep(limit=3, threshold=[0.1, 0.4], max_new_tokens=32)
        >>> table = swept.matched(ratios=[1.1])
        >>> table[table.point == "beside"].rule.tolist()
        ['Target alone', 'SD · γ 5']
        """
        need("pandas", "A comparison as a table")
        import pandas as pd

        from fsd_core.analysis import matching

        comparison = matching.match(self.runs, self.baseline, self.prompts, cost)
        if comparison.curves is None:
            raise InvalidSetting(" ".join(comparison.notes))
        return pd.DataFrame(matching.records(comparison, ratios, margins))

    def figure(self, name: str = "tradeoff", row: int | None = None) -> go.Figure:
        """Return one of the figures of the page Compare.

        Args:
            name: ``tradeoff`` (accuracy against throughput), ``acceptance_rate`` and ``acceptance_length`` (against
                the threshold), ``answers`` (length and target passes relative to the baseline), ``throughput``
                (relative to the baseline), ``positions`` (acceptance by position in the draft), ``requests``
                (acceptance over requests), ``matched`` (accuracy over target passes, a curve for each rule),
                ``equal_accuracy`` (how far each rule gets within 2 points), ``draft_lengths`` (speed over the draft
                length), ``predicted`` (replay's predictions and the measurements) or ``divergence`` (the histogram
                of one setting).
            row: For ``divergence``, the setting, by its row; by default the loosest.

        Raises ``UnknownName`` for an unknown name, ``InvalidSetting`` for a missing row, and ``PackageMissing`` without
        plotly.

        >>> import fsd_core
        >>> measured = fsd_core.compare([{"acceptance": "autoregressive"}, {"threshold": 0.2}], limit=2)
        >>> measured.figure("throughput").layout.title.text
        'Throughput relative to the baseline'
        """
        need("plotly", "A figure")
        from fsd_core.plots import acceptance, trade_offs

        available = {**trade_offs.COMPARISON_FIGURES, **trade_offs.MATCHED, **trade_offs.OVER_LOAD}
        if name in available:
            return available[name](self.runs, self.baseline, self.prompts)
        if name != DIVERGENCE:
            raise UnknownName(f"There is no figure '{name}': expected one of {', '.join([*available, DIVERGENCE])}.")
        if row is not None and not 0 <= row < len(self.runs):
            raise UnknownChoice(f"There is no row {row}: expected 0 to {len(self.runs) - 1}.")
        run = self.runs[row] if row is not None else acceptance.telling(acceptance.runs_with_judged_tokens(self.runs))
        return acceptance.draw_divergence(acceptance.divergence_info(run or self.baseline))


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
            with run_actions.exclusive_writing(repository, folder, "experiment", id) as writing:
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
        yield run_actions.open_repository(settings), settings.home
        return
    with TemporaryDirectory(prefix="fsd-lab-") as folder:
        url = sqlite_url(Path(folder) / "fsd.db")
        opening.upgrade(url)
        database = opening.open_database(url)
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
