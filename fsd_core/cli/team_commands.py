"""Commands of a team: users and tokens, reviews, messages and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.cli import common, output
from fsd_core.cli.action_commands import lazy_group
from fsd_core.cli.output import find_work
from fsd_core.roles import LOCAL
from fsd_core.settings import get_settings
from fsd_core.storage.records import Edit, read_tags
from fsd_core.texts import count
from fsd_core.worker import run_actions

if TYPE_CHECKING:
    from fsd_core.storage.records import ExperimentView, RunView


_ACCOUNTS = lazy_group("fsd_core.actions.people")
users = typer.Typer(cls=_ACCOUNTS, help="People who may sign in where FSD_ACCESS is password.", **common.TYPER_OPTIONS)
tokens = typer.Typer(cls=_ACCOUNTS, help="Tokens that programs show instead of a password.", **common.TYPER_OPTIONS)
reviews = typer.Typer(
    cls=lazy_group("fsd_core.actions.uses", "fsd_core.actions.reviews"),
    help="What a team has decided on settings.",
    **common.TYPER_OPTIONS,
)  # fmt: skip


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
    service = ReviewService(run_actions.open_repository(get_settings()))
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

    service = ReviewService(run_actions.open_repository(get_settings()))
    service.choose_evidence(LOCAL, service.review(proposal), run, baseline, comment)
    print(f"The proposal rests on {count(len(run), 'run')} and {count(len(baseline), 'baseline')} now.")


def _number(text: str) -> str | None:
    """Return a number as it was typed, which is validated where it is stored, or ``None`` for none."""
    return None if text.strip().lower() == "none" else text


def annotate(
    id: common.Id,
    name: Annotated[str | None, typer.Option(help="New name of an experiment.")] = None,
    note: Annotated[str | None, typer.Option(help="Takes the place of the note; an empty one removes it.")] = None,
    tag: Annotated[list[str] | None, typer.Option(help="Tag to add; may be given several times.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Tag to remove; may be given several times.")] = None,
    archive: Annotated[bool | None, typer.Option("--archive/--unarchive", help="Hide it from lists, or not.")] = None,
    json: common.Json = False,
) -> None:
    """Name an experiment, or note, tag or archive an experiment or a run. Without options, print the current values."""
    repository = run_actions.open_repository(get_settings())
    work = find_work(repository, id)
    kind = "experiment" if work.is_experiment else "run"

    def now() -> RunView | ExperimentView:
        return repository.experiment(work.id) if work.is_experiment else repository.run(work.id)

    before = now()
    tags = None
    if tag or untag:
        removed = set(read_tags(" ".join(untag or [])))
        tags = tuple(t for t in read_tags(" ".join([*before.tags, *(tag or [])])) if t not in removed)
    repository.annotate(kind, work.id, Edit(name, note, tags, archive), LOCAL, before.edits)
    after = now()
    title = {"name": after.name} if work.is_experiment else {}  # type: ignore[union-attr]
    values = title | {"note": after.note, "tags": list(after.tags), "archived": after.archived}
    if json:
        output.print_json({f"{kind}_id": work.id} | values)
        return
    print(f"The {kind} {work.id}" + (f" ({title['name']})" if title else ""))
    print(f"Note: {after.note or 'none'}")
    print(f"Tags: {' '.join(after.tags) or 'none'}")
    print(f"Archived: {'yes' if after.archived else 'no'}")
