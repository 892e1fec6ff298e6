"""Who a job's GPU is charged to.

ZeroGPU finds the visitor in the context of Gradio's event, which the thread that works does not have. So the context in
which a job was asked for is kept, in this process, for as long as it is good for.
"""

from __future__ import annotations

import threading
import time
from contextvars import Context, copy_context

GOOD_FOR = 120.0
"""seconds; what names a visitor to ZeroGPU has been seen to expire after 170"""

_lock = threading.Lock()
_kept: dict[str, tuple[Context, float]] | None = None


def keep() -> None:
    """Contexts are wanted from now on: this process is the one that does the jobs."""
    global _kept
    _kept = {}


def note(job_id: str) -> None:
    """The job is asked for here and now."""
    moment = time.monotonic()
    with _lock:
        if _kept is not None:
            for old in [id for id, (_, since) in _kept.items() if moment - since > GOOD_FOR]:
                del _kept[old]
            _kept[job_id] = copy_context(), moment


def context_of(job_id: str) -> Context:
    """A context to ask for a GPU in; nobody's where the visitor's is not known, or too old."""
    with _lock:
        context, since = (_kept or {}).get(job_id, (None, 0.0))
    if context is None or time.monotonic() - since > GOOD_FOR:
        return Context()
    return context.copy()
