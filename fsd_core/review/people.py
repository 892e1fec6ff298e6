"""Who acts, and what each role may do."""

from __future__ import annotations

from typing import NamedTuple

from fsd_core.errors import Refused

ROLES = ("viewer", "author", "reviewer", "admin")
"""each may do what those before it may"""


class Person(NamedTuple):
    """Somebody who acts."""

    name: str
    role: str

    def may(self, role: str) -> bool:
        """Whether this role or a higher one is theirs."""
        return ROLES.index(self.role) >= ROLES.index(role)


def require(person: Person, role: str, what: str) -> None:
    """Raises ``Refused``, with ``what`` such as "Proposing a setting", unless the person has the role."""
    if not person.may(role):
        raise Refused(f"{what} needs the role {role}, and {person.name} is {person.role}: ask an admin for it.")
