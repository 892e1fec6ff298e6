"""API endpoints for saved views of the pages Runs and Compare."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from uuid import uuid4

import gradio as gr
from typing_extensions import TypedDict

from dashboard.ui.endpoint import Endpoint, does
from dashboard.ui.signed_in import person_of
from fsd_core.roles import require
from fsd_core.storage.saved_views import SavedView, checked_view_page
from fsd_core.texts import Id

if TYPE_CHECKING:
    from fsd_core.storage.database.repository import Repository


class ViewAnswer(TypedDict):
    """A saved view. ``address`` shows it."""

    view: str
    page: str
    name: str
    query: str
    by: str
    at: str
    address: str


def view_endpoints(repository: Repository, root_path: str) -> list[Endpoint]:
    def described(view: SavedView) -> ViewAnswer:
        return {
            "view": view.id,
            "page": view.page,
            "name": view.name,
            "query": view.query,
            "by": view.who,
            "at": view.at.isoformat(),
            "address": f"{root_path}/{view.address}",
        }

    def list_views(page: str = "") -> list[ViewAnswer]:
        """Return the saved views, each with the address that shows it.

        Args:
            page: runs or compare. Default: both
        """
        return [described(view) for view in repository.saved_views(checked_view_page(page) if page else None)]

    @does(repeatable=True)
    def save_view(page: Literal["runs", "compare"], name: str, query: str, request: gr.Request) -> ViewAnswer:
        """Name what the page Runs or Compare shows, for the whole team. Needs the role author.

        A view of one's own of this name is replaced, so the same call done twice is done once.

        Args:
            page: runs or compare
            name: 1 to 80 characters
            query: what stands behind the question mark of the page's address, such as pair=bundled&sort=accuracy
        """
        person = person_of(request)
        require(person, "author", "Saving a view")
        return described(repository.save_view(uuid4().hex, page, name, query, person))

    @does(repeatable=True)
    def rename_view(view: Id, name: str, request: gr.Request) -> ViewAnswer:
        """Give a saved view of one's own another name. Needs the role author.

        Args:
            view: id of a view
            name: 1 to 80 characters
        """
        person = person_of(request)
        require(person, "author", "Renaming a view")
        return described(repository.rename_view(view, name, person))

    return [list_views, save_view, rename_view]
