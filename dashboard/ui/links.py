"""Links to files, and buttons that copy the address of a page or a prompt."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from dashboard.ui.templates import Html, render


def copy_link(text: str = "Copy link", query: Mapping[str, str] | None = None) -> Html:
    """Return a quiet button that copies the page's address with ``query`` added to its own query (``sharing.js``).

    It is the application's own address, also on a Hugging Face Space. The page around a Space passes on its query only
    at the first load and never a path. The application's own address is public and keeps both.
    """
    return render("ui/links.html", "copy_link", text, json.dumps(dict(query)) if query else None)


def downloads(files: Iterable[tuple[str, str]], style: str = "") -> Html:
    """Return a row of links to files, given as (address, text).

    They are downloads, because navigation would end the page's connections.
    """
    return render("ui/links.html", "downloads", files, style)
