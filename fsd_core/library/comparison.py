"""Settings measured on the same prompts, as a table and as figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from fsd_core.analysis import cells
from fsd_core.analysis.series import metrics
from fsd_core.config.flat import options_read
from fsd_core.config.options import METHOD_OPTIONS
from fsd_core.errors import InvalidSetting, UnknownChoice, UnknownName
from fsd_core.library.extras import lacks, need
from fsd_core.metrics import METRICS
from fsd_core.statistics.ranking import RATIOS
from fsd_core.storage.records import Prompts, RunView

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

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

        options = [options_read(run.config) for run in self.runs]
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

        from fsd_core.analysis import matched_tables, matching

        comparison = matching.match(self.runs, self.baseline, self.prompts, cost)
        if comparison.curves is None:
            raise InvalidSetting(" ".join(comparison.notes))
        return pd.DataFrame(matched_tables.records(comparison, ratios, margins))

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
        from fsd_core.plots import divergence, gallery

        available = {**gallery.COMPARISON_FIGURES, **gallery.MATCHED, **gallery.OVER_LOAD}
        if name in available:
            return available[name](self.runs, self.baseline, self.prompts)
        if name != DIVERGENCE:
            raise UnknownName(f"There is no figure '{name}': expected one of {', '.join([*available, DIVERGENCE])}.")
        if row is not None and not 0 <= row < len(self.runs):
            raise UnknownChoice(f"There is no row {row}: expected 0 to {len(self.runs) - 1}.")
        run = self.runs[row] if row is not None else divergence.telling(divergence.judged(self.runs))
        return divergence.draw(divergence.info(run or self.baseline))
