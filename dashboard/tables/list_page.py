"""Lists, each declared once: its columns, its orders, and a search and pages around its table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar
from urllib.parse import urlencode

import gradio as gr
from markupsafe import Markup

from dashboard.ui.components import CLICKS, KEEP_PLACE, Column, empty_state, show, table
from dashboard.ui.fields import Pager
from dashboard.ui.templates import Html, escape, joined, render
from dashboard.ui.view import Act, Asked, Part, Updates, View, digest
from fsd_core.errors import UnknownChoice
from fsd_core.storage.runs import LONGEST_SEARCH

_T = TypeVar("_T")
_OPPOSITES = {
    "A to Z": "Z to A", "newest first": "oldest first", "lowest first": "highest first",
    "highest first": "lowest first",
}  # fmt: skip
SORT, COLUMNS = "sort", "columns"
"""the order and the columns of a list in an address; the first is also the act of a heading's button"""


class Order(NamedTuple):
    """An order of items by a column of the repository."""

    title: str
    column: str
    descending: bool


def orders_of(columns: Mapping[str, Column], more: Mapping[str, Order] = MappingProxyType({})) -> dict[str, Order]:
    """Return ``more`` orders and those of columns, each with its opposite, by their names in an address."""
    orders = {**more}
    for name, column in columns.items():
        if column.sorted_by and all(column.sorted_by != order.column for order in more.values()):
            descending = column.way in ("highest first", "newest first")
            orders[name] = Order(f"{column.title}, {column.way}", column.sorted_by, descending)
    for name, (title, column, descending) in [*orders.items()]:
        if all((column, not descending) != order[1:] for order in orders.values()):
            what, _, way = title.rpartition(", ")
            orders[f"{name}-reversed"] = Order(f"{what}, {_OPPOSITES[way]}", column, not descending)
    return orders


class Listing(NamedTuple, Generic[_T]):
    """A table of items."""

    title: str
    columns: Mapping[str, Column]
    """by their names in an address"""
    cell: Callable[[str, _T], str]
    """returns what an item has in the column of a name, as a text or HTML"""
    empty: Html
    """what stands in place of no items"""
    orders: Mapping[str, Order] = MappingProxyType({})
    order: str = ""
    """the usual one"""
    left_out: Collection[str] = ()
    """columns that it has only where they are chosen"""
    ticked: Html = Html()  # immutable
    """says what becomes of items that are ticked, for which lines begin with a cell without a name; empty: nothing"""

    @property
    def first(self) -> str:
        """The column that is always there, for it leads to the item."""
        return next(iter(self.columns))

    def columns_of(self, names: str) -> tuple[str, ...]:
        """Return the columns that a text such as ``setting,accuracy`` names, as they stand in the list: the usual ones
        if it names none."""
        if named := self.columns.keys() & names.split(","):
            return tuple(name for name in self.columns if name in {self.first, *named})
        return tuple(name for name in self.columns if name not in self.left_out)

    def names_of(self, columns: Iterable[str]) -> str:
        """Return the text that names these columns, which is empty for the usual ones."""
        named = self.columns_of(",".join([self.first, *columns]))
        return "" if named == self.columns_of("") else ",".join(named)

    def html(self, items: Sequence[_T], order: str = "", columns: str = "") -> Html:
        """Return the items with these columns, or what stands in place of none. ``order`` is the name of theirs where
        headings sort them."""
        names = ["", *self.columns_of(columns)] if self.ticked else self.columns_of(columns)
        headings = [self._heading(self.columns[name], order) if name else Column("") for name in names]
        rows = [[self.cell(name, item) for name in names] for item in items]
        return joined([self.ticked, table(headings, rows, self.title)]) if items else self.empty

    def _heading(self, column: Column, order: str) -> Column:
        """Return a heading, with a button that sorts by its column: in its first order, or its other one if the list
        has the first. That of the present order says so."""
        names = [name for name, one in self.orders.items() if one.column == column.sorted_by]
        if not order or not names:
            return column
        wanted = names[order == names[0]]
        sorted_ = ("descending" if self.orders[order].descending else "ascending") if order in names else ""
        button = render("tables/lists.html", "sort", SORT, column.sorted_by, wanted, self.orders[wanted].title, sorted_)
        return column._replace(button=button, sorted=sorted_)


