"""From a file as it came to its JSON: gzip and Parquet are told by their first bytes, whatever the file's name."""

from __future__ import annotations

import gzip
import io
import logging
import os
import subprocess
import sys
import zlib
from pathlib import Path

from fsd_core.tasks.custom.parquet_child import REFUSED, unpacks_to_more
from fsd_core.tasks.custom.problems import Findings

logger = logging.getLogger(__name__)
LARGEST_FILE = 8_000_000
"""bytes, as it came and unpacked"""
MOST_TASK_PROMPTS = 20_000
PARQUET_SECONDS = 60
_GZIP, _PARQUET = b"\x1f\x8b", b"PAR1"
_PARQUET_CHILD = Path(__file__).with_name("parquet_child.py")


def unpacked(data: bytes, findings: Findings) -> bytes:
    """Return the JSON of a file. It is empty if the file cannot be unpacked within the limits, which is told."""
    if len(data) > LARGEST_FILE:
        findings.wrong(None, f"The file is larger than {LARGEST_FILE:,} bytes: split it into several tasks.")
        return b""
    if data.startswith(_GZIP):
        data = _inflated(data, findings)
    return _parquet_as_lines(data, findings) if data.startswith(_PARQUET) else data


def _inflated(data: bytes, findings: Findings) -> bytes:
    try:
        text = gzip.GzipFile(fileobj=io.BytesIO(data)).read(LARGEST_FILE + 1)
    except (OSError, EOFError, zlib.error):
        findings.wrong(None, "The file begins as one of gzip and cannot be unpacked: compress or fetch it again.")
        return b""
    if len(text) > LARGEST_FILE:
        findings.wrong(None, unpacks_to_more(LARGEST_FILE))
        return b""
    return text


def _parquet_as_lines(data: bytes, findings: Findings) -> bytes:
    """Return the rows as JSON Lines. A child reads them, since a damaged file may end or fill the process it is in."""
    findings.unit = "row"
    command = [sys.executable, "-P", str(_PARQUET_CHILD), str(LARGEST_FILE), str(MOST_TASK_PROMPTS)]
    # So that its address space stays small: an arena for each thread would reserve 64 MB.
    limits = {"ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    try:
        child = subprocess.run(
            command, input=data, env=os.environ | limits, capture_output=True, timeout=PARQUET_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        logger.warning("A Parquet file was not read: %s", error)
        child = None
    else:
        if child.returncode < 0:
            logger.warning("The reader of a Parquet file ended by signal %d", -child.returncode)
    if child is not None and child.returncode == 0:
        return child.stdout
    if child is not None and child.returncode == REFUSED:
        findings.wrong(None, child.stderr.decode())
    else:
        findings.wrong(
            None, "The file begins as one of Parquet and cannot be read: it is damaged, or takes too much time or "
            "memory. Write it again, or as JSON Lines."
        )  # fmt: skip
    return b""
