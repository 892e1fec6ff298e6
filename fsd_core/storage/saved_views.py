"""Saved views: names that people give to what a page shows, which its address says."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import parse_qsl, urlencode

from fsd_core.errors import Malformed, NotGiven, OutOfRange, UnknownChoice
from fsd_core.roles import Person, same_name

VIEW_PAGES = ("runs", "compare")
"""pages whose whole state is in their address, by their paths"""
LONGEST_VIEW_NAME = 80
LONGEST_VIEW_QUERY = 8_000


@dataclass(frozen=True)
class SavedView:
    """A named address. ``query`` is that of the page, and ``at`` when it was saved last."""

    id: str
    page: str
    name: str
    query: str
    who: str
    at: datetime

    @property
    def address(self) -> str:
        """The address below the application's root."""
        return f"{self.page}?{self.query}"

    def may_change(self, person: Person) -> bool:
        """Whether a person may replace, rename and delete the view: who saved it, or an admin."""
        return person.may("admin") or (person.may("author") and person.known and same_name(person.name, self.who))


def checked_view_page(page: str) -> str:
    """Return the page. Raises ``InvalidSetting`` for one that has no views."""
    if page not in VIEW_PAGES:
        raise UnknownChoice(f"The page {page[:40]!r} has no saved views: expected {' or '.join(VIEW_PAGES)}.")
    return page


def checked_view_name(name: str) -> str:
    """Return the name of a view, stripped, in the form NFKC. Raises ``InvalidSetting``."""
    name = unicodedata.normalize("NFKC", name).strip()
    if not name:
        raise NotGiven("The view needs a name: type one.")
    if len(name) > LONGEST_VIEW_NAME or not name.isprintable():
        raise Malformed(
            f"The name {name[:40]!r} cannot be used for a view: expected 1 to {LONGEST_VIEW_NAME} printable characters."
        )
    return name


def checked_view_query(query: str) -> str:
    """Return the query of a page's address, without its question mark and in one spelling. Raises
    ``InvalidSetting``."""
    if len(query) > LONGEST_VIEW_QUERY:
        raise OutOfRange(
            f"The view has an address of {len(query):,} characters: choose less, for {LONGEST_VIEW_QUERY:,} are kept."
        )
    try:
        values = parse_qsl(query.removeprefix("?"), strict_parsing=True, max_num_fields=100) if query else []
    except ValueError:
        raise Malformed(
            "The view's address cannot be read: expected what stands behind the question mark of the page's address, "
            "such as sort=accuracy."
        ) from None
    if not values:
        raise NotGiven("There is nothing to keep yet: choose runs, filters or an order first.")
    return urlencode(values, safe=",")
