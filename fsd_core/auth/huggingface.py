"""Roles of people whom Hugging Face names: by their name, by their organisations, and by whose Space it is."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fsd_core.roles import ROLES, read_roles
from fsd_core.space import Space


class Profile(NamedTuple):
    """What Hugging Face tells of somebody."""

    name: str
    organisations: Mapping[str, str]
    """names, and what somebody is in each: one of ``roles.ORG_ROLES``, or empty where that is not told"""

    @classmethod
    def read(cls, userinfo: Mapping[str, Any]) -> Profile:
        """Of what its userinfo endpoint answers. Organisations whose own door is not passed yet (their single sign-on,
        their second factor) do not count. Raises ``ValueError`` for what names nobody."""
        name = userinfo.get("preferred_username")
        if not _is_name(name):
            raise ValueError("no preferred_username")
        orgs = userinfo.get("orgs")
        known = [org for org in orgs if isinstance(org, Mapping)] if isinstance(orgs, list) else []
        passed = (org for org in known if not any(org.get(door) for door in _DOORS))
        named = (org for org in passed if _is_name(org.get("preferred_username")))
        return cls(str(name), {str(org["preferred_username"]): str(org.get("roleInOrg") or "") for org in named})


def _is_name(value: object) -> bool:
    """Whether it can be a name there: one with ``:``, ``/`` or ``*`` would mean something else among the roles."""
    return isinstance(value, str) and re.fullmatch(r"[\w.-]{1,96}", value) is not None


_DOORS = ("securityRestrictions", "pendingSSO", "missingMFA")


def role_of(profile: Profile, roles: str, space: Space | None) -> str:
    """The role of somebody. ``roles`` is what FSD_HF_ROLES says, such as ``ann=admin,org:team/admin=admin,*=viewer``.

    A name goes before organisations, and of these the highest role counts; ``*`` is everybody else. Whose Space it is
    is admin: a person, or the admins of an organisation. Names are compared as Hugging Face does, whatever the case.
    """
    given = {who.lower(): role for who, role in read_roles(roles).items()}
    owner = space.owner.lower() if space else ""
    name = profile.name.lower()
    if (named := given.get(name)) is not None:
        return named
    if name == owner:
        return "admin"
    mine = set(_keys(profile.organisations))
    found = [role for who, role in given.items() if who in mine]
    if owner and f"org:{owner}/admin" in mine:
        found.append("admin")
    return max(found, key=ROLES.index) if found else given.get("*", ROLES[0])


def _keys(organisations: Mapping[str, str]) -> Iterable[str]:
    for name, role in organisations.items():
        yield f"org:{name}".lower()
        yield f"org:{name}/{role}".lower()
