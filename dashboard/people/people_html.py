"""People, tokens and the account log as HTML."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dashboard.ui.actions import button
from dashboard.ui.components import Column, empty_state, pill, table
from dashboard.ui.quantities import DASH, moment
from dashboard.ui.templates import Html, joined, render
from fsd_core.roles import Person, read_roles, same_name

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.records import AccountEvent, AccountView, TokenView

_PEOPLE = (Column("Name", "wide"), Column("Role"), Column("Since"), Column("Last sign-in"), Column("State"), Column(""))
_NAMED = (Column("Name", "wide"), Column("Role"))
_TOKENS = (
    Column("Token", "wide"), Column("Of"), Column("Role"), Column("Since"), Column("Until"), Column("Last used"),
    Column(""),
)  # fmt: skip
_LOG = (Column("When"), Column("Who"), Column("Did"), Column("Whose", "wide"), Column("What", "wide"))


def refused(sentence: str) -> Html:
    """Return the page for a program, or somebody who has not signed in."""
    return empty_state("Nothing to see here", sentence)


def own_html(person: Person, settings: Settings) -> Html:
    """Return who somebody is here, and what they can do about it."""
    return render("people/people.html", "own", person, settings.access, settings.proxy_header)


def tokens_html(tokens: Sequence[TokenView], person: Person) -> Html:
    """Return tokens, or what they are for."""
    if not tokens:
        return empty_state(
            "No tokens yet",
            "A program shows a token instead of a password, and may do what its role may. Verdicts, votes, roll-backs "
            "and deletions stay with people. Make one below.",
        )
    rows = [
        (
            token.name, token.owner or DASH, token.role, moment(token.created_at), moment(token.expires_at),
            moment(token.used_at),
            button("revoke-token", "token", token.name, "Revoke", f"Revoke “{token.name}”? Whatever uses it stops."),
        )
        for token in tokens
    ]  # fmt: skip
    return table(_TOKENS, rows, "Tokens")


def people_html(people: Sequence[AccountView], person: Person, settings: Settings) -> Html:
    """Return everybody, as far as this installation knows them."""
    if settings.access == "proxy":
        named = table(_NAMED, read_roles(settings.proxy_roles).items(), "Roles behind the proxy")
        return joined([render("people/people.html", "behind_proxy", settings.proxy_header), named])
    rows = [_person(one, person, settings) for one in people]
    if not rows:
        return empty_state("Nobody has signed in yet", "Whoever signs in at Hugging Face is listed here.")
    return table(_PEOPLE, rows, "People")


def _person(one: AccountView, person: Person, settings: Settings) -> tuple[str, ...]:
    state = "disabled" if one.disabled else "one-time password" if one.one_time else "active"
    buttons = [] if same_name(one.name, person.name) else _buttons(one, settings)
    signed_in = moment(one.signed_in_at)
    return one.name, one.role, moment(one.created_at), signed_in, pill(state), joined(buttons)


def _buttons(one: AccountView, settings: Settings) -> list[Html]:
    buttons = []
    if settings.access == "password":
        question = f"Give “{one.name}” a one-time password? Their own ends, and they are signed out everywhere."
        buttons.append(button("new-password", "person", one.name, "New password", question))
    if one.disabled:
        return [*buttons, button("enable-person", "person", one.name, "Enable")]
    question = f"Disable “{one.name}”? They are signed out everywhere, and their tokens are worth nothing."
    return [*buttons, button("disable-person", "person", one.name, "Disable", question)]


def secret_html(kind: str, name: str, secret: str) -> Html:
    """Return a new secret, which is shown this once. ``kind`` is ``token`` or ``password``."""
    return render("people/people.html", "secret", kind, name, secret)


def log_html(events: Sequence[AccountEvent], most: int) -> Html:
    """Return the log of accounts, the latest event first."""
    if not events:
        return empty_state(
            "Nothing happened yet", "Sign-ins, and changes of people, roles and tokens, are listed here."
        )
    rows = [(moment(event.at), event.who, event.act, event.subject, event.detail or DASH) for event in events]
    return joined([table(_LOG, rows, "What happened to accounts"), render("people/people.html", "most", most)])
