"""Runs a command on a machine that is busy and stands still now and then: ``python -m tools.paused COMMAND…``.

Another process takes a core. Every 1.5 seconds on average, one of the command's processes is stopped for 0.3 to 2
seconds, or all of them, as if the machine slept. No test may fail by that: ``make test-paused``. The exit status is the
command's.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable
from contextlib import suppress

import psutil

from tools.load.neighbour import neighbour

EVERY = 1.5
"""seconds between two pauses, on average; exponentially distributed"""
LASTING = 0.3, 2.0
"""seconds of a pause; uniformly distributed"""
OF_ALL = 0.3
"""share of the pauses that stop all processes"""


def run(command: list[str], seed: int) -> int:
    """Return the exit status of the command."""
    draw, pauses = random.Random(seed), 0
    with neighbour():
        started = psutil.Popen(command)
        while started.poll() is None:
            time.sleep(draw.expovariate(1 / EVERY))
            _pause([started, *_below(started)], draw)
            pauses += 1
    print(f"Paused {pauses} times, with seed {seed}.")
    return started.returncode


def _below(process: psutil.Process) -> list[psutil.Process]:
    with suppress(psutil.NoSuchProcess):
        return process.children(recursive=True)
    return []


def _pause(processes: list[psutil.Process], draw: random.Random) -> None:
    chosen = processes if draw.random() < OF_ALL else [draw.choice(processes)]
    try:
        _each(process.suspend for process in chosen)
        time.sleep(draw.uniform(*LASTING))
    finally:  # nothing stays stopped when this program is interrupted
        _each(process.resume for process in chosen)


def _each(calls: Iterable[Callable[[], None]]) -> None:
    for call in calls:
        with suppress(psutil.NoSuchProcess):
            call()


if __name__ == "__main__":
    told = argparse.ArgumentParser()
    told.add_argument("--seed", type=int, default=0)
    told.add_argument("command", nargs=argparse.REMAINDER)
    arguments = told.parse_args()
    sys.exit(run(arguments.command, arguments.seed))
