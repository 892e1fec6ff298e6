"""Provenance of a result: what reproduces it, naming no machine and no person, and its page in MLflow."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

OUR_RUN = "../runs?run="
"""link from MLflow's pages, which lie below ours, to our page of a run; its id is appended"""


def run_url(base: str, experiment_id: str | None, run_id: str) -> str:
    """Return the URL of a run's page. Without the id of MLflow's experiment, MLflow redirects to the page."""
    base, run = base.rstrip("/"), quote(run_id, safe="")
    if experiment_id is None:
        return f"{base}/#/runs/{run}"
    return f"{base}/#/experiments/{quote(experiment_id, safe='')}/runs/{run}"


_PACKAGES = ("fsd-lab", "torch", "transformers", "tokenizers", "safetensors", "numpy", "mlflow", "sqlalchemy")
_ROOT = Path(__file__).resolve().parents[1]


def collect(device: str, dtype: str, threads: int, gpu: str | None = None) -> dict[str, Any]:
    """Return versions, git revision (``None`` outside a checkout), platform, processor, and how the models run.

    ``gpu`` is the name of the graphics processor, if one computes.
    """
    return ({"gpu": gpu} if gpu else {}) | {
        "device": str(device), "dtype": str(dtype), "threads": threads,
        "python": platform.python_version(), "versions": _versions(), "git_revision": _git_revision(),
        "platform": f"{platform.system()} {platform.machine()}", "cpu": _cpu(), "cpu_count": os.cpu_count(),
    }  # fmt: skip


def _versions() -> dict[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


@cache
def _git_revision() -> str | None:
    """Return the commit, marked with ``+changes`` if files differ from it."""
    if not (_ROOT / ".git").exists():
        return None
    try:
        return (
            subprocess.run(
                ["git", "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty=+changes"],
                cwd=_ROOT, capture_output=True, text=True, timeout=5, check=True,
            ).stdout.strip()
            or None
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None


@cache
def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
