"""Commands of a team: users and tokens, reviews, messages and notes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.actions.action import Ask, do
from fsd_core.cli import common, output
from fsd_core.cli.action_commands import lazy_group
from fsd_core.cli.output import find_work
from fsd_core.settings import get_settings
from fsd_core.storage.records import read_tags
from fsd_core.texts import count

if TYPE_CHECKING:
    from fsd_core.storage.records import Subject


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
    from fsd_core.actions import uses

    bounds = {"margin": margin, "least_speedup": speed, "longest_answers": answers, "highest_cost": cost}
    given: dict[str, Any] = {"name": name, "description": description, "approvals": approvals}
    given = {field: value for field, value in given.items() if value is not None}
    given |= {} if days is None else {"days": _number(days) or 0}
    given["requirements"] = {field: _number(text) for field, text in bounds.items() if text is not None}
    ask = Ask(get_settings(), operator=True)
    changed = do(uses.change_use, ask, given | {"use": use, "version": uses.read_use(ask, use)["version"]})
    print(f"“{changed['name']}” asks for something else now.")


@reviews.command("evidence")
def choose_evidence(
    proposal: Annotated[str, typer.Argument(help="Id of an open proposal, as in the address of its page.")],
    run: Annotated[list[str], typer.Option(help="Id of a run of its setting; repeat it for several.")],
    baseline: Annotated[list[str], typer.Option(help="Id of a run to compare with; repeat it for several.")],
    comment: Annotated[str, typer.Option(help="Why.")] = "",
) -> None:
    """Rest a proposal on other runs of its setting. Verdicts on the former ones become stale."""
    from fsd_core.actions import reviews

    ask = Ask(get_settings(), operator=True)
    seen = reviews.read_verdict(ask, proposal)["evidence_hash"]
    reviews.choose_evidence(ask, proposal, run, baseline, seen, comment)
    print(f"The proposal rests on {count(len(run), 'run')} and {count(len(baseline), 'baseline')} now.")


def _number(text: str) -> str | None:
    """Return a number as it was typed, which the action validates, or ``None`` for none."""
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
    from fsd_core.actions import runs

    ask = Ask(get_settings(), operator=True)
    work = find_work(ask.repository, id)
    kind: Subject = "experiment" if work.is_experiment else "run"
    before = ask.repository.experiment(work.id) if work.is_experiment else work.runs[0]
    tags = None
    if tag or untag:
        removed = set(read_tags(" ".join(untag or [])))
        tags = [t for t in read_tags(" ".join([*before.tags, *(tag or [])])) if t not in removed]
    after = runs.annotate(ask, kind, work.id, name, note, tags, archive, before.edits)
    title = {"name": after["name"]} if "name" in after else {}
    values = title | {"note": after["note"], "tags": after["tags"], "archived": after["archived"]}
    if json:
        output.print_json({f"{kind}_id": work.id} | values)
        return
    print(f"The {kind} {work.id}" + (f" ({title['name']})" if title else ""))
    print(f"Note: {after['note'] or 'none'}")
    print(f"Tags: {' '.join(after['tags']) or 'none'}")
    print(f"Archived: {'yes' if after['archived'] else 'no'}")
