"""Commands for users who may sign in, and for the API tokens of programs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from fsd_core.cli import output
from fsd_core.cli import shared_options as options
from fsd_core.roles import LOCAL, ROLES, checked_name, checked_role
from fsd_core.settings import get_settings
from fsd_core.worker import local_runs

if TYPE_CHECKING:
    from datetime import datetime

    from fsd_core.storage.database.repository import Repository

users = typer.Typer(help="People who may sign in where FSD_ACCESS is password.", **options.TYPER_OPTIONS)
tokens = typer.Typer(help="Tokens that programs show instead of a password.", **options.TYPER_OPTIONS)

Name = Annotated[str, typer.Argument(help="Name.")]
Role = Annotated[str, typer.Option(help=f"One of {', '.join(ROLES)}.")]


def _repository() -> Repository:
    return local_runs.open_repository(get_settings())


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
    from fsd_core.auth import credentials

    checked_role(role)  # fails before the password prompt
    credentials.add_user(_repository(), checked_name(name), role, _password())
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
    from fsd_core.auth import credentials

    credentials.change_password(_repository(), name, _password())
    print(f"{name} has another password; wherever they were signed in, they are no more.")


@users.command("one-time")
def give_one_time_password(name: Name) -> None:
    """Print a password for one sign-in, within three days. It ends the user's password and sessions."""
    from fsd_core.auth import credentials

    print(credentials.one_time_password(_repository(), name, LOCAL.name))


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
    from fsd_core.auth import credentials

    print(credentials.add_token(_repository(), name, role, owner, days, LOCAL.name))


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
