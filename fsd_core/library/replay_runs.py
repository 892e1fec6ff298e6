"""Recording one strict run, and replaying it with other rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd_core.config import RunConfig, SamplingConfig, TemplateConfig
from fsd_core.config.building import checked, in_python
from fsd_core.library.extras import need
from fsd_core.library.pairs import loaded, spec_of
from fsd_core.library.progress import shown
from fsd_core.library.replay_report import prediction_row
from fsd_core.models.loading import LoadedPair
from fsd_core.replays import strict_run, trace_file
from fsd_core.replays.prediction import Prediction, Replay
from fsd_core.replays.replay_trace import Trace
from fsd_core.replays.replayed_settings import settings_of
from fsd_core.tasks import Task, get_task

if TYPE_CHECKING:
    import pandas as pd


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
    told_apart: int = strict_run.TOP,
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
    strict_run.check(draft_length, told_apart)
    checked(RunConfig, in_python, limit=limit, seed=seed)
    sampling = checked(SamplingConfig, in_python, temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    template = checked(TemplateConfig, in_python, arguments=template_arguments, date=template_date)
    loaded_task = task if isinstance(task, Task) else get_task(task or spec_of(pair).tasks[0])
    loaded_task.check_limit(limit)
    loaded_task.check_alone("replay")
    given = None if on_prompt is None else lambda done, _: on_prompt(done)
    with shown(given, "Recording") as progress:
        trace = strict_run.record(
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
