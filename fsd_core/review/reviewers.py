"""Who is asked for a verdict, and which proposals wait for somebody."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from fsd_core.errors import NotApplicable, Refused, UnknownChoice
from fsd_core.review import history
from fsd_core.roles import Person, checked_name, same_name

if TYPE_CHECKING:
    from fsd_core.review.history import Awaited, Proposal, Use
    from fsd_core.storage.database.repository import Repository

_MAY = ("reviewer", "admin")


def checked_reviewers(repository: Repository, names: Sequence[str], authors: Collection[str]) -> tuple[str, ...]:
    """Return the names of people to ask, each once, as they are written where people sign in with a password.

    Raises ``InvalidSetting`` for somebody who is not known there or may give no verdict, and ``Refused`` for one of the
    proposal's ``authors``. Where a proxy or a provider names people, any name is taken.
    """
    accounts = repository.users()
    checked: list[str] = []
    for given in names:
        name = checked_name(given)
        if any(same_name(name, author) for author in authors):
            raise Refused(f"{name} made the proposal, and nobody judges their own: ask somebody else.")
        account = next((account for account in accounts if same_name(account.name, name)), None)
        if accounts and account is None:
            raise UnknownChoice(f"There is no person '{name[:40]}': choose somebody who signs in here.")
        if account is not None and account.role not in _MAY:
            raise NotApplicable(f"{account.name} is {account.role} and gives no verdicts: ask a reviewer or an admin.")
        name = account.name if account else name
        if not any(same_name(name, other) for other in checked):
            checked.append(name)
    return tuple(checked)


def possible_reviewers(repository: Repository, authors: Collection[str] = ()) -> list[str]:
    """Return the people who may be asked, where people sign in with a password."""
    return [
        account.name
        for account in repository.users()
        if account.role in _MAY and not any(same_name(account.name, author) for author in authors)
    ]


def waiting_for(uses: Iterable[Use], person: Person) -> list[tuple[Use, Proposal, Awaited]]:
    """Return the proposals that wait for a person, for a verdict or for changes, the oldest first."""
    if not person.known or person.is_program:
        return []
    waiting = [
        (use, proposal, awaited)
        for use in uses
        for proposal in use.proposals.values()
        for name, awaited in proposal.waits_for.items()
        if same_name(name, person.name)
    ]
    return sorted(waiting, key=lambda one: one[1].at)


class WaitingCount:
    """How many proposals wait for somebody. The log is read again only when it has grown, since every open page
    asks."""

    def __init__(self, repository: Repository) -> None:
        self._repository = repository
        self._lock = threading.Lock()
        self._read: tuple[int, list[Use]] = -1, []

    def __call__(self, person: Person) -> int:
        if not person.known or person.is_program:
            return 0
        with self._lock:
            last = self._repository.last_review_event()
            if last != self._read[0]:
                self._read = last, history.uses(self._repository.review_log())
            uses = self._read[1]
        return len(waiting_for(uses, person))
