"""What the program asks of the machine: signals."""

from __future__ import annotations

import subprocess
import sys

from tests.tools.sizes import PATIENCE

SIGNALLED = """
import signal
from fsd_core.system import Stop
held = [Stop()]
signal.signal(signal.SIGALRM, lambda *_: held[0].set())
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-3)
for _ in range(5_000):
    held[0] = Stop()
    held[0].wait(1e-3)
signal.setitimer(signal.ITIMER_REAL, 0)
print("done")
"""


def test_a_signal_that_comes_while_the_thread_waits_ends_the_wait() -> None:
    """With ``threading.Event`` the thread soon waits for itself, and so did the worker, which then took no job."""
    done = subprocess.run([sys.executable, "-c", SIGNALLED], capture_output=True, text=True, timeout=PATIENCE)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr[-2000:]