class ListPage(Part):
    """A list with its fields, its table and its pages. Its address follows them, to be shared and come back to."""

    script = CLICKS + KEEP_PLACE
    unmatched = "Search for something else, or clear the search."

    def __init__(
        self, name: str, noun: str, listing: Listing[Any], count: Callable[..., int],
        rows: Callable[..., Sequence[Any]], searched: str,
    ) -> None:  # fmt: skip
        """``name`` is that of its table, and the path of its page. ``count`` and ``rows`` take what is filtered by.
        ``searched`` says what a search looks at."""
        self.name, self.noun, self.listing, self.count, self.rows = name, noun, listing, count, rows
        with gr.Row(elem_classes=["run-filters"]):
            search = {"label": "Search", "placeholder": searched, "max_length": LONGEST_SEARCH}
            self.by_name = {"search": gr.Textbox(**search, scale=2, min_width=180), **self.more_fields()}
        self.by_name.setdefault(SORT, gr.Textbox(listing.order, visible="hidden"))
        self.add_above()
        self.fields = [*self.by_name.values()]
        self.items = show(js_on_load=self.script, elem_id=name)
        self.pager = Pager(50, noun)
        self.outputs = [self.items, *self.pager.parts]
        self.latest: Callable[..., tuple[int, int, Html]] = self.found

    def more_fields(self) -> dict[str, Any]:
        """Return the fields beside the search, by their names in an address."""
        return {}

    def add_above(self) -> None:
        """Add what stands between the fields and the table."""

    def filters(self, search: str, **values: Any) -> dict[str, Any]:
        """Return what ``count`` and ``rows`` take, for the values of the fields."""
        return {"search": search.strip()} | values

    def none(self, filters: Mapping[str, Any]) -> Html:
        """Return what stands in place of no items."""
        if not filters.get("search"):
            return self.listing.empty
        is_whole = filters.keys() <= self.by_name.keys()  # and not of one thing
        step = (self.name, f"Show all {self.name}") if is_whole else None
        return empty_state(f"No {self.noun} matches", self.unmatched, step)

    def listen(self, view: View) -> None:
        """Attach the events."""
        view.turns(self.pager.name, self.pager.steps)
        view.on(self.items.click)
        view.act(SORT, self.sort)

    def sort(self, act: Act, asked: Asked) -> None:
        """Choose the order that a click on a heading asks for."""
        if act["id"] not in self.listing.orders:
            raise UnknownChoice(f"{self.listing.title} cannot be sorted like that: choose an order of the list.")
        asked.fill(self.by_name[SORT], act["id"])

    def redraw(self, asked: Asked, **about: Any) -> Updates:
        """Return the updates of the list. ``about`` is what else ``count`` and ``rows`` take."""
        kept = {name: text for name, text in asked.address.items() if name not in self.by_name}
        if asked.opening:
            for name, field in self.by_name.items():
                asked.fill(field, self.filled(name, asked.address.get(name)))
        else:
            query = self.query({field: asked.current(field) for field in self.fields}, kept)
            asked.new_address = f"?{query}" if query else ""
        values = {name: self.text(name, asked.current(field)) for name, field in self.by_name.items()}
        of = digest({name: value for name, value in values.items() if name != COLUMNS}, kept)
        page, total, html = self.latest(asked.page(self.pager.name, of), *values.values(), **about)
        if not asked.differs("list", of, page, total, html):
            return {}
        return {self.items: html} | self.pager.updates(page, total, of)

    def found(self, page: int, *values: Any, **about: Any) -> tuple[int, int, Html]:
        """Return the number of the nearest existing page, the number of items, and the page's items as HTML."""
        by_name = dict(zip(self.by_name, values, strict=True))
        order, columns = by_name.pop(SORT), by_name.pop(COLUMNS, "")
        filters = self.filters(**by_name) | about
        if not (total := self.count(**filters)):
            return 0, 0, self.none(filters)
        page, (_, column, descending) = self.pager.clamp(page, total), self.listing.orders[order]
        size = self.pager.size
        items = self.rows(**filters, order_by=column, descending=descending, limit=size, offset=page * size)
        return page, total, self.listing.html(items, order, columns)

    def query(self, values: Mapping[Any, Any], kept: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return the query of the address for values of the fields, without those that are the usual ones."""
        texts = {name: self.text(name, values[field]) for name, field in self.by_name.items()}
        usual = {name: self.text(name, field.value) for name, field in self.by_name.items()}
        differing = {name: text for name, text in texts.items() if text and text != usual[name]}
        return urlencode({**kept, **{name: "true" if text is True else text for name, text in differing.items()}})

    def filled(self, name: str, text: str | None) -> Any:
        """Return the value of a field for its text in an address, or its first one where that is not offered."""
        field = self.by_name[name]
        if isinstance(field, gr.Checkbox):
            return text == "true"
        if text is None or (isinstance(field, gr.Dropdown) and all(text != value for _, value in field.choices)):
            return field.value
        return self.text(name, text)

    def text(self, name: str, value: Any) -> Any:
        """Return the value of a field as an address has it."""
        if name == SORT and value not in self.listing.orders:
            return self.listing.order
        return value[:LONGEST_SEARCH] if isinstance(value, str) else value or ""


def quiet(label: str, min_width: int) -> gr.Checkbox:
    """Return a field that shows more."""
    return gr.Checkbox(False, label=label, container=False, min_width=min_width, elem_classes=["fsd-quiet"])


def held(
    listing: Listing[_T], read: Callable[..., Iterable[_T]], row: Callable[[_T], Any] = lambda item: item
) -> tuple[Callable[..., int], Callable[..., list[_T]]]:
    """Return ``count`` and ``rows`` of a list that is read whole. A search looks at what lines say.

    ``row`` returns what has the values that an item is sorted by.
    """

    def matching(search: str, **about: Any) -> list[_T]:
        words = search.casefold().split()
        return [item for item in read(**about) if all(word in said(item) for word in words)]

    def said(item: _T) -> str:
        titled = [name for name, column in listing.columns.items() if column.title]  # without buttons
        return Markup(" ".join(escape(listing.cell(name, item)) for name in titled)).striptags().casefold()

    def rows(order_by: str, descending: bool, limit: int, offset: int, **filters: Any) -> list[_T]:
        items = matching(**filters)

        def value(item: _T) -> Any:
            found = getattr(row(item), order_by)
            return found.casefold() if isinstance(found, str) else found

        known = sorted((item for item in items if value(item) is not None), key=value, reverse=descending)
        return [*known, *(item for item in items if value(item) is None)][offset : offset + limit]

    return (lambda **filters: len(matching(**filters))), rows
