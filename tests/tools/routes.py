"""Every route of the mounted application with Gradio's, as JSON: ``python -m tests.tools.routes HOME``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from starlette.routing import BaseRoute, Mount

from dashboard.web import build_app
from fsd_core.settings import Settings
from tests.tools.plausible import new_repository


def routes(found: Iterable[BaseRoute | Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Every method and path of an application and of those that are mounted in it."""
    for route in found:
        if isinstance(route, Mount):
            yield from routes(route.routes, prefix + route.path)
        elif hasattr(route, "effective_candidates"):  # a router that FastAPI has included
            yield from routes(route.effective_candidates(), prefix)
        else:
            yield from ((method, prefix + route.path) for method in route.methods)


if __name__ == "__main__":
    home = Path(sys.argv[1])
    print(json.dumps(sorted(set(routes(build_app(new_repository(home), Settings(home=home)).routes)))))
