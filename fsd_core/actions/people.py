"""What is done with accounts and tokens, by people with an account or the operator: by commands and buttons, with no
call."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from fsd_core import accounts
from fsd_core.actions.action import Ask, Told, action
from fsd_core.errors import NotApplicable, Refused, UnknownChoice
from fsd_core.roles import LOCAL, ROLES, checked_name, checked_role, same_name
from fsd_core.texts import DASH, Secret

if TYPE_CHECKING:
    from fsd_core.storage.tables import AccountEventRow, ApiTokenRow, UserRow
else:
    AccountEventRow = ApiTokenRow = UserRow = Any  # help answers without the database

Name = Annotated[str, "name"]
Role = Annotated[str, f"one of {', '.join(ROLES)}"]


def _check_passwords(ask: Ask, why: str) -> None:
    reasons = {
        "huggingface": "people sign in at Hugging Face, and FSD_HF_ROLES gives their roles at each sign-in",
        "proxy": "the proxy says who people are, and FSD_PROXY_ROLES gives their roles",
    }
    if not ask.operator and ask.settings.access in reasons:
        raise NotApplicable(f"{why}: {reasons[ask.settings.access]}.")


def _check_other(ask: Ask, name: str, sentence: str) -> None:
    if not ask.operator and same_name(ask.person.name, name):
        raise Refused(sentence)


def _set_disabled(ask: Ask, name: str, disabled: bool) -> None:
    if not ask.operator and ask.settings.access == "proxy":
        raise NotApplicable("Accounts are the proxy's: keep somebody out there.")
    _check_other(ask, name, "Nobody disables their own account: ask another admin.")
    ask.repository.set_disabled(name, disabled, ask.person.name)


def _moment(at: datetime | None) -> str:
    return DASH if at is None else f"{at:%Y-%m-%d %H:%M}"


def _tell_people(people: list[UserRow]) -> Told:
    rows = [
        (one.name, one.role, f"{one.created_at:%Y-%m-%d}", _moment(one.signed_in_at),
         "disabled" if one.disabled else "one-time password" if one.one_time else DASH)
        for one in people
    ]  # fmt: skip
    notes = () if rows else ["Nobody may sign in yet: `users add NAME --role admin` makes the first one."]
    return Told((), notes, ("Name", "Role", "Since", "Last sign-in", "State"), rows)


def _tell_events(events: list[AccountEventRow]) -> Told:
    rows = [(_moment(event.at), event.who, event.act, event.subject, event.detail) for event in events]
    return Told(columns=("When", "Who", "Did", "Whose", "What"), rows=rows)


def _tell_tokens(tokens: list[ApiTokenRow]) -> Told:
    rows = [
        (one.name, one.role, one.owner or DASH, f"{one.created_at:%Y-%m-%d}", _moment(one.expires_at),
         _moment(one.used_at))
        for one in tokens
    ]  # fmt: skip
    columns = "Name", "Role", "Of", "Since", "Until", "Last used"
    return Told((), () if rows else ["There are no tokens."], columns, rows)


@action(role="admin", doing="Adding a person", known=True, writes=True)
def add_person(ask: Ask, name: Name, role: Role) -> str:
    """Add somebody, and return a password for one sign-in, within three days."""
    _check_passwords(ask, "Nobody is added here")
    password, until = accounts.one_time_password()
    accounts.add_user(ask.repository, name, role, password, ask.person.name, until)
    return password


@action("users add", role="admin", doing="Adding a person", known=True, writes=True)
def add_person_with_password(ask: Ask, name: Name, password: Secret, role: Role = ROLES[0]) -> str:
    """Add a user. The password is prompted for, or read from standard input."""
    _check_passwords(ask, "Nobody is added here")
    accounts.add_user(ask.repository, checked_name(name), checked_role(role), password(), ask.person.name)
    return f"{name} may sign in as {role}."


@action(
    "users list", role="admin", doing="Seeing all accounts", known=True, tells=_tell_people,
    fields=("name", "role", "created_at", "signed_in_at", "disabled", "one_time"),
)  # fmt: skip
def list_people(ask: Ask) -> list[UserRow]:
    """List the users who may sign in."""
    return ask.repository.users() if ask.operator or ask.settings.access != "proxy" else []  # which keeps no accounts


@action("users role", role="admin", doing="Changing a role", known=True, writes=True, arguments=("name", "role"))
def change_role(ask: Ask, name: Name, role: Role) -> str:
    """Change a user's role."""
    _check_passwords(ask, "Roles are not kept here")
    _check_other(ask, name, "Nobody changes their own role: ask another admin.")
    ask.repository.change_user(name, by=ask.person.name, role=checked_role(role))
    return f"{name} is {role} now."


