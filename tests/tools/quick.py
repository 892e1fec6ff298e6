"""``--quick`` leaves out the tests that took a tenth of a second or more when they last ran: ``make test-fast``."""

from __future__ import annotations

import pytest

LONGEST = 0.1  # seconds of the call: what a module shares is made for the others anyway
_KNOWN = "fsd/durations"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="leave out what took a tenth of a second when it last ran")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        took = config.cache.get(_KNOWN, {})
        left_out = [item for item in items if took.get(item.nodeid, 0.0) >= LONGEST]
        items[:] = [item for item in items if took.get(item.nodeid, 0.0) < LONGEST]
        config.hook.pytest_deselected(items=left_out)


class Durations:
    """Keeps how long each test took, in the process that starts the others."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._took: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._took[report.nodeid] = round(report.duration, 3)

    def pytest_sessionfinish(self) -> None:
        self._config.cache.set(_KNOWN, self._config.cache.get(_KNOWN, {}) | self._took)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput") and hasattr(config, "cache"):
        config.pluginmanager.register(Durations(config))
