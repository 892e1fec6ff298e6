"""Pages built without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")


def built(build: Callable[[], T]) -> T:
    """What ``build`` returns, called where a loop runs: elsewhere Gradio makes loops and leaves them open."""

    async def in_a_loop() -> T:
        return build()

    with ThreadPoolExecutor(1) as pool:  # this thread may have a loop of its own, as that of a browser
        return pool.submit(lambda: asyncio.run(in_a_loop())).result()
