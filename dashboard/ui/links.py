"""Links: to files, and those that last, as a button that copies the address of what is seen."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from dashboard.ui.templates import Html, render


def copy_link(words: str = "Copy link", query: Mapping[str, str] | None = None) -> Html:
    """A quiet button that copies the page's address, with these values added to its query; ``sharing.js`` does it.

    That is the address of the application itself. On a Hugging Face Space, too, where the page around it passes its
    query on at the first load alone, and no path: the application's own address is public and keeps both.
    """
    return render("ui/links.html", "copy_link", words, json.dumps(dict(query)) if query else None)


def downloads(files: Iterable[tuple[str, str]], style: str = "") -> Html:
    """A row of links to files by (address, words). They are downloads and not navigations, which would end the page's
    connections."""
    return render("ui/links.html", "downloads", files, style)
