"""A proposal as HTML: the evidence against each requirement, who stands where, what was said, the worst prompts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.review.use_html import asked
from dashboard.tables.company import machine
from dashboard.tables.review_log import setting_link
from dashboard.tables.weights_html import weights_html
from dashboard.ui.components import Column, Tile, notice, pill, table, tiles
from dashboard.ui.quantities import DASH, interval, percent, quantity
from dashboard.ui.templates import Html, joined, render
from fsd_core.analysis.cells import against, ratio_mixed
from fsd_core.errors import InvalidSetting
from fsd_core.formatting import count
from fsd_core.metrics import METRICS
from fsd_core.review.evidence import REQUIREMENT_TITLES, Evidence, overall
from fsd_core.review.measured_weights import certain_weights
from fsd_core.statistics.intervals import Estimate
from fsd_core.storage.review_events import Remarked

if TYPE_CHECKING:
    from dashboard.tables.prompt_pairs import Pairing
    from fsd_core.review.history import ProposalStatus
    from fsd_core.review.proposal_review import ProposalReview
    from fsd_core.storage.records import LoggedEvent

_REQUIREMENTS = (Column("Requirement"), Column("Evidence", "wide"), Column("Outcome"), Column("Answered", "wide"))


def case_html(case: ProposalReview, label: str) -> Html:
    """The whole proposal but for its conversation and its prompts."""
    proposal = case.proposal
    gone = notice(f"{count(len(case.missing), 'run')} of its evidence was deleted.", "bad") if case.missing else ""
    return render(
        "review/proposal.html",
        "case",
        case.use,
        proposal,
        label=label,
        setting=setting_link(proposal.setting),
        asked=asked(proposal.requirements),
        notices=joined([gone, _standing(case.standing, proposal.state)]),
        requirements=_requirements(case),
        weights=_weights(case),
        measured=joined(_measured(one) for one in case.evidence),
    )


def _standing(standing: ProposalStatus, state: str) -> Html:
    said = [f"{len(standing.approved_by)} of {count(standing.needed, 'approval')}"]
    for words, people in (
        ("approved by", standing.approved_by), ("changes asked or declined by", standing.against),
        ("stale, of other evidence:", standing.stale), ("expired:", standing.expired),
    ):  # fmt: skip
        if people:
            said.append(f"{words} {', '.join(people)}")
    tone = "warn" if standing.stale or standing.expired or (standing.against and state == "open") else ""
    return notice("; ".join(said) + ".", tone)


def _requirements(case: ProposalReview) -> Html:
    outcomes, rows = overall(case.evidence), []
    for name, outcome in outcomes.items():
        told = "; ".join(f.told for one in case.evidence for f in one.findings if f.requirement == name)
        waiver = case.proposal.waived(name, case.hash)
        words = f"{waiver.who}: {waiver.words}" if waiver else "–" if outcome == "met" else "open"
        rows.append((REQUIREMENT_TITLES[name], told, pill(outcome), words))
    return table(_REQUIREMENTS, rows, "Requirements")


def _weights(case: ProposalReview) -> Html:
    """What is approved with the setting; why nothing can be, where its runs do not agree."""
    runs = [run for one in case.evidence for run in (*one.ours.runs, *one.theirs.runs)]
    if not runs:
        return Html()
    try:
        return render("review/proposal.html", "weights", weights_html(certain_weights(runs)))
    except InvalidSetting as error:
        return notice(str(error), "bad")


def _measured(one: Evidence) -> Html:
    run, baseline, prompts = one.run, one.baseline, one.prompts
    passes, length = (against(run, baseline, METRICS[key], prompts) for key in ("target_passes", "mean_tokens"))
    speed = against(run, baseline, METRICS["tokens_per_second"], prompts)
    m = run.metrics or {}
    mixed = ratio_mixed(run, baseline)
    shown = [_ratio("Speed", speed, mixed), _ratio("Answer length", length), _ratio("Target passes", passes)]
    runaways = percent(m.get("runaway_rate"), m.get("runaway_rate_low"), m.get("runaway_rate_high"))
    shown.append(Tile("Runaways", runaways, "answers stopped by the limit"))
    where = f"seed {run.seed}, {machine(run) or 'unknown machine'}"
    return render("review/proposal.html", "measured", one, where, tiles(shown))


def _ratio(name: str, ratio: Estimate | None, mixed: Sequence[str] = ()) -> Tile:
    if ratio is None:
        return Tile(name, DASH)
    return Tile(name, quantity(*ratio, unit="×"), interval(ratio.low, ratio.high), mixed)


def conversation_html(remarks: Sequence[LoggedEvent]) -> Html:
    """Comments, answers below what they answer."""
    if not remarks:
        return render("review/discussion.html", "faded", "Nobody said anything yet.")
    answers: dict[int | None, list[LoggedEvent]] = {}
    for logged in remarks:
        assert isinstance(logged.act, Remarked)
        answers.setdefault(logged.act.reply_to, []).append(logged)
    return render("review/discussion.html", "conversation", answers)


def prompts_html(pairing: Pairing | None) -> Html:
    """What is read below: the prompts that speak most against the setting come first."""
    if pairing is None:
        told = "Runs of its evidence were deleted."
    elif not pairing.filtered("text"):
        told = "Both answered every shared prompt alike."
    else:
        told = "First those that the baseline solves and the setting does not."
    return render("review/discussion.html", "faded", told)
