"""Rules at matched points as HTML, for the page and for the exported file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from dashboard.ui.templates import Html, render
from fsd_core.analysis.matched_tables import MatchedCell, absence, beside_rows, caption, tables
from fsd_core.statistics.ranking import OUTSIDE, RATIOS

if TYPE_CHECKING:
    from fsd_core.analysis.matching import MatchedComparison
    from fsd_core.config import DecodingConfig
    from fsd_core.storage.records import RunView

OTHER_SETTINGS_TITLE = "Beside the curves"
_TONES = {"loses least": "good", "fastest": "good", "loses more": "bad", "slower": "bad"}
_FILE = "compare/matched.html"


def matched_html(
    matched: MatchedComparison,
    ratios: Sequence[float] = RATIOS,
    margins: Sequence[float] | None = None,
    links: str = "",
) -> Html:
    """Return the tables with their caption, or why there are none.

    ``links`` is HTML that adds missing baselines. Raises ``InvalidSetting`` for an invalid ratio or margin.
    """
    why = "A curve needs a rule with several values of its knob: choose runs of one."
    return render(
        _FILE,
        "matched",
        caption=caption(matched) if matched.compared else "",
        notes=matched.notes,
        why="" if matched.compared or matched.notes else why,
        absence=absence(matched),
        links=links,
        rankings=[
            (table.title, table.verdicts, table.columns, [(None, name, map(_cell, row)) for name, row in table.rows])
            for table in tables(matched, ratios, margins)
        ],
        other_settings=_other_settings(matched),
    )


def addition_links(matched: MatchedComparison, runs: Sequence[RunView]) -> Html:
    """Return links to the Experiments form, prefilled to measure missing baselines on the same prompts."""
    groups: dict[str, list[DecodingConfig]] = {}
    for decoding in matched.absent:
        similar = [run for run in runs if decoding.drafter is None or _drafts(run.decoding) == _drafts(decoding)]
        if reference := next((run for run in similar if run.decoding.drafter is not None), next(iter(similar), None)):
            groups.setdefault(urlencode({"like": reference.id} | _sampling(decoding, reference)), []).append(decoding)
    links = []
    for query, decodings in groups.items():
        kinds = ",".join(dict.fromkeys(decoding.acceptance.kind for decoding in decodings))
        names = ", ".join(dict.fromkeys(decoding.acceptance.title for decoding in decodings))
        links.append((f"experiments?{query}&rules={kinds}", names))
    return render(_FILE, "additions", links)


def _drafts(decoding: DecodingConfig) -> tuple:
    return decoding.drafter, decoding.topology


def _sampling(decoding: DecodingConfig, reference: RunView) -> dict[str, float]:
    """Return the sampling options in which a missing baseline differs from its reference run."""
    measured = reference.decoding.sampling.model_dump()
    return {name: value for name, value in decoding.sampling.model_dump().items() if value != measured.get(name)}


def _cell(cell: MatchedCell) -> Html:
    return render(_FILE, "cell", cell, cell.rank != OUTSIDE, _TONES.get(cell.comparison, ""))


def _other_settings(matched: MatchedComparison) -> Html:
    if not matched.lines:
        return Html()
    rows = [(None, name, figures) for name, *figures in beside_rows(matched)]
    return render(
        _FILE, "other_settings", OTHER_SETTINGS_TITLE, [f"Times {matched.cost.fewer}", matched.quality.title], rows
    )
