"""Actions on accounts and tokens: people may change their own, admins everybody's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fsd_core.auth import credentials
from fsd_core.errors import NotApplicable, Refused, UnknownChoice
from fsd_core.roles import Person, checked_role, require_person, same_name

if TYPE_CHECKING:
    from fsd_core.settings import Settings
    from fsd_core.storage.database.repository import Repository
    from fsd_core.storage.records import AccountEvent, AccountView, TokenView


class AccountService:
    """Accounts and tokens of an installation. Every method refuses programs and whoever is not signed in.

    All raise ``Refused`` for missing permission, ``InvalidSetting`` for impossible input, and ``UnknownName``.
    """

    def __init__(self, repository: Repository, settings: Settings) -> None:
        self.repository, self.access = repository, settings.access

    def people(self, person: Person) -> list[AccountView]:
        """Return everybody who may sign in or has done so, by name. For admins."""
        _check(person, "admin", "Seeing all accounts")
        return self.repository.users() if self.access != "proxy" else []  # which keeps no accounts

    def tokens(self, person: Person) -> list[TokenView]:
        """Return a person's tokens, and for an admin those of everybody, by name."""
        _check(person, "viewer", "Seeing tokens")
        tokens = self.repository.tokens()
        return tokens if person.may("admin") else [token for token in tokens if same_name(token.owner, person.name)]

    def log(self, person: Person, limit: int) -> list[AccountEvent]:
        """Return the log of a person's account, and for an admin of all accounts, the latest event first."""
        _check(person, "viewer", "Seeing the account log")
        return self.repository.account_log(limit, None if person.may("admin") else person.name)

    def add_person(self, person: Person, name: str, role: str) -> str:
        """Add somebody, and return their one-time password."""
        _check(person, "admin", "Adding a person")
        self._check_passwords("Nobody is added here")
        return credentials.add_user_with_one_time_password(self.repository, name, role, person.name)

    def new_password(self, person: Person, name: str) -> str:
        """Take somebody's password, and return a one-time password for them."""
        _check(person, "admin", "A new password for somebody")
        self._check_passwords("Nobody has a password here")
        _check_other(person, name, "A new password for yourself is set on the page of your account")
        return credentials.one_time_password(self.repository, name, person.name)

    def change_role(self, person: Person, name: str, role: str) -> None:
        """Change somebody's role."""
        _check(person, "admin", "Changing a role")
        self._check_passwords("Roles are not kept here")
        _check_other(person, name, "Nobody changes their own role")
        self.repository.change_user(name, by=person.name, role=checked_role(role))

    def set_disabled(self, person: Person, name: str, disabled: bool) -> None:
        """Disable somebody, which ends their sessions and their tokens, or enable them again."""
        _check(person, "admin", "Disabling an account")
        if self.access == "proxy":
            raise NotApplicable("Accounts are the proxy's: keep somebody out there.")
        _check_other(person, name, "Nobody disables their own account")
        self.repository.set_disabled(name, disabled, person.name)

    def make_token(self, person: Person, name: str, role: str, days: float | None) -> str:
        """Make a token of the person's own, at most of their role, and return it."""
        _check(person, "viewer", "Making a token")
        if not person.may(checked_role(role)):
            raise Refused(f"{person.name} is {person.role}, so a token of theirs has at most this role: choose it.")
        return credentials.add_token(self.repository, name, role, person.name, days)

    def revoke_token(self, person: Person, name: str) -> None:
        """Revoke a token of the person's own, or as an admin anybody's."""
        _check(person, "viewer", "Revoking a token")
        if all(token.name != name for token in self.tokens(person)):
            raise UnknownChoice(f"{person.name} has no token '{name[:40]}': it was revoked, or is somebody else's.")
        self.repository.revoke_token(name, person.name)

    def _check_passwords(self, why: str) -> None:
        reasons = {
            "huggingface": "people sign in at Hugging Face, and FSD_HF_ROLES gives their roles at each sign-in",
            "proxy": "the proxy says who people are, and FSD_PROXY_ROLES gives their roles",
        }
        if self.access in reasons:
            raise NotApplicable(f"{why}: {reasons[self.access]}.")


def _check(person: Person, role: str, what: str) -> None:
    require_person(person, role, what)
    if not person.known:
        raise Refused(f"{what} is for people with an account: sign in first.")


def _check_other(person: Person, name: str, sentence: str) -> None:
    if same_name(person.name, name):
        raise Refused(f"{sentence}: ask another admin." if sentence.startswith("Nobody") else f"{sentence}.")
