"""Commands of a team: users and tokens, reviews, messages and notes."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from fsd_core.actions.action import Ask, do
from fsd_core.cli import common, output
from fsd_core.cli.action_commands import lazy_group
from fsd_core.cli.output import find_work
from fsd_core.roles import LOCAL, ROLES, checked_name, checked_role
from fsd_core.settings import get_settings
from fsd_core.storage.records import read_tags
from fsd_core.texts import count
from fsd_core.worker import run_actions

if TYPE_CHECKING:
    from fsd_core.storage.records import Subject
    from fsd_core.storage.repository import Repository


users = typer.Typer(help="People who may sign in where FSD_ACCESS is password.", **common.TYPER_OPTIONS)
tokens = typer.Typer(help="Tokens that programs show instead of a password.", **common.TYPER_OPTIONS)

Name = Annotated[str, typer.Argument(help="Name.")]
Role = Annotated[str, typer.Option(help=f"One of {', '.join(ROLES)}.")]


def _repository() -> Repository:
    return run_actions.open_repository(get_settings())


def _moment(at: datetime | None) -> str:
    return "–" if at is None else f"{at:%Y-%m-%d %H:%M}"


def _password() -> str:
    """Return a password typed twice on a terminal without echo, or else the first line of standard input."""
    if sys.stdin.isatty():
        return typer.prompt("Password", hide_input=True, confirmation_prompt=True)
    return sys.stdin.readline().rstrip("\n")


@users.command("add")
def add_user(name: Name, role: Role = "viewer") -> None:
    """Add a user. The password is prompted for, or read from standard input."""
    from fsd_core import accounts

    checked_role(role)  # fails before the password prompt
    accounts.add_user(_repository(), checked_name(name), role, _password())
    print(f"{name} may sign in as {role}.")


@users.command("list")
def list_users() -> None:
    """List the users who may sign in."""
    rows = [
        (account.name, account.role, f"{account.created_at:%Y-%m-%d}", _moment(account.signed_in_at),
         "disabled" if account.disabled else "one-time password" if account.one_time else "–")
        for account in _repository().users()
    ]  # fmt: skip
    if rows:
        output.print_table(("Name", "Role", "Since", "Last sign-in", "State"), rows, figures=False)
    else:
        output.say("Nobody may sign in yet: `users add NAME --role admin` makes the first one.")


@users.command("role")
def change_role(name: Name, role: Annotated[str, typer.Argument(help=f"One of {', '.join(ROLES)}.")]) -> None:
    """Change a user's role."""
    _repository().change_user(name, by=LOCAL.name, role=checked_role(role))
    print(f"{name} is {role} now.")


@users.command("password")
def change_password(name: Name) -> None:
    """Change a user's password and end their sessions."""
    from fsd_core import accounts

    accounts.change_password(_repository(), name, _password())
    print(f"{name} has another password; wherever they were signed in, they are no more.")


@users.command("one-time")
def give_one_time_password(name: Name) -> None:
    """Print a password for one sign-in, within three days. It ends the user's password and sessions."""
    from fsd_core import accounts

    print(accounts.one_time_password(_repository(), name, LOCAL.name))


@users.command("disable")
def disable_user(name: Name) -> None:
    """Disable a user: nobody signs in as them, and their tokens are worth nothing, until they are enabled."""
    _repository().set_disabled(name, True, LOCAL.name)
    print(f"{name} is disabled.")


@users.command("enable")
def enable_user(name: Name) -> None:
    """Enable a user who was disabled."""
    _repository().set_disabled(name, False, LOCAL.name)
    print(f"{name} may sign in again.")


@users.command("remove")
def remove_user(name: Name) -> None:
    """Remove a user, and revoke their tokens. Their comments and verdicts in reviews stay."""
    _repository().remove_user(name, LOCAL.name)
    print(f"{name} may no longer sign in.")


@users.command("log")
def show_log(limit: Annotated[int, typer.Option(help="Rows at most.", min=1, max=10_000)] = 50) -> None:
    """Show what happened to accounts: sign-ins, people, roles and tokens, the latest first."""
    rows = [
        (f"{event.at:%Y-%m-%d %H:%M}", event.who, event.act, event.subject, event.detail)
        for event in _repository().account_log(limit)
    ]
    output.print_table(("When", "Who", "Did", "Whose", "What"), rows, figures=False)


@tokens.command("add")
def add_token(
    name: Name,
    role: Role = "viewer",
    owner: Annotated[str, typer.Option(help="The person who answers for the program.")] = LOCAL.name,
    days: Annotated[float | None, typer.Option(help="For how long it lasts. [default: until it is revoked]")] = None,
) -> None:
    """Create a token. It is shown only once: only its hash is stored."""
    from fsd_core import accounts

    print(accounts.add_token(_repository(), name, role, owner, days, LOCAL.name))


@tokens.command("list")
def list_tokens() -> None:
    """List tokens, without their secrets."""
    rows = [
        (token.name, token.role, token.owner or "–", f"{token.created_at:%Y-%m-%d}",
         _moment(token.expires_at), _moment(token.used_at))
        for token in _repository().tokens()
    ]  # fmt: skip
    if rows:
        output.print_table(("Name", "Role", "Of", "Since", "Until", "Last used"), rows, figures=False)
    else:
        output.say("There are no tokens.")


@tokens.command("revoke")
def revoke_token(name: Name) -> None:
    """Revoke a token."""
    _repository().revoke_token(name, LOCAL.name)
    print(f"The token {name} is worth nothing any more.")


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
