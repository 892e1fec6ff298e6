"""People, their roles, and what each role may do."""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from typing import NamedTuple

from fsd_core.errors import Malformed, Misconfigured, Refused, Taken, UnknownChoice

ROLES = ("viewer", "author", "reviewer", "admin")
"""each may do what the previous ones may"""
ORG_ROLES = ("admin", "write", "contributor", "read")
"""roles of members of a Hugging Face organisation"""
LONGEST_PERSON_NAME = 100


class Person(NamedTuple):
    """A person or a program that acts. A program's name is ``OWNER/TOKEN``, and no person's has a slash."""

    name: str
    role: str
    known: bool = True
    """whether they are authenticated"""
    owner: str | None = None
    """of a program: who made its token. ``None``: this is a person."""
    must_choose_password: bool = False
    """whether they signed in with a one-time password, and may do nothing but choose another"""

    @property
    def is_program(self) -> bool:
        return self.owner is not None

    def may(self, role: str) -> bool:
        """Whether the person has this role or a higher one."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Person("local user", "admin", known=False)
"""the machine's user, without sign-in"""
NOBODY = Person("nobody", "viewer", known=False)
"""an unknown person"""
VISITOR = Person("visitor", "viewer", known=False)
"""visitor of a public demo who has not signed in"""
GUEST = Person("guest", "viewer", known=False)
"""visitor of a public demo without sign-in"""


def require(person: Person, role: str, what: str) -> None:
    """Raise ``Refused``, with ``what`` such as "Proposing a setting", unless the person has the role."""
    if not person.may(role):
        if person == GUEST:
            raise Refused(f"{what} is not for visitors of this demo: run a copy of your own.")
        if not person.known:
            raise Refused(f"{what} needs the role {role}: sign in first.")
        raise Refused(f"{what} needs the role {role}, and {person.name} is {person.role}: ask an admin for it.")


def require_person(person: Person, role: str, what: str) -> None:
    """Raise as :func:`require`, and for every program: a token never answers for somebody."""
    if person.is_program:
        raise Refused(f"{what} is for people, and {person.name} is a program: sign in, and do it yourself.")
    require(person, role, what)


def read_roles(text: str) -> dict[str, str]:
    """Return roles by name from a variable's text, such as ``ann=admin,*=viewer``. Raises ``InvalidSetting``."""
    parts = [part.rpartition("=") for part in text.split(",") if part.strip()]
    roles = {who.strip(): role.strip() for who, _, role in parts}
    if not all(roles) or not set(ROLES).issuperset(roles.values()) or len({*map(folded, roles)}) < len(parts):
        raise Misconfigured(
            f"The roles {text!r} cannot be read: expected names, each once in whatever case, with one of "
            f"{', '.join(ROLES)}, such as ann=admin,*=viewer."
        )
    return roles


def check_organisations(names: Collection[str]) -> None:
    """Raise ``InvalidSetting`` for a name in FSD_HF_ROLES that nobody can have."""
    for name in names:
        org, slash, role = name.removeprefix("org:").partition("/")
        if not org or (slash and (not name.startswith("org:") or role not in ORG_ROLES)):
            raise Misconfigured(
                f"The name {name!r} among the roles cannot be read: expected a person's name, org:NAME, "
                f"org:NAME/ROLE with one of {', '.join(ORG_ROLES)}, or *."
            )


def checked_role(role: str) -> str:
    """Return the role. Raises ``InvalidSetting`` for an unknown one."""
    if role not in ROLES:
        raise UnknownChoice(f"The role {role[:40]!r} is not known: expected one of {', '.join(ROLES)}.")
    return role


def same_name(name: str, other: str) -> bool:
    """Whether two names are one: neither case nor the form of their characters tells them apart."""
    return folded(name) == folded(other)


def folded(name: str) -> str:
    """Return the form of a name by which it is compared (NFKC without case, twice: folding may undo the form)."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold()).strip()


def checked_name(name: str) -> str:
    """Return the name of a new person or token, stripped, in the form NFKC.

    Raises ``InvalidSetting`` if it is empty, too long, not printable, or one that the program itself uses.
    """
    name = unicodedata.normalize("NFKC", name).strip()
    if any(same_name(name, taken.name) for taken in (LOCAL, NOBODY, VISITOR, GUEST)):
        raise Taken(f"The name {name!r} is used by the program itself: choose another name.")
    if not 1 <= len(name) <= LONGEST_PERSON_NAME or not name.isprintable():
        raise Malformed(
            f"The name {name[:40]!r} cannot be used: expected 1 to {LONGEST_PERSON_NAME} printable characters."
        )
    return name
