"""Preview of a link to a page in another program: our name, a sentence and a picture, in place of Gradio's.

Programs request it without signing in, so it contains no stored data.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse
from gradio.routes import templates
from jinja2 import BaseLoader, Environment, FunctionLoader

from dashboard.server.root_path import browser_scheme, root_of
from dashboard.ui.signed_in import person_mark
from dashboard.ui.templates import Html, render
from fsd_core.auth.identify import person_in

PREVIEW_PATH = "/preview.png"
PICTURE = Path(__file__).parent / "preview.png"
_GRADIOS = re.compile(r'<meta\s+(?:property="og:|name="twitter:)[^>]*>')
_CHARSET = '<meta charset="utf-8" />'


def preview_routes() -> APIRouter:
    """Return the route of the picture."""
    router = APIRouter()

    @router.get(PREVIEW_PATH)
    def picture() -> FileResponse:
        return FileResponse(PICTURE, headers={"Cache-Control": "public, max-age=86400"})

    return router


def preview(request: Request) -> Html:
    """Return the tags for the head of a page. The picture's address is whole, as those who read it need it."""
    address = f"{browser_scheme(request)}://{request.headers.get('host', '')}{root_of(request)}{PREVIEW_PATH}"
    return render("server/pages.html", "preview", address)


def replace_gradios_preview(titles: Mapping[str, str], installation: str) -> None:
    """Give Gradio's pages our tags and a title each, by path: it has no option for them, and names itself.

    A tag names the ``installation`` and the person, for what a browser keeps for one person alone (``drafts.js``).
    """
    loader = templates.env.loader
    if loader is not None and not isinstance(loader, _OwnPreview):
        templates.env.loader = _OwnPreview(loader, templates.env)

    def head(request: Request, config: dict[str, Any]) -> Html:
        title = f"{titles.get(config.get('current_page', ''), 'Nothing here')} – FSD Lab"
        config["title"] = title  # a page's own copy, from which Gradio's script sets the title once more
        person = person_mark(person_in(request.scope))
        return render("server/pages.html", "gradios_head", title, preview(request), installation, person)

    templates.env.globals["fsd_head"] = head  # pyrefly: ignore[unsupported-operation]


class _OwnPreview(FunctionLoader):
    """Gradio's templates without its own tags. They call the function that :func:`replace_gradios_preview` adds."""

    def __init__(self, gradios: BaseLoader, environment: Environment) -> None:
        def source(name: str) -> tuple[str, str | None, Any]:
            text, file, current = gradios.get_source(environment, name)
            return (
                _GRADIOS.sub("", text).replace(_CHARSET, _CHARSET + "{{ fsd_head(request, config) }}", 1),
                file,
                current,
            )

        super().__init__(source)
