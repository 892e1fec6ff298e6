"""Roles of Hugging Face users: by name, by organisation, and by ownership of the Space."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from fsd_core.roles import ROLES, folded, read_roles
from fsd_core.space import Space


class Profile(NamedTuple):
    """A user's name and organisations at Hugging Face."""

    name: str
    organisations: Mapping[str, str]
    """the user's role in each, by name: one of ``roles.ORG_ROLES``, or empty if unknown"""

    @classmethod
    def read(cls, userinfo: Mapping[str, Any]) -> Profile:
        """Return the profile in an answer of the userinfo endpoint.

        Organisations whose own checks (single sign-on, second factor) are still pending do not count. Raises
        ``ValueError`` without a valid name.
        """
        name = userinfo.get("preferred_username")
        if not _is_name(name):
            raise ValueError("no preferred_username")
        orgs = userinfo.get("orgs")
        entries = [org for org in orgs if isinstance(org, Mapping)] if isinstance(orgs, list) else []
        admitted = (org for org in entries if not any(org.get(check) for check in _PENDING_CHECKS))
        named = (org for org in admitted if _is_name(org.get("preferred_username")))
        return cls(str(name), {str(org["preferred_username"]): str(org.get("roleInOrg") or "") for org in named})


def _is_name(value: object) -> bool:
    """Whether it can be a name there. One with ``:``, ``/`` or ``*`` would mean something else among the roles."""
    return isinstance(value, str) and re.fullmatch(r"[\w.-]{1,96}", value) is not None


_PENDING_CHECKS = ("securityRestrictions", "pendingSSO", "missingMFA")


def role_of(profile: Profile, roles: str, space: Space | None) -> str:
    """Return a user's role. ``roles`` is FSD_HF_ROLES, such as ``ann=admin,org:team/admin=admin,*=viewer``.

    A name takes precedence over organisations, among which the highest role counts. ``*`` is everybody else. The owner
    of the Space is admin: a person, or the admins of an organisation. Names are compared without case, as Hugging Face
    does.
    """
    role_by_name = {folded(who): role for who, role in read_roles(roles).items()}
    owner = folded(space.owner) if space else ""
    name = folded(profile.name)
    if (personal_role := role_by_name.get(name)) is not None:
        return personal_role
    if name == owner:
        return "admin"
    keys = set(_keys(profile.organisations))
    matches = [role for who, role in role_by_name.items() if who in keys]
    if owner and f"org:{owner}/admin" in keys:
        matches.append("admin")
    return max(matches, key=ROLES.index) if matches else role_by_name.get("*", ROLES[0])


def _keys(organisations: Mapping[str, str]) -> Iterable[str]:
    for name, role in organisations.items():
        yield folded(f"org:{name}")
        yield folded(f"org:{name}/{role}")
