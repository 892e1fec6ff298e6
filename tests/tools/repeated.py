"""A test that is repeated: it begins as if it were the first of its module."""

from __future__ import annotations

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Make anew what a module shares before one of its tests is repeated.

    The first attempt has left an application, a database or an experiment half-way, so the second would fail by that.
    """
    if getattr(item, "execution_count", 1) > 1 and isinstance(item, pytest.Function):
        for definitions in item._fixtureinfo.name2fixturedefs.values():
            for definition in definitions:
                if definition.scope == "module":
                    definition.finish(item._request)
