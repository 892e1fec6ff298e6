"""The uses whose review rests on some runs: who deletes these runs should know them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from fsd_core.errors import DataDamaged
from fsd_core.review.history import uses

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository

_APPROVED, _PROPOSED = "an approval in force", "a proposal"
_tables: WeakKeyDictionary[Repository, tuple[int, dict[str, dict[str, str]]]] = WeakKeyDictionary()
"""by repository: the last event that was read, and by run the names of uses, each with what rests on it"""


def resting_on(repository: Repository, runs: Iterable[str]) -> str:
    """Return a sentence that names the uses whose evidence some runs are; empty if there are none.

    Evidence is what an approval in force rests on, or a proposal that is open or was approved before.
    """
    named: dict[str, str] = {}
    try:
        table = _table(repository)
    except DataDamaged as error:
        return f"Nobody can tell what rests on it. {error}"
    for run in runs:
        for use, what in table.get(run, {}).items():
            if named.get(use) != _APPROVED:
                named[use] = what
    if not named:
        return ""
    listed = ", ".join(f"{what} for “{use}”" for use, what in sorted(named.items()))
    return f"Evidence of it is lost, on which these rest: {listed}."


def _table(repository: Repository) -> dict[str, dict[str, str]]:
    """Return the uses by run. The log only grows, so it is read again when it has a new event."""
    last = repository.last_review_event()
    known = _tables.get(repository)
    if known is None or known[0] != last:
        known = last, _read(repository)
        _tables[repository] = known
    return known[1]


def _read(repository: Repository) -> dict[str, dict[str, str]]:
    table: dict[str, dict[str, str]] = {}
    for use in uses(repository.review_log()):
        for proposal in use.proposals.values():
            if proposal.state not in ("declined", "withdrawn"):
                what = _APPROVED if proposal.state == "approved" else _PROPOSED
                for run in (*proposal.runs, *proposal.baselines):
                    if table.setdefault(run, {}).get(use.name) != _APPROVED:
                        table[run][use.name] = what
    return table