@action("users password", role="admin", doing="A new password for somebody", known=True, writes=True)
def change_password(ask: Ask, name: Name, password: Secret) -> str:
    """Change a user's password and end their sessions."""
    _check_passwords(ask, "Nobody has a password here")
    _check_other(ask, name, "A new password for yourself is set on the page of your account.")
    accounts.change_password(ask.repository, name, password(), ask.person.name)
    return f"{name} has another password; wherever they were signed in, they are no more."


@action("users one-time", role="admin", doing="A new password for somebody", known=True, writes=True)
def give_one_time_password(ask: Ask, name: Name) -> str:
    """Print a password for one sign-in, within three days. It ends the user's password and sessions."""
    _check_passwords(ask, "Nobody has a password here")
    _check_other(ask, name, "A new password for yourself is set on the page of your account.")
    password, until = accounts.one_time_password()
    accounts.change_password(ask.repository, name, password, ask.person.name, until)
    return password


@action("users disable", role="admin", doing="Disabling an account", known=True, writes=True)
def disable_person(ask: Ask, name: Name) -> str:
    """Disable a user: nobody signs in as them, and their tokens are worth nothing, until they are enabled."""
    _set_disabled(ask, name, True)
    return f"{name} is disabled."


@action("users enable", role="admin", doing="Disabling an account", known=True, writes=True)
def enable_person(ask: Ask, name: Name) -> str:
    """Enable a user who was disabled."""
    _set_disabled(ask, name, False)
    return f"{name} may sign in again."


@action("users remove", role="admin", doing="Removing an account", known=True, destroys=True)
def remove_person(ask: Ask, name: Name) -> str:
    """Remove a user, and revoke their tokens. Their comments and verdicts in reviews stay."""
    _check_other(ask, name, "Nobody removes their own account: ask another admin.")
    ask.repository.remove_user(name, ask.person.name)
    return f"{name} may no longer sign in."


@action(
    "users log", role="viewer", doing="Seeing the account log", known=True, tells=_tell_events,
    fields=("at", "who", "act", "subject", "detail"), arguments=(),
)  # fmt: skip
def account_log(ask: Ask, limit: Annotated[int, Field(ge=1, le=10_000), "rows at most"] = 50) -> list[AccountEventRow]:
    """Show what happened to accounts: sign-ins, people, roles and tokens, the latest first."""
    return ask.repository.account_log(limit, None if ask.person.may("admin") else ask.person.name)


@action("tokens add", role="viewer", doing="Making a token", known=True, writes=True)
def make_token(
    ask: Ask,
    name: Name,
    role: Role = ROLES[0],
    owner: Annotated[str, "the person who answers for the program"] = LOCAL.name,
    days: Annotated[float | None, "for how long it lasts. Default: until it is revoked"] = None,
) -> str:
    """Create a token. It is shown only once: only its hash is stored."""
    me = ask.person
    if not me.may(checked_role(role)):
        raise Refused(f"{me.name} is {me.role}, so a token of theirs has at most this role: choose it.")
    return accounts.add_token(ask.repository, name, role, owner if ask.operator else me.name, days, me.name)


@action(
    "tokens list", role="viewer", doing="Seeing tokens", known=True, tells=_tell_tokens,
    fields=("name", "role", "owner", "created_at", "expires_at", "used_at"),
)  # fmt: skip
def list_tokens(ask: Ask) -> list[ApiTokenRow]:
    """List tokens, without their secrets."""
    me = ask.person
    return [token for token in ask.repository.tokens() if me.may("admin") or same_name(token.owner, me.name)]


@action("tokens revoke", role="viewer", doing="Revoking a token", known=True, destroys=True)
def revoke_token(ask: Ask, name: Name) -> str:
    """Revoke a token."""
    if not ask.operator and all(token.name != name for token in list_tokens(ask)):
        raise UnknownChoice(f"{ask.person.name} has no token '{name[:40]}': it was revoked, or is somebody else's.")
    ask.repository.revoke_token(name, ask.person.name)
    return f"The token {name} is worth nothing any more."
