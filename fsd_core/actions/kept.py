"""What is done with saved views."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import uuid4

from typing_extensions import TypedDict

from fsd_core.actions.action import Ask, action
from fsd_core.storage.catalogue import checked_view_page
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.tables import SavedViewRow


class ViewAnswer(TypedDict):
    """A saved view. ``address`` shows it."""

    view: str
    page: str
    name: str
    query: str
    by: str
    at: str
    address: str


def _described(ask: Ask, view: SavedViewRow) -> ViewAnswer:
    return {
        "view": view.id, "page": view.page, "name": view.name, "query": view.query, "by": view.who,
        "at": view.at.isoformat(), "address": f"{ask.settings.root_path}/{view.address}",
    }  # fmt: skip


@action()
def list_views(
    ask: Ask,
    page: Annotated[str, "runs or compare. Default: both"] = "",
) -> list[ViewAnswer]:
    """Return the saved views, each with the address that shows it."""
    return [_described(ask, view) for view in ask.repository.saved_views(checked_view_page(page) if page else None)]


@action(role="author", doing="Saving a view", writes=True, repeatable=True)
def save_view(
    ask: Ask,
    page: Annotated[Literal["runs", "compare"], "runs or compare"],
    name: Annotated[str, "1 to 80 characters"],
    query: Annotated[
        str, "what stands behind the question mark of the page's address, such as pair=bundled&sort=accuracy"
    ],
) -> ViewAnswer:
    """Name what the page Runs or Compare shows, for the whole team.

    A view of one's own of this name is replaced, so the same call done twice is done once.
    """
    return _described(ask, ask.repository.save_view(uuid4().hex, page, name, query, ask.person))


@action(role="author", doing="Renaming a view", writes=True, repeatable=True)
def rename_view(
    ask: Ask,
    view: Annotated[Id, "id of a view"],
    name: Annotated[str, "1 to 80 characters"],
) -> ViewAnswer:
    """Give a saved view of one's own another name."""
    return _described(ask, ask.repository.rename_view(view, name, ask.person))
