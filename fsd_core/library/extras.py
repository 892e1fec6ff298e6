"""Packages that only some of the library needs."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from fsd_core.errors import PackageMissing


def need(package: str, what: str) -> None:
    """Raise ``PackageMissing`` if ``package``, which ``what`` needs, is not installed."""
    try:
        import_module(package)
    except ImportError:
        raise PackageMissing(
            f"{what} needs {package}, which is not installed: install it, or the library with its group 'figures', "
            "pip install 'fsd-lab[figures]'."
        ) from None


def lacks(*packages: str) -> bool:
    """Return whether any of these packages is not installed."""
    return any(find_spec(package) is None for package in packages)
