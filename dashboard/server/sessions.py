"""No state of pages. A page says itself what it shows, and Gradio would keep 0.6 MB of every visit for as long as it
runs."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from gradio.blocks import Blocks
from gradio.state_holder import SessionState, StateHolder
from starlette.routing import Mount


class AnswerState(SessionState):
    """The changes of one answer. Gradio's own class also copies every component's configuration, for deep links."""

    def __init__(self, blocks: Blocks) -> None:
        without_copies = SimpleNamespace(default_config=blocks.default_config, blocks={})
        super().__init__(cast(Blocks, without_copies))

    def __setitem__(self, key: int, value: Any) -> None:
        self.blocks_config.blocks[key] = value

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


class NoSessions(StateHolder):
    """Each question is answered anew, whoever asked before."""

    def __getitem__(self, session_id: str) -> SessionState:
        return AnswerState(self.blocks)

    def replace_state_holder(self, app: FastAPI, pages: Blocks) -> None:
        """Replace Gradio's own state holder in an application that has ``pages`` mounted."""
        self.set_blocks(pages)
        mounted = next(route.app for route in app.routes if isinstance(route, Mount))
        cast(Any, mounted).state_holder = self
