"""Recording one strict run, and asking it of other rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fsd_core.config import RunConfig, SamplingConfig
from fsd_core.config.building import checked, in_python
from fsd_core.library.extras import need
from fsd_core.library.pairs import loaded, spec_of
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
    told_apart: int = strict_run.TOP,
    on_prompt: Callable[[int], None] = lambda done: None,
) -> Trace:
    """Decodes a task strictly once, and writes what :func:`fsd_core.replay` needs to a new file.

    Args:
        file: The new file.
        task: What ``fsd-lab tasks`` lists, or what :func:`fsd_core.load_task` returns; ``None`` is the one of the pair.
        limit: Prompts, from the task's first.
        draft_length: The longest draft that replay can tell of, 1 to 32.
        told_apart: Tokens of either model that are told apart at a position; 0 keeps full rows.
        on_prompt: Called after each prompt with how many are done.

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
    chosen = task if isinstance(task, Task) else get_task(task or spec_of(pair).tasks[0])
    chosen.check_limit(limit)
    trace = strict_run.record(
        loaded(pair), chosen, limit, seed=seed, sampling=sampling, draft_length=draft_length,
        max_new_tokens=max_new_tokens, top=told_apart, on_prompt=on_prompt,
    )  # fmt: skip
    trace_file.write(trace, path)
    return trace


@dataclass(frozen=True, repr=False)
class Predictions:
    """What :func:`fsd_core.replay` returns: one prediction for each setting."""

    trace: Trace
    settings: tuple[Prediction, ...]

    def __repr__(self) -> str:
        return f"Predictions({len(self.settings)} settings from {len(self.trace.prompts)} answers)"

    @property
    def best(self) -> tuple[Prediction, ...]:
        """Those at the fastest draft length of their rule and knob."""
        return tuple(one for one in self.settings if one.is_best)

    def to_frame(self) -> pd.DataFrame:
        """One row per setting: ``acceptance_rate``, ``tokens_per_pass``, ``passes`` per answer, ``tokens_per_second``
        and ``speed_up``, with the ends of their 95 % intervals in ``_low`` and ``_high``; ``acceptance_at_position`` in
        the draft; and whether no other draft length is faster. Raises ``PackageMissing`` without pandas."""
        need("pandas", "A table")
        import pandas as pd

        return pd.DataFrame([prediction_row(one) for one in self.settings])


def replay(trace: Trace | str | Path, **options: Any) -> Predictions:
    """Predicts every rule, knob and draft length from a recorded run, without a model.

    Args:
        trace: What :func:`fsd_core.record` has returned or written, here or elsewhere.
        options: Those of rules, to choose some: ``acceptance`` and ``draft_length`` may be lists, and a knob as in
            :func:`fsd_core.sweep`.

    What is predicted, and how wrong it can be, is in docs/replay.md.

    Raises:
        InvalidSetting: There is no such file, or the trace cannot tell of an option.
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
    known = trace if isinstance(trace, Trace) else trace_file.read(Path(trace))
    return Predictions(known, tuple(Replay(known).predict(settings_of(known.info, options))))
