"""Rules at matched points as HTML: for the page, and for the file that is exported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dashboard.ui.components import escape, notice
from fsd_core.analysis.matched_tables import MatchedCell, MatchedTable, absence, beside_rows, caption, tables
from fsd_core.statistics.ranking import OUTSIDE, RATIOS

if TYPE_CHECKING:
    from fsd_core.analysis.matching import MatchedComparison
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import RunView

BESIDE = "Beside the curves"
_TONES = {"loses least": "good", "fastest": "good", "loses more": "bad", "slower": "bad"}
_NOTE = (
    "Below each number is its 95 % interval, from one set of resampled prompts for all rules, and the knob's values "
    "around it. All pairs of rules are tested at once, so the chance that any is falsely said to lose more, or to be "
    "slower, is one in twenty. Rules that the prompts do not tell apart are not ranked."
)


def matched_html(
    matched: MatchedComparison,
    ratios: Sequence[float] = RATIOS,
    margins: Sequence[float] | None = None,
    links: str = "",
) -> str:
    """The tables, with what they are of; or why there are none. ``links``: to add what is missing, as HTML.

    Raises ``InvalidSetting`` for a ratio or a margin that is none.
    """
    notes = "".join(f'<p class="cmp-note">{escape(sentence)}</p>' for sentence in matched.notes)
    missing = f'<p class="cmp-note">{escape(absence(matched))} {links}</p>' if matched.absent else ""
    if not matched.compared:
        why = "" if matched.notes else "A curve needs a rule with several values of its knob: choose runs of one."
        return notes + (notice(why) if why else "") + missing + _beside(matched)
    found = "".join(_table(table) for table in tables(matched, ratios, margins))
    return f'<p class="cmp-note">{escape(caption(matched))}</p>{notes}{missing}{found}{_beside(matched)}' + (
        f'<p class="cmp-note">{_NOTE}</p>'
    )


def addition_links(matched: MatchedComparison, runs: Sequence[RunView]) -> str:
    """Links to the form of Experiments, filled in so that what is missing is measured on the same prompts."""
    groups: dict[str, list[DecodingConfig]] = {}
    for one in matched.absent:
        alike = [run for run in runs if one.drafter is None or _drafts(run.decoding) == _drafts(one)]
        if like := next((run for run in alike if run.decoding.drafter is not None), next(iter(alike), None)):
            groups.setdefault(urlencode({"like": like.id} | _sampling(one, like)), []).append(one)
    links = []
    for query, several in groups.items():
        kinds = ",".join(dict.fromkeys(one.acceptance.kind for one in several))
        names = ", ".join(dict.fromkeys(one.acceptance.title for one in several))
        links.append(f'<a href="experiments?{escape(query)}&amp;rules={escape(kinds)}">Add {escape(names)}</a>')
    return " · ".join(links)


def _drafts(decoding: DecodingConfig) -> tuple:
    return decoding.drafter, decoding.topology


def _sampling(one: DecodingConfig, like: RunView) -> dict[str, float]:
    """Options of sampling in which a missing baseline differs from the run that it is measured like."""
    theirs = like.decoding.sampling.model_dump()
    return {name: value for name, value in one.sampling.model_dump().items() if value != theirs.get(name)}


def _table(table: MatchedTable) -> str:
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th>{"".join(map(_cell, cells))}</tr>' for name, cells in table.rows
    )
    verdicts = "".join(f"<li>{escape(verdict)}</li>" for verdict in table.verdicts)
    return _titled(table.title, f'<ul class="matched-verdicts">{verdicts}</ul>', ["Rule", *table.columns], body)


def _cell(cell: MatchedCell) -> str:
    if cell.rank == OUTSIDE:
        return f'<td class="num">–<span class="range">{escape(cell.said)}</span></td>'
    ends = f'<span class="range">{escape(cell.ends)}</span>' if cell.ends else ""
    knob = f'<span class="range">knob {escape(cell.knob)}</span>' if cell.knob else ""
    said = f'<div><span class="delta {_TONES.get(cell.said, "")}">{escape(cell.said)}</span></div>' if cell.said else ""
    return f'<td class="num">{escape(cell.value)}{ends}{knob}{said}</td>'


def _beside(matched: MatchedComparison) -> str:
    if not matched.lines:
        return ""
    body = "".join(
        f'<tr><th scope="row">{escape(name)}</th><td class="num">{escape(times)}</td>'
        f'<td class="num">{escape(points)}</td></tr>'
        for name, times, points in beside_rows(matched)
    )
    return _titled(BESIDE, "", ["Setting", f"Times {matched.cost.fewer}", matched.quality.title], body)


def _titled(title: str, lead: str, columns: Sequence[str], body: str) -> str:
    first, *others = map(escape, columns)
    head = f'<th scope="col">{first}</th>' + "".join(f'<th scope="col" class="num">{column}</th>' for column in others)
    return (
        f'<h3 class="matched-title">{escape(title)}</h3>{lead}<div class="fsd-scroll" tabindex="0">'
        f'<table class="fsd-table cmp" aria-label="{escape(title)}"><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
