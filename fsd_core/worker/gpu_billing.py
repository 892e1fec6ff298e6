"""Attribution of a job's GPU time to the visitor who requested it.

ZeroGPU identifies the visitor by the context of Gradio's event, which the worker's thread does not have. So this
process stores the context of each request until it expires.
"""

from __future__ import annotations

import threading
import time
from contextvars import Context, copy_context

GOOD_FOR = 120.0
"""seconds; ZeroGPU's token of a visitor has been seen to expire after 170"""

_lock = threading.Lock()
_contexts: dict[str, tuple[Context, float]] | None = None


def store_contexts() -> None:
    """Start storing contexts: this process executes the jobs."""
    global _contexts
    _contexts = {}


def remember_requester(job_id: str) -> None:
    """Remember the current context as the job's requester."""
    now = time.monotonic()
    with _lock:
        if _contexts is not None:
            for expired in [id for id, (_, since) in _contexts.items() if now - since > GOOD_FOR]:
                del _contexts[expired]
            _contexts[job_id] = copy_context(), now


def context_of(job_id: str) -> Context:
    """Return the context to request a GPU in. It is empty if the visitor's is unknown or too old."""
    with _lock:
        context, since = (_contexts or {}).get(job_id, (None, 0.0))
    if context is None or time.monotonic() - since > GOOD_FOR:
        return Context()
    return context.copy()
