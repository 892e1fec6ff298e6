"""Tables of rules at matched points, for pages, exports and the library: the loss at equal cost, the cost at equal
accuracy, and the settings beside the curves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

from fsd_core.analysis.matching import KnobLine, MatchedComparison
from fsd_core.analysis.quality import NOT_RANKED, Quality
from fsd_core.conditions import MIXED_MARK
from fsd_core.formatting import count, decimals, number, upper_first
from fsd_core.statistics.intervals import Estimate
from fsd_core.statistics.ranking import BEHIND, LEADS, OUTSIDE, RATIOS, TIED, AtCost, WithinLoss

NOT_ENOUGH = "not enough prompts"


class MatchedCell(NamedTuple):
    """One rule at one point."""

    value: str = ""
    """empty if the rule was not measured there"""
    ends: str = ""
    """the 95 % interval, such as ``−4 to +1``"""
    comparison: str = ""
    """how it compares to the other rules"""
    rank: str | None = OUTSIDE
    knob: str = ""
    """the knob's values there, such as ``0.1 to 0.2``"""


class MatchedTable(NamedTuple):
    """A row for each rule, a column for each point."""

    title: str
    columns: list[str]
    rows: list[tuple[str, list[MatchedCell]]]
    verdicts: list[str]
    """a sentence for each column, or for several with the same verdict"""


def tables(
    matched: MatchedComparison, ratios: Sequence[float] = RATIOS, margins: Sequence[float] | None = None
) -> list[MatchedTable]:
    """Return the tables at equal cost and, if the quality is ranked, at equal quality. Empty if nothing could be
    matched.

    ``margins`` are in points, or in hundredths of a nat a token if nothing is scored. They default to the quality's
    own.

    Raises ``InvalidSetting`` for an invalid ratio or margin.
    """
    if not matched.compared:
        return []
    quality = matched.quality
    margins = quality.margins if margins is None else margins
    at_cost = _table(
        f"{quality.lost} at equal {matched.cost.title.lower()}",
        [f"{ratio:g}× {matched.cost.fewer.split()[0]}" for ratio in ratios],
        matched, [matched.at_ratio(r) for r in ratios], partial(_lost, quality), _least,
    )  # fmt: skip
    if not quality.is_ranked:
        return [at_cost._replace(verdicts=[NOT_RANKED])]
    return [
        at_cost,
        _table(
            f"{matched.cost.title} at equal {quality.equal}", [quality.within(m) for m in margins],
            matched, [matched.within(m) for m in margins], _gained, _fastest,
        ),
    ]  # fmt: skip


def _table(
    title: str, columns: list[str], matched: MatchedComparison, results: Sequence[Sequence[Any]],
    cell: Callable[..., MatchedCell], verdict: Callable[..., str],
) -> MatchedTable:  # fmt: skip
    by_name = [{row.family: row for row in rows} for rows in results]
    rows = [
        (line.name, [cell(line, rows[line.name], _has_clear_leader(rows.values())) for rows in by_name])
        for line in matched.compared
    ]
    return MatchedTable(title, columns, rows, _grouped(columns, [verdict(rows) for rows in results]))


def _grouped(columns: Sequence[str], verdicts: Sequence[str]) -> list[str]:
    """Return one sentence for all columns with the same verdict."""
    by_verdict: dict[str, list[str]] = {}
    for column, verdict in zip(columns, verdicts, strict=True):
        by_verdict.setdefault(verdict, []).append(column)
    return [f"{upper_first(_and(group))}: {verdict}" for verdict, group in by_verdict.items()]


def _has_clear_leader(rows: Any) -> bool:
    ranks = [row.rank for row in rows]
    return TIED not in ranks and BEHIND in ranks


def _lost(quality: Quality, line: KnobLine, row: AtCost, is_clear: bool) -> MatchedCell:
    if row.difference is None or row.position is None:
        least, most = (f"{end:.2f}×" for end in (line.at.min(), line.at.max()))
        return MatchedCell(
            comparison=f"measured at {least} only" if least == most else f"measured from {least} to {most}"
        )
    value, low, high = quality.displayed(Estimate(row.difference, *(row.interval or ())))
    digits = decimals(value, low, high)
    interval = " to ".join(number(end, digits, signed=True) for end in (low, high) if end is not None)
    tied = _not_enough(row.prompts, "tell it from the first") if row.prompts else "not told apart"
    status = {LEADS: "loses least" if is_clear else "", BEHIND: "loses more", TIED: tied, None: ""}[row.rank]
    text = f"{number(value, digits, signed=True)}{quality.unit}"
    return MatchedCell(text, interval, status, row.rank, line.between(row.position))


def _gained(line: KnobLine, row: WithinLoss, is_clear: bool) -> MatchedCell:
    if row.ratio is None or row.position is None:
        return MatchedCell(comparison="loses more at all its values")
    low, high = row.interval or (None, None)
    interval = "" if high is None else f"{number(low, 2)} to {number(high, 2)}" if low else f"at most {number(high, 2)}"
    prefix = "≥ " if row.is_open and row.ratio > line.at.max() * (1 - 1e-6) else ""
    status = {LEADS: "fastest" if is_clear else "", BEHIND: "slower", TIED: "not told apart"}[row.rank]
    if not row.is_shown:
        status = _not_enough(row.prompts, "show a gain")
    mark = MIXED_MARK if any(point.mixed for point in line.points) else ""
    return MatchedCell(f"{prefix}{number(row.ratio, 2)}×{mark}", interval, status, row.rank, line.between(row.position))


def _not_enough(prompts: int | None, what: str) -> str:
    return f"{NOT_ENOUGH}: about {prompts:,} in all would {what}" if prompts else NOT_ENOUGH


