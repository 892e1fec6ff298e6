"""Who acts, and what each role may do."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from fsd_core.errors import InvalidSetting, Refused

ROLES = ("viewer", "author", "reviewer", "admin")
"""each may do what those before it may"""
ORG_ROLES = ("admin", "write", "contributor", "read")
"""what a member may be in an organisation of Hugging Face"""
LONGEST_PERSON_NAME = 100


class Person(NamedTuple):
    """Somebody who acts."""

    name: str
    role: str
    known: bool = True
    """whether they have said who they are"""

    def may(self, role: str) -> bool:
        """Whether this role or a higher one is theirs."""
        return ROLES.index(self.role) >= ROLES.index(role)


LOCAL = Person("local user", "admin", known=False)
"""whoever sits at the machine, where nobody signs in"""
NOBODY = Person("nobody", "viewer", known=False)
"""somebody of whom nothing is known"""
VISITOR = Person("visitor", "viewer", known=False)
"""whoever looks at a public demo and has not signed in"""
GUEST = Person("guest", "viewer", known=False)
"""whoever looks at a public demo in which nobody can"""


def require(person: Person, role: str, what: str) -> None:
    """Raises ``Refused``, with ``what`` such as "Proposing a setting", unless the person has the role."""
    if not person.may(role):
        if person == GUEST:
            raise Refused(f"{what} is not for visitors of this demo: run a copy of your own.")
        if not person.known:
            raise Refused(f"{what} needs the role {role}: sign in first.")
        raise Refused(f"{what} needs the role {role}, and {person.name} is {person.role}: ask an admin for it.")


def read_roles(text: str) -> dict[str, str]:
    """Roles by name, of what a variable says, such as ``ann=admin,*=viewer``. Raises ``InvalidSetting``."""
    parts = (part.rpartition("=") for part in text.split(",") if part.strip())
    roles = {who.strip(): role.strip() for who, _, role in parts}
    if not all(roles) or not set(ROLES).issuperset(roles.values()):
        raise InvalidSetting(
            f"The roles {text!r} cannot be read: expected names with one of {', '.join(ROLES)}, such as "
            "ann=admin,*=viewer."
        )
    return roles


def check_organisations(names: Collection[str]) -> None:
    """Raises ``InvalidSetting`` for a name of FSD_HF_ROLES that nobody can have."""
    for name in names:
        org, slash, role = name.removeprefix("org:").partition("/")
        if not org or (slash and (not name.startswith("org:") or role not in ORG_ROLES)):
            raise InvalidSetting(
                f"The name {name!r} among the roles cannot be read: expected a person's name, org:NAME, "
                f"org:NAME/ROLE with one of {', '.join(ORG_ROLES)}, or *."
            )


def checked_role(role: str) -> str:
    """Raises ``InvalidSetting`` for what is no role."""
    if role not in ROLES:
        raise InvalidSetting(f"The role {role[:40]!r} is not known: expected one of {', '.join(ROLES)}.")
    return role


def checked_name(name: str) -> str:
    """A person's or a token's name. Raises ``InvalidSetting`` for one that is empty, too long or not printable."""
    name = name.strip()
    if not 1 <= len(name) <= LONGEST_PERSON_NAME or not name.isprintable():
        raise InvalidSetting(
            f"The name {name[:40]!r} cannot be used: expected 1 to {LONGEST_PERSON_NAME} printable characters."
        )
    return name
