"""``--seconds`` sums the seconds of a processor that the tests of each folder take, with the processes that they start.

What a process does before its first test (imports, collecting) is in no row. What a process took that nobody waited for
is counted as long as it lives.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Generator
from pathlib import Path

import pytest

_TICK = os.sysconf("SC_CLK_TCK")
_NAME = "seconds of a processor"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seconds", action="store_true", help="sum the seconds of a processor by folder")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    if not item.config.getoption("seconds"):
        return (yield)
    own, others = time.process_time(), _below()
    item.stash[_BEFORE] = own, others
    return (yield)


_BEFORE = pytest.StashKey[tuple[float, float]]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Generator[None, pytest.TestReport, object]:
    report = yield
    if call.when == "teardown" and (before := item.stash.get(_BEFORE, None)):
        took = time.process_time() - before[0] + max(0.0, _below() - before[1])
        report.user_properties.append((_NAME, took))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if not config.getoption("seconds"):
        return
    rows: dict[str, list[float]] = defaultdict(list)
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, took in getattr(report, "user_properties", ()):
                if name == _NAME and report.when == "teardown":
                    rows["/".join(Path(report.nodeid).parts[:2])].append(took)
    terminalreporter.section(_NAME)
    for folder, each in sorted(rows.items()):
        terminalreporter.line(f"{folder:<20} {len(each):>5} tests {sum(each):7.0f} s")


def _below() -> float:
    """Return the seconds of all processes below this one, with those that have ended and were waited for."""
    total, waiting = 0, [os.getpid()]
    while waiting:
        process = waiting.pop()
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            threads = os.listdir(f"/proc/{process}/task")
            children = [Path(f"/proc/{process}/task/{thread}/children").read_text() for thread in threads]
        except (FileNotFoundError, ProcessLookupError):
            continue
        total += sum(map(int, fields[13 if process == os.getpid() else 11 : 15]))
        waiting += map(int, " ".join(children).split())
    return total / _TICK
