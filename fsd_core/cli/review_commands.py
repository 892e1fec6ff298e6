"""Commands for reviews: whether a setting may serve a use, what a use asks for, what a proposal rests on."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.formatting import count
from fsd_core.roles import LOCAL
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

reviews = typer.Typer(help="What a team has decided on settings.", **options.TYPER_OPTIONS)


@reviews.command("check")
def check_use(
    use: Annotated[str, typer.Argument(help="Id of a use, as in the address of its page.")],
    setting: Annotated[str, typer.Option(help="Id of a setting. [default: the approved one]")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say whether a setting may serve a use now: approved, not expired, its evidence intact, each requirement met or
    answered for. Exits with 1 if it may not."""
    from fsd_core.review.approvals import check_setting
    from fsd_core.review.review_service import ReviewService

    repository = local_runs.open_repository(get_settings())
    checked = check_setting(repository, ReviewService(repository).use(use), setting)
    if as_json:
        print(json.dumps(checked.as_json(), indent=2, ensure_ascii=False))
    else:
        rows = [(check.requirement, f"answered for: {waived}" if waived else check.outcome, check.text)
                for check, waived in checked.requirements]  # fmt: skip
        if rows:
            output.print_table(("Requirement", "Outcome", "Figures"), rows, figures=False)
        for text in filter(None, (*checked.reasons, checked.approval.note if checked.approval else "")):
            output.say(text)
        print(f"The setting {checked.setting} {'passes' if checked.passes else 'does not pass'} for {checked.use}.")
    if not checked.passes:
        raise typer.Exit(1)


@reviews.command("ask")
def ask_reviewers(
    proposal: Annotated[str, typer.Argument(help="Id of a proposal, as in the address of its page.")],
    reviewers: Annotated[list[str], typer.Argument(help="Names of people who are asked for a verdict.")],
) -> None:
    """Ask people for a verdict on a proposal, in place of those who were asked before."""
    from fsd_core.review.review_service import ReviewService

    service = ReviewService(local_runs.open_repository(get_settings()))
    service.ask_reviewers(LOCAL, service.review(proposal), reviewers)
    print(f"Asked for a verdict: {', '.join(service.review(proposal).proposal.reviewers)}.")


@reviews.command("change")
def change_use(
    use: Annotated[str, typer.Argument(help="Id of a use, as in the address of its page.")],
    name: Annotated[str | None, typer.Option(help="Its name.")] = None,
    description: Annotated[str | None, typer.Option(help="What it is for.")] = None,
    margin: Annotated[str | None, typer.Option(help="Points of accuracy that may be lost, or none.")] = None,
    speed: Annotated[str | None, typer.Option(help="Times as fast by time per answer, at least, or none.")] = None,
    answers: Annotated[str | None, typer.Option(help="Times as long answers, at most, or none.")] = None,
    cost: Annotated[str | None, typer.Option(help="Cost per solved task, at most, or none.")] = None,
    approvals: Annotated[int | None, typer.Option(help="People who must approve.")] = None,
    days: Annotated[str | None, typer.Option(help="For which an approval counts, or none: for ever.")] = None,
) -> None:
    """Change what a use asks for. What is left out stays. Approvals of what was asked before become stale."""
    from fsd_core.review.review_service import ReviewService

    bounds = {"margin": margin, "least_speedup": speed, "longest_answers": answers, "highest_cost": cost}
    requirements = {field: _number(text) for field, text in bounds.items() if text is not None}
    changes: dict[str, Any] = {"name": name, "description": description, "approvals": approvals}
    changes = {field: value for field, value in changes.items() if value is not None}
    changes |= {"requirements": requirements} if requirements else {}
    changes |= {"days": _number(days)} if days is not None else {}
    service = ReviewService(local_runs.open_repository(get_settings()))
    changed = service.change_use(LOCAL, use, changes, service.use(use).described_at)
    print(f"“{changed.name}” asks for something else now.")


@reviews.command("evidence")
def choose_evidence(
    proposal: Annotated[str, typer.Argument(help="Id of an open proposal, as in the address of its page.")],
    run: Annotated[list[str], typer.Option(help="Id of a run of its setting; repeat it for several.")],
    baseline: Annotated[list[str], typer.Option(help="Id of a run to compare with; repeat it for several.")],
    comment: Annotated[str, typer.Option(help="Why.")] = "",
) -> None:
    """Rest a proposal on other runs of its setting. Verdicts on the former ones become stale."""
    from fsd_core.review.review_service import ReviewService

    service = ReviewService(local_runs.open_repository(get_settings()))
    service.choose_evidence(LOCAL, service.review(proposal), run, baseline, comment)
    print(f"The proposal rests on {count(len(run), 'run')} and {count(len(baseline), 'baseline')} now.")


def _number(text: str) -> str | None:
    """Return a number as it was typed, which is validated where it is stored, or ``None`` for none."""
    return None if text.strip().lower() == "none" else text