def _least(rows: Sequence[AtCost]) -> str:
    leads, tied, behind = _by_rank(rows)
    if not leads:
        return "no rule was measured there."
    if not tied and not behind:
        return f"{leads[0]} alone was measured there."
    if not tied:
        return f"{leads[0]} loses least."
    more = f" {_and(behind)} {'loses' if len(behind) == 1 else 'lose'} more." if behind else ""
    return f"not enough prompts to tell {_and([*leads, *tied])} apart.{more}"


def _fastest(rows: Sequence[WithinLoss]) -> str:
    leads, tied, behind = _by_rank(rows)
    if not leads:
        return "every rule loses more at all its values."
    if not any(row.is_shown for row in rows):
        return "not enough prompts to show that any rule gains there."
    if not tied:
        return f"{leads[0]} is fastest." if behind else f"{leads[0]} alone gets there."
    more = f" {_and(behind)} {'is' if len(behind) == 1 else 'are'} slower." if behind else ""
    return f"not enough prompts to tell which of {_and([*leads, *tied])} is fastest.{more}"


def _by_rank(rows: Sequence[AtCost] | Sequence[WithinLoss]) -> tuple[list[str], list[str], list[str]]:
    first, second, third = ([row.family for row in rows if row.rank == rank] for rank in (LEADS, TIED, BEHIND))
    return first, second, third


def records(
    matched: MatchedComparison, ratios: Sequence[float] = RATIOS, margins: Sequence[float] | None = None
) -> list[dict[str, Any]]:
    """Return a row for each rule at each point, and for each setting beside the curves.

    ``point`` is ``ratio``, ``margin`` or ``beside``. ``at`` is the ratio in times, or the margin in points or
    hundredths of a nat; ``at_unit`` says which. ``difference`` is in ``quality``: accuracy less the target's, from -1
    to 1, or excess NLL in nats a token (``difference_unit``). ``ratio`` is how many times less it costs than the
    reference. The 95 % interval is for the quantity that the point asks for.
    """
    quality = matched.quality
    shared = {
        "quality": quality.key,
        "difference_unit": "share" if quality.is_share else "nats per token",
        "cost": matched.cost.key,
        "reference": matched.reference,
        "target": matched.target,
        "prompts": matched.prompts,
    }
    rows: list[dict[str, Any]] = []

    units = {"ratio": "times", "margin": "points" if quality.is_share else "hundredths of a nat per token"}

    def add(point: str, at: float | None, family: str, **values: Any) -> None:
        empty = dict.fromkeys(("rank", "difference", "ratio", "low", "high", "knob", "prompts_to_decide"))
        rows.append({"point": point, "at": at, "at_unit": units.get(point), "rule": family} | empty | values | shared)

    if matched.compared:
        for ratio in ratios:
            for lost in matched.at_ratio(ratio):
                value, low, high = (
                    (None, None, None)
                    if lost.difference is None
                    else quality.recorded(Estimate(lost.difference, *(lost.interval or ())))
                )
                knob = matched.line(lost.family).between(lost.position) if lost.position else None
                add(
                    "ratio", ratio, lost.family, rank=lost.rank, difference=value, ratio=ratio, low=low, high=high,
                    knob=knob, prompts_to_decide=lost.prompts,
                )  # fmt: skip
        for margin in quality.margins if margins is None else margins:
            for gained in matched.within(margin):
                low, high = gained.interval or (None, None)
                knob = matched.line(gained.family).between(gained.position) if gained.position else None
                add(
                    "margin", margin, gained.family, rank=gained.rank, ratio=gained.ratio, low=low, high=high,
                    knob=knob, prompts_to_decide=gained.prompts,
                )  # fmt: skip
    for line in matched.baseline_lines:
        for point in line.points:
            value, low, high = quality.recorded(point.difference)
            ratio = point.ratio.value if point.ratio else None
            add("beside", None, line.name, difference=value, ratio=ratio, low=low, high=high)
    return rows


def beside_rows(matched: MatchedComparison) -> list[tuple[str, str, str]]:
    """Return the name, cost ratio and quality difference of each setting beside the curves, with intervals."""
    rows = []
    for line in matched.baseline_lines:
        for point in line.points:
            times = "–" if point.ratio is None else f"{_interval(point.ratio, 2, signed=False, unit='×')}"
            difference = matched.quality.displayed(point.difference)
            text = _interval(difference, decimals(*difference), signed=True, unit=matched.quality.unit)
            rows.append((line.name, times + MIXED_MARK * bool(point.mixed), text))
    return rows


def caption(matched: MatchedComparison) -> str:
    """Return sentences that describe what the tables and curves compare."""
    front = f" Not beaten in both: {_and(matched.front)}." if matched.front else ""
    return (
        f"{matched.cost.title} against {matched.reference}, {matched.quality.equal} against {matched.target}, "
        f"on {count(matched.prompts, 'prompt')} that all have. Between two values of a knob stands what answering each "
        "prompt by one of the two, drawn by lot, gives; nothing is told beyond the values that were measured."
        f"{front}{matched.quality.note}"
    )


def absence(matched: MatchedComparison) -> str:
    """Return a sentence that names the missing baselines. Empty if none is missing."""
    if not matched.absent:
        return ""
    return f"Not measured on these prompts: {_and([config.label for config in matched.absent])}."


def _interval(values: Sequence[float | None], digits: int, *, signed: bool, unit: str) -> str:
    value, low, high = values
    text = number(value or 0.0, digits, signed) + unit
    return (
        text
        if low is None or high is None
        else f"{text} ({number(low, digits, signed)} to {number(high, digits, signed)})"
    )


def _and(names: Sequence[str], most: int = 5) -> str:
    if len(names) > most:
        names = [*names[: most - 1], f"{len(names) - most + 1} more"]
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
