"""Commands for reviews: ``review check``."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

reviews = typer.Typer(help="What a team has decided on settings.", **options.TYPER_OPTIONS)


@reviews.callback()
def _group() -> None:
    """What a team has decided on settings."""


@reviews.command("check")
def check_use(
    use: Annotated[str, typer.Argument(help="Id of a use, as in the address of its page.")],
    setting: Annotated[str, typer.Option(help="Id of a setting. [default: the approved one]")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Say whether a setting may serve a use now: approved, not expired, its evidence intact, each requirement met or
    waived. Exits with 1 if it may not."""
    from fsd_core.review.approvals import check_setting
    from fsd_core.review.review_service import ReviewService

    repository = local_runs.open_repository(get_settings())
    checked = check_setting(repository, ReviewService(repository).use(use), setting)
    if as_json:
        print(json.dumps(checked.as_json(), indent=2, ensure_ascii=False))
    else:
        rows = [(check.requirement, f"waived: {waived}" if waived else check.outcome, check.text)
                for check, waived in checked.requirements]  # fmt: skip
        if rows:
            output.print_table(("Requirement", "Outcome", "Figures"), rows, figures=False)
        for reason in checked.reasons:
            output.say(reason)
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
    from fsd_core.roles import LOCAL

    service = ReviewService(local_runs.open_repository(get_settings()))
    service.ask_reviewers(LOCAL, service.review(proposal), reviewers)
    print(f"Asked for a verdict: {', '.join(service.review(proposal).proposal.reviewers)}.")
