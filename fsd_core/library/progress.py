"""Progress of long work: a bar on a terminal or in a notebook, silence elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

OnProgress = Callable[[int, int], None]
"""(prompts done, prompts of all settings; 0 where these are not known)"""


@contextmanager
def shown(given: OnProgress | None, title: str) -> Iterator[OnProgress]:
    """Yield a reporter of progress: ``given``, or else a bar of tqdm in a terminal or a notebook."""
    if given is not None or not _somebody_looks():
        yield given or (lambda done, total: None)
        return
    from tqdm.auto import tqdm

    with tqdm(desc=title, unit=" prompts") as bar:

        def on_progress(done: int, total: int) -> None:
            bar.total = total or None
            bar.update(done - bar.n)

        yield on_progress


def _somebody_looks() -> bool:
    """Return whether standard error is a terminal, or this process the kernel of a notebook, whose streams are none."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
