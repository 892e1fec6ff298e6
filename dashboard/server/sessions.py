"""Gradio's state of each open page, bounded. Gradio would keep 0.6 MB of every visit for as long as it runs."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, cast

from fastapi import FastAPI
from gradio.blocks import Blocks
from gradio.state_holder import SessionState, StateHolder
from starlette.routing import Mount
from starlette.types import ASGIApp, Receive, Scope, Send

HEARTBEAT = "/gradio_api/heartbeat/"
MOST_CLOSED_SESSIONS = 100
"""sessions without a heartbeat, such as those of a sleeping computer"""


class PageSession(SessionState):
    """The state that one page has changed. Gradio's own class also copies every component's configuration, for deep
    links."""

    def __init__(self, blocks: Blocks) -> None:
        without_copies = SimpleNamespace(default_config=blocks.default_config, blocks={})
        super().__init__(cast(Blocks, without_copies))

    def __setitem__(self, key: int, value: Any) -> None:
        super().__setitem__(key, value)
        self.config_values.clear()

    def _update_config(self, key: int) -> None:
        pass

    def _update_value_in_config(self, key: int, value: Any) -> None:
        pass


class Sessions(StateHolder):
    """All sessions whose page is open, and the ``MOST_CLOSED_SESSIONS`` others that were used last.

    A page is open while it holds its heartbeat connection. Sessions with a running event are kept too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.heartbeats: Counter[str] = Counter()

    def __getitem__(self, session_id: str) -> SessionState:
        if session_id not in self.session_data:
            self.session_data[session_id] = PageSession(self.blocks)
        return super().__getitem__(session_id)

    def update(self, session_id: str) -> None:
        with self.lock:
            if session_id in self.session_data:
                self.session_data.move_to_end(session_id)
            self._forget_surplus()

    def add_heartbeat(self, session_id: str) -> None:
        """Count a heartbeat connection that a session's page has opened."""
        self.heartbeats[session_id] += 1

    def remove_heartbeat(self, session_id: str) -> None:
        """Remove a heartbeat connection that has closed."""
        self.heartbeats[session_id] -= 1
        if not self.heartbeats[session_id]:
            del self.heartbeats[session_id]
        with self.lock:
            self._forget_surplus()

    def _forget_surplus(self) -> None:
        queue = self.blocks._queue
        busy = {event.session_hash for event in queue.event_ids_to_events.values()}
        closed = [id for id in self.session_data if id not in self.heartbeats and id not in busy]
        for session_id in closed[:-MOST_CLOSED_SESSIONS]:
            del self.session_data[session_id]
            self.time_last_used.pop(session_id, None)
            queue.pending_event_ids_session.pop(session_id, None)
            queue.pending_messages_per_session.pop(session_id, None)

    def replace_state_holder(self, app: FastAPI, pages: Blocks) -> None:
        """Replace Gradio's own state holder in an application that has ``pages`` mounted."""
        self.set_blocks(pages)
        mounted = next(route.app for route in app.routes if isinstance(route, Mount))
        cast(Any, mounted).state_holder = self


class Heartbeats:
    """Middleware that tells the sessions which pages are open."""

    def __init__(self, app: ASGIApp, sessions: Sessions) -> None:
        self.app, self.sessions = app, sessions

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith(HEARTBEAT):
            return await self.app(scope, receive, send)
        session_id = scope["path"].removeprefix(HEARTBEAT)
        self.sessions.add_heartbeat(session_id)
        try:
            return await self.app(scope, receive, send)
        finally:
            self.sessions.remove_heartbeat(session_id)
